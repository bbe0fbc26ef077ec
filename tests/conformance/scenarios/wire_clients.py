"""Whole conversations as the official clients have them, with every field that they set."""

import time

from harness.steps import EARLIEST, avro, drained, namespace, published, published_batches, read, rest, texts
from transcript import scenario

JAVA = dict(
    client_version="Pulsar-Java-v4.2.4",
    auth_method_name="none",
    protocol_version=21,
    feature_flags=dict(supports_auth_refresh=True, supports_broker_entry_metadata=True, supports_partial_producer=True),
)
CPP = dict(
    client_version="Pulsar-CPP-v4.0.0",
    protocol_version=21,
    feature_flags=dict(supports_auth_refresh=True, supports_broker_entry_metadata=True),
)
JAVA_SUBSCRIBE = dict(
    consumer_name="f1b2c",
    priority_level=0,
    durable=True,
    read_compacted=False,
    initialPosition="Latest",
    replicate_subscription_state=False,
    force_topic_creation=True,
    consumer_epoch=0,
)
JAVA_PRODUCER = dict(
    encrypted=False,
    epoch=0,
    user_provided_producer_name=False,
    producer_access_mode="Shared",
    txn_enabled=False,
)


@scenario
def java_producer_and_consumer(s):
    topic = s.topic()
    c = s.connect(quietly=False, **JAVA)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.subscribe(topic, "sub", 0, **({"subType": "Exclusive"} | JAVA_SUBSCRIBE))
    c.send("FLOW", consumer_id=0, messagePermits=1000)
    c.producer(topic, 0, **JAVA_PRODUCER)
    c.publish(0, 0, b"hello", command=dict(num_messages=1), uncompressed_size=5)
    c.recv_sorted(2)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=0, consumer_epoch=1)
    c.recv()
    c.ask("UNSUBSCRIBE", consumer_id=0, force=False)
    c.ask("CLOSE_PRODUCER", producer_id=0)


@scenario
def java_consumer_epoch_zero_by_type(s):
    """The epoch of zero that the Java client always sends."""
    topic = s.topic()
    for kind in "Exclusive", "Shared", "Failover", "Key_Shared":
        c = s.connect(kind, **JAVA)
        c.subscribe(topic, kind, 1, quietly=True, **(JAVA_SUBSCRIBE | {"subType": kind, "permits": 10}))
        if kind == "Failover":
            c.recv_quietly()
    published(s, topic, 1)
    for c in s.connections:
        if c.name[0].isupper():
            c.recv()


@scenario
def java_shared_consumer_with_acks_in_groups(s):
    topic = s.topic()
    c = s.connect(**JAVA)
    c.subscribe(topic, "sub", 0, **(JAVA_SUBSCRIBE | {"subType": "Shared", "permits": 1000}))
    ids = published(s, topic, 5)
    read(c, 5)
    c.send("ACK", consumer_id=0, ack_type="Individual", message_id=[i | dict(partition=-1) for i in ids[:3]])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=0, message_ids=[i | dict(partition=-1) for i in ids[3:]])
    c.recv()
    c.recv()
    c.send("ACK", consumer_id=0, ack_type="Individual", message_id=ids[3:])
    c.ask("CLOSE_CONSUMER", consumer_id=0)


@scenario
def java_reader_asks_whether_there_is_more(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect(**JAVA)
    start = EARLIEST | dict(partition=-1, batch_index=-1)
    more = JAVA_SUBSCRIBE | dict(durable=False, start_message_id=start, start_message_rollback_duration_sec=0)
    c.subscribe(topic, "reader-0a1b2c3d4e", 0, subType="Exclusive", **more)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=0)
    c.send("FLOW", consumer_id=0, messagePermits=1000)
    frames = read(c, 2)
    s.note("came", texts(frames))
    c.send("ACK", consumer_id=0, ack_type="Cumulative", message_id=[frames[0].message_id])
    c.ask("SEEK", consumer_id=0, message_id=start)
    c.subscribe(topic, "reader-0a1b2c3d4e", 0, subType="Exclusive", **more)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=0)


@scenario
def java_pattern_consumer(s):
    ns = namespace(s)
    topics = [f"persistent://{ns}/in-{i}" for i in range(2)]
    for topic in topics:
        s.lookup(topic)
        s.http("PUT", rest(topic), quietly=True)
    c = s.connect(**JAVA)
    pattern = ".*/in-.*"
    found = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT", topics_pattern=pattern)
    s.note("found", [sorted(found.command.topics), found.command.filtered])
    for i, topic in enumerate(sorted(found.command.topics)):
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
        c.subscribe(topic, "sub", i, **(JAVA_SUBSCRIBE | {"subType": "Exclusive", "permits": 10}))
    watch = dict(watcher_id=0, namespace=ns, topics_pattern=pattern, topics_hash=found.command.topics_hash)
    frame = c.ask("WATCH_TOPIC_LIST", quietly=True, **watch)
    s.note("watching", [frame.type, list(frame.command.topic)])
    s.http("PUT", f"/admin/v2/persistent/{ns}/in-2", quietly=True)
    frame = c.recv_quietly()
    s.note("new", list(frame.command.new_topics))


