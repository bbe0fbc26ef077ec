"""Behaviour that the test suites of other languages' clients rely on and no other scenario shows."""

from harness.steps import avro, namespace, published, rest
from transcript import scenario

INT = avro(("a", "int"))
STRING = avro(("a", "string"))


def schema(data):
    return {"name": "s", "type": "Avro", "schema_data": data}


@scenario
def versions_before_a_deletion_are_gone(s):
    """A message of a deleted schema cannot be decoded: its version is not found, also when a new version exists."""
    c, topic = s.connect(), s.topic()
    path = rest(topic, "/schema").replace("/persistent/", "/schemas/")

    def look(*versions):
        for version in versions:
            c.ask("GET_SCHEMA", topic=topic, schema_version=version.to_bytes(8, "big"))
            s.http("GET", f"{path}/{version}", keep=["version"])

    c.producer(topic, 1, producer_name="a", schema=schema(INT))
    look(0)
    s.http("DELETE", path)
    look(0, 1)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="b", schema=schema(STRING))
    look(0, 1, 2)


@scenario
def peeking_makes_the_subscription(s):
    """Peeking through a subscription that is not there makes it at the start of the topic; others find nothing."""
    c, topic = s.connect(), s.topic()
    published(s, topic)
    for method, path in (
        ("POST", "skip/1"),
        ("POST", "skip_all"),
        ("POST", "expireMessages/1"),
        ("POST", "resetcursor/1"),
    ):
        s.http(method, rest(topic, f"/subscription/new/{path}"))
    s.http("GET", rest(topic, "/subscription/new/position/2"), quietly=True)
    s.http("GET", rest(topic, "/subscription/new/position/4"))
    c.subscribe(topic, "new", 1)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    for _ in range(3):
        c.recv()


@scenario
def subscription_expiration_may_not_be_negative(s):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/subscriptionExpirationTime", -1, keep=["reason"])


@scenario
def key_value_and_boolean_schemas_in_rest(s):
    """The Java client's names and texts, from the wire to REST and back."""
    c = s.connect()
    key, value = b"", avro(("a", "int"))
    stored = len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value
    types = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    properties = [{"key": k, "value": v} for k, v in types.items()]
    for n, kind, data, more in ((1, "KeyValue", stored, properties), (2, "Bool", b"", []), (3, "KeyValue", stored, [])):
        topic = s.topic(f"t{n}")
        asked = {"name": "s", "type": kind, "schema_data": data, "properties": more}
        c.producer(topic, n, producer_name="a", schema=asked)
        s.http("GET", rest(topic, "/schema").replace("/persistent/", "/schemas/"), keep=["type", "data"])
    text = '{"key":"","value":' + value.decode() + "}"
    for n, kind, data in ((4, "KEY_VALUE", text), (5, "BOOLEAN", "")):
        topic = s.topic(f"t{n}")
        path = rest(topic, "/schema").replace("/persistent/", "/schemas/")
        s.http("POST", path, {"type": kind, "schema": data, "properties": types if n == 4 else {}})
        s.http("GET", path, keep=["type", "data"])
        c.ask("GET_SCHEMA", topic=topic)


@scenario
def plain_numbers_and_truth_values(s):
    """The Node client's tests make partitions with a text/plain body; objects must be JSON."""
    topic = s.topic()
    plain, form = {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}
    s.http("PUT", rest(topic, "/partitions"), 3, headers=plain)
    s.http("POST", rest(topic, "/partitions"), 4, headers={"Content-Type": "text/plain; charset=utf-8"})
    s.http("POST", rest(topic, "/partitions"), 5, headers=form)
    s.http("GET", rest(topic, "/partitions"), keep=["partitions"])
    s.http("POST", rest(topic, "/maxConsumers"), 5, headers=plain)
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, headers=plain)
    s.http("PUT", rest(topic, "/subscription/s"), {"ledgerId": -1, "entryId": -1}, headers=plain)
    s.http("POST", rest(topic, "/retention"), {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}, headers=plain)


@scenario
def definitions_of_primitive_types(s):
    """C++ and Python clients describe primitive types by texts of their own where Java sends none."""
    texts = (
        b"null", b'"null"', b'"string"', b'{"type": "string"}', b'{"type":"int"}', b'"int"', b'{"type":"STRING"}', b'{"type":"bytes"}',
        b'"bytes"', b"{}", b"[]", b'["string"]', b"string", b" null ", b'{"type":"string","x":1}', b"nul", b"\xff", b'{"type":"record"}',
    )  # fmt: skip
    for kind in ("String", "Int32", "Bool", "None"):
        for i, text in enumerate(texts if kind == "String" else texts[:6]):
            c, topic = s.connect(), s.topic(f"{kind}{i}")
            typed = {"name": "s", "type": kind, "schema_data": text}
            c.producer(topic, 1, producer_name="a", schema=typed)
            c.ask("GET_SCHEMA", topic=topic)
            c.producer(topic, 2, producer_name="b", schema={"name": "s", "type": kind, "schema_data": b""})
            c.close()
