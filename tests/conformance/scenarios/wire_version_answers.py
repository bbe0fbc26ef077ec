"""The answers to requests and refusals for a peer of each protocol version."""

from harness.steps import EARLIEST, avro, batch, drained, namespace, now_ms, published, published_batches, rest, schema
from transcript import scenario

VERSIONS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)


def per_version(function):
    for version in VERSIONS:

        def run(s, version=version):
            function(s, version)

        run.__name__ = f"{function.__name__}_v{version}"
        scenario(run)


@per_version
def refusals_for_a_peer(s, version):
    """Errors that newer versions have names for."""
    ns = namespace(s, maxProducersPerTopic=1, maxConsumersPerTopic=1)
    topic, ended = s.topic(namespace=ns), s.topic("ended")
    published(s, ended, 1)
    s.http("POST", rest(ended, "/terminate"), quietly=True)
    c = s.connect(protocol_version=version, feature_flags={}, quietly=False)
    c.producer(topic, 1, producer_name="p")
    c.producer(topic, 2, producer_name="p")
    c.producer(topic, 3, producer_name="q")
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "sub", 2)
    c.producer(ended, 4, producer_name="p")
    c.producer("persistent://public/none/x", 5)
    c.producer("bad topic://", 6)
    c.subscribe(ended, "x", 9, force_topic_creation=False)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=77)
    c.ask("UNSUBSCRIBE", consumer_id=77)
    c.ask("SEEK", consumer_id=77, message_id=EARLIEST)
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("PARTITIONED_METADATA", topic="persistent://public/none/x")
    c.ask("LOOKUP", topic="persistent://public/none/x", authoritative=False)
    c.ask("GET_TOPICS_OF_NAMESPACE", namespace="public/none")
    c.ask("CONSUMER_STATS", consumer_id=77)


@per_version
def messages_for_a_peer(s, version):
    """Deliveries of each kind, acknowledgements with answers, and redelivery."""
    topic = s.topic()
    c = s.connect(protocol_version=version, feature_flags=dict(supports_broker_entry_metadata=True))
    c.subscribe(topic, "sub", 1, 100, subType="Shared", consumer_name="n")
    published(s, topic, 1, event_time=7, properties=[dict(key="k", value="v")])
    (batched,) = published_batches(s, topic, [b"a", b"b"])
    for _ in range(2):
        c.recv(3)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[batched | dict(ack_set=[1])], request_id=500)
    c.recv(0.5)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    for _ in range(2):
        c.recv(3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv(2)


@per_version
def producers_of_a_peer(s, version):
    """Access modes, schemas, epochs and encrypted producers."""
    topic = s.topic()
    c = s.connect(protocol_version=version, feature_flags={})
    c.producer(topic, 1, producer_name="a", schema=schema("Avro", avro(("a", "int"))))
    c.publish(1, 0)
    c.recv()
    c.publish(1, 1, batch(b"a", b"b"), dict(num_messages=2, highest_sequence_id=2), num_messages_in_batch=2)
    c.recv()
    c.publish(1, 3, crc=False)
    c.recv(1)
    c.publish(1, 4, bad_crc=True)
    c.recv(1)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="b")
    c.producer(topic, 3, producer_name="c", producer_access_mode="Exclusive")
    c.ask("CLOSE_PRODUCER", producer_id=2)
    c.producer(topic, 4, producer_name="d", producer_access_mode="Exclusive", topic_epoch=5)
    c.producer(topic, 5, producer_name="e", producer_access_mode="ExclusiveWithFencing", topic_epoch=9)
    while c.recv(0.4):
        pass
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema("Avro", avro(("a", "int"))))


@per_version
def consumers_of_a_peer(s, version):
    """Failover and Key_Shared consumers, delays, ends of topics."""
    topic = s.topic()
    c = s.connect(protocol_version=version, feature_flags={})
    c.subscribe(topic, "f", 1, 10, subType="Failover", consumer_name="n")
    c.recv(1.5)
    c.subscribe(topic, "k", 2, 10, subType="Key_Shared", consumer_name="n")
    published(s, topic, 1, partition_key="k", deliver_at_time=now_ms(-5))
    s.note("came", len(drained(c, 0.5)))
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.send("ACK", quietly=True, consumer_id=1, ack_type="Cumulative", message_id=[EARLIEST])
    while c.recv(0.6):
        pass
    s.http("DELETE", rest(topic, "?force=true"), quietly=True)
    while c.recv(0.6):
        pass