@scenario
def java_typed_producer_and_consumer(s):
    topic = s.topic()
    c = s.connect(**JAVA)
    schema = dict(name="R", type="Avro", schema_data=avro(("a", "int")))
    frame = c.producer(topic, 0, schema=schema, **JAVA_PRODUCER)
    c.subscribe(topic, "sub", 0, schema=schema, **(JAVA_SUBSCRIBE | {"subType": "Exclusive", "permits": 10}))
    c.publish(0, 0, b"\x02", schema_version=frame.command.schema_version)
    c.recv_sorted(2)
    c.ask("GET_SCHEMA", topic=topic, schema_version=frame.command.schema_version)


@scenario
def java_auto_produce(s):
    """AUTO_PRODUCE asks for the schema first and then registers with it."""
    topic = s.topic()
    c = s.connect(**JAVA)
    c.ask("GET_SCHEMA", topic=topic)
    schema = dict(name="R", type="Json", schema_data=avro(("a", "int")))
    c.producer(topic, 0, schema=schema, **JAVA_PRODUCER)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema)
    c.producer(topic, 1, schema=schema, **JAVA_PRODUCER)


@scenario
def cpp_producer_and_consumer(s):
    topic = s.topic()
    s.keep_pong = True
    c = s.connect(quietly=False, **CPP)
    c.send("PING")
    c.recv()
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.ask("LOOKUP", topic=topic, authoritative=False, advertised_listener_name="")
    c.producer(topic, 0, encrypted=False, epoch=0, user_provided_producer_name=False, producer_access_mode="Shared")
    more = dict(durable=True, read_compacted=False, initialPosition="Earliest", consumer_name="abcde", priority_level=0)
    c.subscribe(topic, "sub", 0, subType="Shared", replicate_subscription_state=False, **more)
    c.send("FLOW", consumer_id=0, messagePermits=1000)
    c.publish(0, 0, b"hello", command=dict(num_messages=1), uncompressed_size=5)
    c.recv_sorted(2)
    c.ask("CONSUMER_STATS", consumer_id=0)
    c.ask("CLOSE_CONSUMER", consumer_id=0)
    c.ask("CLOSE_PRODUCER", producer_id=0)


@scenario
def cpp_partitioned_producer_and_consumer(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    c = s.connect(**CPP)
    n = c.ask("PARTITIONED_METADATA", topic=topic).command.partitions
    for i in range(n):
        c.ask("LOOKUP", topic=f"{topic}-partition-{i}", authoritative=False)
        c.producer(f"{topic}-partition-{i}", i, producer_name="shared-name")
        c.subscribe(f"{topic}-partition-{i}", "sub", i, subType="Exclusive", permits=333)
    for i in range(n):
        c.publish(i, 0, b"%d" % i)
        c.recv_sorted(2)


@scenario
def cpp_chunked_producer(s):
    topic = s.topic()
    c = s.connect(**CPP)
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 0, quietly=True, producer_name="p")
    for i in range(2):
        more = dict(uuid="p-5", chunk_id=i, num_chunks_from_msg=2, total_chunk_msg_size=10)
        c.publish(0, 5, b"chunk", command=dict(is_chunk=True, num_messages=1), **more)
        c.recv_sorted(2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def go_consumer_with_batch_acks(s):
    topic = s.topic()
    c = s.connect(client_version="Pulsar Go v0.15.0", protocol_version=18)
    c.subscribe(topic, "sub", 1, subType="Shared", permits=1000, initialPosition="Latest")
    (first,) = published_batches(s, topic, [b"a", b"b", b"c"])
    c.recv()
    for bits in (0b110, 0b100):
        id_ = first | dict(partition=-1, batch_index=0, ack_set=[bits], batch_size=3)
        c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[id_])
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[first | dict(partition=-1)])


@scenario
def client_of_long_ago(s):
    """Protocol version 6: no feature flags, sends with checksum, shared subscription."""
    topic = s.topic()
    c = s.connect(quietly=False, client_version="Pulsar Client 1.15", protocol_version=6, feature_flags={})
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.ask("LOOKUP", topic=topic)
    c.subscribe(topic, subType="Shared", permits=10)
    c.producer(topic, 1)
    c.publish(1, 0)
    c.recv_sorted(2)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.recv()
    c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def client_that_reconnects_everything(s):
    """After a lost connection: same producer with the next epoch, same consumer; unacknowledged messages come again."""
    topic = s.topic()
    a = s.connect(**JAVA)
    a.subscribe(topic, "sub", 0, quietly=True, **(JAVA_SUBSCRIBE | {"subType": "Shared", "permits": 10}))
    name = a.producer(topic, 0, quietly=True, **JAVA_PRODUCER).command.producer_name
    a.publish_all(0, [], 0)
    ids = published(s, topic, 3)
    read(a, 3)
    a.ask("ACK", quietly=True, consumer_id=0, ack_type="Individual", message_id=[ids[1]])
    a.close()
    time.sleep(0.3)
    b = s.connect(**JAVA)
    frame = b.producer(topic, 0, quietly=True, producer_name=name, **(JAVA_PRODUCER | dict(epoch=1)))
    s.note("its name again", frame.command.producer_name == name)
    b.subscribe(topic, "sub", 0, quietly=True, **(JAVA_SUBSCRIBE | {"subType": "Shared", "permits": 10}))
    s.note("came", texts(drained(b)))
