"""Schemas by type and compatibility: versions, requests, routes and consumers along a history of changes."""

from harness.figures import figures
from harness.steps import avro, namespace, rest, schema
from transcript import scenario

ONE = avro(("a", "int"))
WITH_DEFAULT = avro(("a", "int"), ("b", "int", 0))
WITHOUT_DEFAULT = avro(("a", "int"), ("b", "int"))
LESS = avro(("b", "int", 0))
OTHER = avro(("a", "string"))
HISTORY = (ONE, WITH_DEFAULT, WITHOUT_DEFAULT, LESS, ONE, OTHER)
STRATEGIES = (
    *("ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE"),
    *("FULL", "FULL_TRANSITIVE", "UNDEFINED"),
)
PRIMITIVES = (
    *("String", "Bool", "Int8", "Int16", "Int32", "Int64", "Float", "Double", "Date", "Time", "Timestamp", "Instant"),
    *("LocalDate", "LocalTime", "LocalDateTime"),
)
KEY_VALUE = {
    "key.schema.type": "INT32",
    "value.schema.type": "AVRO",
    "kv.encoding.type": "SEPARATED",
    "key.schema.name": "",
    "value.schema.name": "v",
    "key.schema.properties": "",
    "value.schema.properties": "",
}


def pair(key, value):
    return len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value


def schemas(topic):
    return "/admin/v2/schemas/" + topic.split("://")[1]


def versions(s, topic):
    base = schemas(topic)
    s.call("GET", base + "/schema", keep=lambda body: {k: body[k] for k in ("version", "type", "properties")})
    s.call("GET", base + "/schemas", keep=lambda body: [x["version"] for x in body["getSchemaResponses"]])


def under_strategy(s, strategy):
    """A topic whose policy is that strategy."""
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    path = rest(topic, "/schemaCompatibilityStrategy")
    s.http("PUT", path, strategy, quietly=True)
    s.eventually("policy", lambda: s.http("GET", path, quietly=True)[1] == strategy)
    return topic


def code(frame):
    """The kind of an answer, with its error or the version of the schema."""
    what = frame.command
    error = next(
        (
            f.enum_type.values_by_number[v].name
            for f, v in what.ListFields()
            if f.name.startswith("error") and f.enum_type
        ),
        "",
    )
    return [frame.type, error, getattr(what, "schema_version", b"").hex()]


def declare(kind, strategy):
    def along_a_history(s):
        topic, c = under_strategy(s, strategy), s.connect()
        for i, text in enumerate(HISTORY):
            whole = schema(kind, text)
            produced = c.producer(topic, i, quietly=True, producer_name=f"p{i}", schema=whole)
            consumed = c.subscribe(topic, f"s{i}", i, quietly=True, schema=whole)
            s.note(f"step {i}", [code(produced), code(consumed)])
        versions(s, topic)
        c.producer(topic, 20, producer_name="none")
        c.subscribe(topic, "auto", 20, schema=schema("AutoConsume"))
        s.note("less", code(c.ask("GET_OR_CREATE_SCHEMA", True, topic=topic, schema=schema(kind, LESS))))
        base = schemas(topic) + "/compatibility"
        for text in HISTORY:
            body = {"type": kind.upper(), "schema": text.decode(), "properties": {}}
            status, found = s.http("POST", base, body, quietly=True)
            s.note("compatibility", found if status == 200 else status)

    along_a_history.__name__ = f"schema_history_of_{kind.lower()}_under_{strategy.lower()}"
    scenario(along_a_history)


def declare_pairs(strategy):
    def along_a_history(s):
        topic, c = under_strategy(s, strategy), s.connect()
        steps = ((ONE, ONE), (WITH_DEFAULT, ONE), (WITH_DEFAULT, LESS), (ONE, OTHER), (LESS, WITHOUT_DEFAULT))
        for i, (key, value) in enumerate(steps):
            fields = KEY_VALUE | {"key.schema.type": "AVRO" if i < 3 else "JSON"}
            whole = schema("KeyValue", pair(key, value), **fields)
            produced = c.producer(topic, i, quietly=True, producer_name=f"p{i}", schema=whole)
            consumed = c.subscribe(topic, f"s{i}", i, quietly=True, schema=whole)
            s.note(f"step {i}", [code(produced), code(consumed)])
        versions(s, topic)

    along_a_history.__name__ = f"schema_history_of_key_values_under_{strategy.lower()}"
    scenario(along_a_history)


for each in STRATEGIES:
    declare("Avro", each)
    declare("Json", each)
    declare_pairs(each)


@scenario
def schemas_of_primitive_types_by_route_and_wire(s):
    c = s.connect()
    for kind in PRIMITIVES:
        topic = s.topic(kind)
        c.producer(topic, 1, quietly=True, producer_name="p", schema=schema(kind))
        c.ask("GET_SCHEMA", topic=topic)
        s.call("GET", schemas(topic) + "/schema", keep=("version", "type", "data"))
        c.subscribe(topic, "same", 1, schema=schema(kind))
        c.subscribe(topic, "bytes", 2, schema=schema("None"))
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
        for i in (1, 2):
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=i)


