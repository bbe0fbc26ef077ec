"""What the Java client's own tests rest on and no other scenario shows."""

from harness.steps import avro, namespace
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
