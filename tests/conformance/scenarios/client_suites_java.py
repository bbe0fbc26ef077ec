"""Behaviour that the Java client's own tests rely on and no other scenario shows."""

from harness.steps import avro, namespace, rest
from transcript import scenario


@scenario
def messages_without_a_schema_where_schemas_are_enforced(s):
    """GET_OR_CREATE_SCHEMA of none, which a client sends for a message of plain bytes, is refused like a producer."""
    ns, c = namespace(s, schemaValidationEnforced=True), s.connect()
    with_one, without = f"persistent://{ns}/a", f"persistent://{ns}/b"
    schema = {"name": "s", "type": "Avro", "schema_data": avro(("a", "int"))}
    none = {"name": "", "type": "None", "schema_data": b""}
    for topic in (with_one, without):
        s.lookup(topic)
    c.producer(with_one, 1, producer_name="a", schema=schema)
    c.producer(without, 2, producer_name="b")
    for topic in (with_one, without):
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=none)
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema)
        c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=none)
    c.producer(with_one, 3, producer_name="c")


@scenario
def patterns_with_something_before_the_scheme(s):
    """The Java client asks for the partitions of a topic by `^persistent://.../topic$`."""
    ns, c = namespace(s), s.connect()
    for n, name in enumerate(("a", "ab", "b")):
        s.lookup(f"persistent://{ns}/{name}")
        c.producer(f"persistent://{ns}/{name}", n, producer_name=name, quietly=True)
    for pattern in (
        "^persistent://.*/a$",
        "^persistent://.*/a",
        "(?i)persistent://.*/AB?",
        "^non-persistent://.*/a.*$",
    ):
        found = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT", topics_pattern=pattern)
        s.note(pattern, sorted(name.rpartition("/")[2] for name in found.command.topics))


@scenario
def cursor_of_a_reader_is_open(s):
    """Internal statistics tell no state but this of a cursor that is not stored."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "reader", 1, durable=False)
    _, shown = s.http("GET", rest(topic, "/internalStats"), quietly=True)
    s.note("state", shown["cursors"]["reader"]["state"])


@scenario
def administrators_with_white_space(s):
    """The names of TenantTest, and other characters that count as white space."""
    path = f"/admin/v2/tenants/{s.tag}"
    for roles in ([" a"], ["a", "b "], ["\t"], ["\x01a"], [""], ["\u00a0a"], ["a\u2003"]):
        s.call("PUT", path, {"adminRoles": roles, "allowedClusters": ["standalone"]})
        s.call("POST", path, {"adminRoles": roles, "allowedClusters": ["standalone"]})
        s.call("GET", path, keep=True)
        s.http("DELETE", path, quietly=True)


@scenario
def load_manager_that_is_none(s):
    """The only setting whose text is checked before the change."""
    path = "/admin/v2/brokers/configuration/loadManagerClassName"
    s.call("POST", path + "/org.apache.pulsar.invalid.loadmanager")
    s.call("POST", path + "/org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl")
    s.call("DELETE", path)
    s.call("DELETE", path)


@scenario
def compatibility_by_the_older_policy(s):
    """schemaAutoUpdateCompatibilityStrategy counts where the namespace has no schemaCompatibilityStrategy."""
    ns, c = namespace(s), s.connect()
    path = f"/admin/v2/namespaces/{ns}"
    schemas = [avro(*fields) for fields in ([("a", "int")], [("a", "int"), ("b", "int")], [], [("a", "string")])]
    for number, policy in enumerate(("Backward", "Forward", "Full", "AlwaysCompatible", "AutoUpdateDisabled")):
        s.call("PUT", path + "/schemaAutoUpdateCompatibilityStrategy", policy)
        s.call("GET", path + "/schemaCompatibilityStrategy", keep=True)
        topic = f"persistent://{ns}/{policy}"
        s.lookup(topic)
        for n, definition in enumerate(schemas):
            schema = {"name": "s", "type": "Avro", "schema_data": definition}
            c.producer(topic, 10 * number + n, producer_name=f"p{n}", schema=schema)
    s.call("GET", rest(topic, "/schemaCompatibilityStrategy?applied=true"), keep=True)
    s.call("PUT", path + "/schemaCompatibilityStrategy", "FORWARD")
    s.call("GET", path + "/schemaCompatibilityStrategy", keep=True)
    s.call("GET", rest(topic, "/schemaCompatibilityStrategy?applied=true"), keep=True)


@scenario
def text_of_a_refused_schema(s):
    """A producer's refusal names the exception, a consumer's does not."""
    c, topic, name = s.connect(), s.topic(), "IncompatibleSchemaException"
    c.producer(topic, 1, schema={"name": "s", "type": "Avro", "schema_data": avro(("a", "int"))}, quietly=True)
    wrong = {"name": "s", "type": "String", "schema_data": b""}
    for kind, frame in (
        ("producer", c.producer(topic, 2, producer_name="b", schema=wrong)),
        ("consumer", c.subscribe(topic, "sub", 3, schema=wrong)),
        ("schema", c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=wrong)),
    ):
        command = frame.command
        s.note(kind, name in (command.error_message if kind == "schema" else command.message))


@scenario
def system_topics_beside_a_limit_of_topics(s):
    """maxTopicsPerNamespace neither counts nor refuses the topics of policies and of transactions."""
    ns, c = namespace(s, maxTopicsPerNamespace=2), s.connect()
    path = f"/admin/v2/persistent/{ns}"
    s.call("PUT", path + "/__change_events/partitions", 3)
    s.call("PUT", path + "/a")
    s.call("PUT", path + "/__transaction_buffer_snapshot")
    s.call("PUT", path + "/b/partitions", 1)
    s.call("PUT", path + "/c")
    s.call("PUT", path + "/d/partitions", 1)
    s.call("PUT", path + "/a/partitions", 1)
    s.call("PUT", path + "/__transaction_buffer_snapshot_indexes/partitions", 2)
    s.call("PUT", path + "/__change_events/partitions", 3)
    topic = f"persistent://{ns}/e"
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p")


@scenario
def partitions_by_their_hash(s):
    """The statistics list partitions in the order of a Java hash table, which the admin client keeps."""
    names = ["pub", "sub", "orders", "payments-of-2026"]
    for name in names:
        topic = f"persistent://public/default/by-hash-{name}"
        s.http("PUT", rest(topic, "/partitions"), 15, quietly=True)
        for path in ("/partitioned-internalStats", "/partitioned-stats"):
            _, shown = s.http("GET", rest(topic, path), quietly=True)
            s.note(path, [part.rpartition("-")[2] for part in shown["partitions"]])
        s.http("DELETE", rest(topic, "/partitions"), quietly=True)