@scenario
def schemas_of_primitive_types_with_data(s):
    c = s.connect()
    for i, kind in enumerate(PRIMITIVES):
        topic = s.topic(kind)
        c.producer(topic, i, producer_name="p", schema=schema(kind, b"data", "name", k="v"))
        c.ask("GET_SCHEMA", topic=topic)


@scenario
def schema_of_key_and_value_over_rest_and_wire(s):
    topic, c = s.topic(), s.connect()
    data = pair(b'"int"', ONE)
    c.producer(topic, 1, producer_name="p", schema=schema("KeyValue", data, "kv", **KEY_VALUE))
    c.ask("GET_SCHEMA", topic=topic)
    s.call("GET", schemas(topic) + "/schema", keep=("version", "type", "properties", "data"))
    inline = KEY_VALUE | {"kv.encoding.type": "INLINE"}
    c.producer(topic, 2, producer_name="q", schema=schema("KeyValue", data, "kv2", **inline))


@scenario
def schema_deleted_and_new_ones_added(s):
    topic, c = s.topic(), s.connect()
    base = schemas(topic)
    c.producer(topic, 1, producer_name="a", schema=schema("Avro", ONE))
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    s.call("DELETE", base + "/schema", keep=True)
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_SCHEMA", topic=topic, schema_version=bytes(8))
    c.producer(topic, 1, producer_name="a", schema=schema("Json", OTHER))
    versions(s, topic)
    for version in (0, 1, 2):
        c.ask("GET_SCHEMA", topic=topic, schema_version=bytes(7) + bytes([version]))
    s.call("DELETE", base + "/schema?force=true", keep=True)
    c.ask("GET_SCHEMA", topic=topic)
    s.call("GET", base + "/schemas", keep=True)


@scenario
def schema_validation_enforced_and_switched_off(s):
    ns = namespace(s)
    topic, c = s.topic(namespace=ns), s.connect()
    c.producer(topic, 1, producer_name="a", schema=schema("Avro", ONE))
    s.http("POST", f"/admin/v2/namespaces/{ns}/schemaValidationEnforced", True)
    c.producer(topic, 2, producer_name="b")
    c.subscribe(topic, "sub", 2)
    c.subscribe(topic, "auto", 3, schema=schema("AutoConsume"))
    c.producer(topic, 4, producer_name="d", schema=schema("None"))
    s.http("POST", rest(topic, "/schemaValidationEnforced"), False)
    s.http("GET", rest(topic, "/schemaValidationEnforced?applied=true"), keep=True)
    c.producer(topic, 5, producer_name="e")
    s.http("POST", f"/admin/v2/namespaces/{ns}/schemaValidationEnforced", False)
    c.producer(topic, 6, producer_name="f")
    figures(s, topic, "end")


@scenario
def schemas_closed_to_clients(s):
    ns = namespace(s)
    topic, c = s.topic(namespace=ns), s.connect()
    s.http("POST", f"/admin/v2/namespaces/{ns}/isAllowAutoUpdateSchema", False)
    c.producer(topic, 1, producer_name="a", schema=schema("Avro", ONE))
    c.subscribe(topic, "sub", 1, schema=schema("Avro", ONE))
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", ONE))
    s.call("POST", schemas(topic) + "/schema", {"type": "AVRO", "schema": ONE.decode(), "properties": {}}, keep=True)
    c.producer(topic, 2, producer_name="b", schema=schema("Avro", ONE))
    c.producer(topic, 3, producer_name="c", schema=schema("Avro", WITH_DEFAULT))
    c.subscribe(topic, "s2", 2, schema=schema("Avro", WITH_DEFAULT))
    s.http("POST", f"/admin/v2/namespaces/{ns}/isAllowAutoUpdateSchema", True)
    c.producer(topic, 4, producer_name="d", schema=schema("Avro", WITH_DEFAULT))
    versions(s, topic)


@scenario
def schema_types_one_after_another_on_a_topic(s):
    topic, c = s.topic(), s.connect()
    kinds = ("Avro", "Json", "String", "None", "Int32", "Protobuf", "AutoConsume", "External")
    for i, kind in enumerate(kinds):
        data = ONE if kind in {"Avro", "Json", "Protobuf", "External"} else b""
        c.producer(topic, i, producer_name=f"p{i}", schema=schema(kind, data))
        c.subscribe(topic, f"s{i}", i, schema=schema(kind, data))
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema(kind, data))
    versions(s, topic)


@scenario
def external_schemas(s):
    topic, c = s.topic(), s.connect()
    for i, (kind, data) in enumerate((("External", b"x"), ("External", b"x"), ("External", b"y"), ("Avro", ONE))):
        c.producer(topic, i, producer_name=f"p{i}", schema=schema(kind, data))
        c.subscribe(topic, f"s{i}", i, schema=schema(kind, data))
    c.ask("GET_SCHEMA", topic=topic)
    c.subscribe(topic, "auto", 9, schema=schema("AutoConsume"))
