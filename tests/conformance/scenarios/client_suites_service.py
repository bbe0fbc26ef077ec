"""Behaviour that the tests of Apache Pulsar's service package rely on and no other scenario shows."""

from harness.steps import avro, namespace, published_batches, rest
from transcript import scenario


@scenario
def reset_to_a_message_of_a_batch(s):
    """A batch index, with `excluded` behind it, selects the next message of the batch."""
    topic = s.topic()
    ids = published_batches(s, topic, [b"a0", b"a1", b"a2"], [b"b0", b"b1"])
    s.http("PUT", rest(topic, "/subscription/sub"), "latest", quietly=True)
    first = dict(ids[0], partitionIndex=-1)
    for body in (
        {"batchIndex": 0},
        {"batchIndex": 1},
        {"batchIndex": 0, "excluded": True},
        {"batchIndex": 1, "excluded": True},
        {"batchIndex": 2, "excluded": True},
        {"batchIndex": 7},
        {"batchIndex": -1, "excluded": True},
    ):
        s.call("POST", rest(topic, "/subscription/sub/resetcursor"), first | body)
        c = s.connect("c")
        c.subscribe(topic, "sub", 1, 100, quietly=True, subType="Shared")
        s.note(str(body), [*up_to_the_last(c)])
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


def up_to_the_last(c):
    """Entry and ack set of each message up to the second batch."""
    entry = None
    while entry != 1 and (frame := c.recv_quietly(5)) is not None:
        entry = frame.command.message_id.entryId
        yield entry, list(frame.command.ack_set)


@scenario
def words_of_a_refused_schema(s):
    """Applications search for them in the errors of producers and consumers."""
    ns, c = namespace(s, schemaCompatibilityStrategy="FULL"), s.connect()
    topic, other = f"persistent://{ns}/a", f"persistent://{ns}/b"
    for name in (topic, other):
        s.lookup(name)
    schemas = {
        "first": {"name": "s", "type": "Avro", "schema_data": avro(("a", "int"))},
        "second": {"name": "s", "type": "Avro", "schema_data": avro(("a", "string"))},
        "local date": {"name": "s", "type": "LocalDate", "schema_data": b""},
    }
    c.producer(topic, 1, schema=schemas["first"], quietly=True)
    c.producer(other, 2, producer_name="p", quietly=True)
    for number, (name, schema) in enumerate(schemas.items()):
        s.note(f"producer, {name}", said(c.producer(topic, 10 + number, producer_name=name, schema=schema)))
        s.note(f"consumer, {name}", said(c.subscribe(topic, name, 20 + number, schema=schema)))
        s.note(f"consumer without a schema before, {name}", said(c.subscribe(other, name, 30 + number, schema=schema)))


def said(frame):
    """The text without the place of its origin."""
    return getattr(frame.command, "message", "")
