"""Each protocol version: which answers, fields and errors a client of that version gets."""

from harness.steps import EARLIEST, ack, avro, namespace, published, published_batches, read, rest
from transcript import scenario

VERSIONS = (0, 5, 9, 11, 12, 13, 15, 17, 18, 19, 20)


def each(s, step):
    for v in VERSIONS:
        s.note("version", v)
        c = s.connect(f"v{v}", protocol_version=v)
        step(c, v)


@scenario
def old_versions_ack_with_request_ids(s):
    topic = s.topic()
    ids = published(s, topic, 2)

    def step(c, v):
        c.subscribe(topic, f"s{v}", permits=5, quietly=True, initialPosition="Earliest")
        read(c, 2)
        c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]], request_id=7)
        c.recv(1)
        c.send("ACK", consumer_id=9, ack_type="Individual", message_id=[ids[0]], request_id=8)
        c.none(0.1)

    each(s, step)


@scenario
def old_versions_producers_with_modes(s):
    def step(c, v):
        topic = s.topic(f"t{v}")
        c.producer(topic, 1, producer_name="p", producer_access_mode="Exclusive")
        c.producer(topic, 2, producer_name="q", producer_access_mode="WaitForExclusive")
        c.publish(1, 0)
        c.recv()

    each(s, step)


@scenario
def old_versions_schemas_of_producers(s):
    ns = namespace(s)

    def step(c, v):
        topic = s.topic(f"t{v}", ns)
        c.producer(topic, 1, producer_name="p", schema={"name": "s", "type": "Avro", "schema_data": avro(("a", "int"))})
        c.producer(
            topic, 2, producer_name="q", schema={"name": "s", "type": "Avro", "schema_data": avro(("a", "string"))}
        )
        c.producer(topic, 3, producer_name="r")
        c.subscribe(topic, "s", 1, schema={"name": "s", "type": "Avro", "schema_data": avro(("a", "string"))})
        c.ask("GET_SCHEMA", topic=topic)
        c.ask(
            "GET_OR_CREATE_SCHEMA",
            topic=topic,
            schema={"name": "s", "type": "Avro", "schema_data": avro(("b", "string"))},
        )

    each(s, step)


@scenario
def old_versions_where_schemas_are_enforced(s):
    ns = namespace(s, schemaValidationEnforced=True)
    topic = s.topic("t", ns)
    s.connect().producer(
        topic, 1, quietly=True, schema={"name": "s", "type": "Avro", "schema_data": avro(("a", "int"))}
    )

    def step(c, v):
        c.producer(topic, 2, producer_name=f"q{v}")
        c.subscribe(topic, f"s{v}", 1)

    each(s, step)


@scenario
def old_versions_ask_for_last_ids(s):
    topic = s.topic()
    published_batches(s, topic, [b"a", b"b"])

    def step(c, v):
        c.subscribe(topic, f"s{v}", quietly=True)
        c.send("GET_LAST_MESSAGE_ID", consumer_id=1, request_id=5)
        c.recv(2)
        d = s.connect(f"x{v}", protocol_version=v)
        d.send("GET_LAST_MESSAGE_ID", consumer_id=1, request_id=5)
        d.recv(2)

    each(s, step)


@scenario
def old_versions_seek(s):
    topic = s.topic()
    ids = published(s, topic, 3)

    def step(c, v):
        c.subscribe(topic, f"s{v}", quietly=True)
        c.ask("SEEK", consumer_id=1, message_id=ids[1])
        c.recv(1)

    each(s, step)


@scenario
def old_versions_lists_and_watchers(s):
    ns = namespace(s)
    s.http("PUT", f"/admin/v2/persistent/{ns}/a", quietly=True)

    def step(c, v):
        f = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns)
        s.note(
            "list", [len(f.command.topics), f.command.filtered, f.command.changed, f.command.HasField("topics_hash")]
        )
        c.send("WATCH_TOPIC_LIST", quietly=True, request_id=5, watcher_id=1, namespace=ns, topics_pattern=".*")
        f = c.recv_quietly(1)
        s.note("watch", f and f.type)

    each(s, step)


@scenario
def old_versions_partitions_and_lookups(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)

    def step(c, v):
        c.ask("PARTITIONED_METADATA", topic=topic)
        c.ask("PARTITIONED_METADATA", topic="persistent://public/none-such/t")
        c.ask("LOOKUP", topic=topic + "-partition-0")
        c.ask("LOOKUP", topic="persistent://public/none-such/t")
        c.ask("LOOKUP", topic="x://public/none-such/t")

    each(s, step)


@scenario
def old_versions_consumers_closed_by_the_broker(s):
    topic = s.topic()
    cs = []

    def step(c, v):
        c.subscribe(topic, f"s{v}", quietly=True)
        c.producer(topic, 1, quietly=True)
        cs.append(c)

    each(s, step)
    s.http("PUT", rest(topic, "/unload"))
    for c in cs:
        c.recv_sorted(2, 1)


@scenario
def old_versions_exclusive_conflicts(s):
    topic = s.topic()
    s.connect().subscribe(topic, "s", quietly=True)
    s.connect().producer(topic, 1, quietly=True, producer_name="q", producer_access_mode="Exclusive")

    def step(c, v):
        c.subscribe(topic, "s", 1)
        c.subscribe(topic, "s", 2, subType="Shared")
        c.producer(topic, 1, producer_name="a")
        c.ask("UNSUBSCRIBE", consumer_id=55)
        c.ask("SEEK", consumer_id=55, message_id=EARLIEST)
        c.ask("CLOSE_CONSUMER", consumer_id=55)
        c.ask("CLOSE_PRODUCER", producer_id=55)

    each(s, step)


@scenario
def old_versions_and_batches_with_ack_sets(s):
    topic = s.topic()
    [b] = published_batches(s, topic, [b"a", b"b", b"c"])

    def step(c, v):
        c.subscribe(topic, f"s{v}", quietly=True, subType="Shared", initialPosition="Earliest", permits=3)
        f = c.recv_quietly(0.4)
        s.note("batch", f and [f.type, f.crc, f.entry_metadata is not None])
        ack(c, b | {"ack_set": [0b110]})
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", quietly=True, consumer_id=1, message_ids=[b])
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=3)
        f = c.recv_quietly(0.4)
        s.note("rest", f and [f.type, list(f.command.ack_set), f.command.redelivery_count])

    each(s, step)


@scenario
def old_versions_and_terminated_topics(s):
    topic = s.topic()
    published(s, topic, 1)
    s.http("POST", rest(topic, "/terminate"), quietly=True)

    def step(c, v):
        c.producer(topic, 1, producer_name="p")
        c.subscribe(topic, f"s{v}", quietly=True, permits=3)
        c.recv(0.5)

    each(s, step)
