"""Fields of commands and metadata that few clients set."""

import time

from harness.steps import (
    EARLIEST,
    ack,
    backlog,
    batch,
    compact,
    drained,
    namespace,
    published,
    rest,
    stats,
)
from transcript import scenario

NAMESPACES = "/admin/v2/namespaces/"
KEYS = [dict(key="k", value=b"v", metadata=[dict(key="a", value="b")])]


def properties(**values):
    return [dict(key=key, value=value) for key, value in values.items()]


def new_topic(s, **policies):
    topic = f"persistent://{namespace(s, **policies)}/t"
    s.http("PUT", rest(topic), quietly=True)
    s.lookup(topic)
    return topic


@scenario
def feature_flags_of_newer_clients(s):
    for flag in ("supports_scalable_topics", "supports_tc_metadata_discovery"):
        s.connect(quietly=False, feature_flags={flag: True})
    s.connect(quietly=False, feature_flags={})


@scenario
def lists_and_lookups_with_properties(s):
    """Properties of a request select nothing."""
    ns = namespace(s)
    s.http("PUT", f"/admin/v2/persistent/{ns}/a", {"color": "red"}, quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{ns}/b", quietly=True)
    c = s.connect()
    for given in ([], properties(color="red"), [dict(key="", value="")]):
        for mode in ("ALL", "PERSISTENT", "NON_PERSISTENT"):
            frame = c.ask("GET_TOPICS_OF_NAMESPACE", True, namespace=ns, mode=mode, properties=given)
            s.note(mode, [sorted(frame.command.topics), frame.command.filtered, frame.command.changed])
    for key in ("a", "__isolation"):
        c.ask("LOOKUP", topic=f"persistent://{ns}/a", authoritative=True, properties=properties(**{key: "b"}))


@scenario
def closes_that_name_another_broker(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, quietly=True)
    urls = dict(assignedBrokerServiceUrl="pulsar://x:1", assignedBrokerServiceUrlTls="pulsar+ssl://x:2")
    c.ask("CLOSE_PRODUCER", producer_id=1, **urls)
    c.ask("CLOSE_CONSUMER", consumer_id=1, **urls)
    c.none()
    c.producer(topic, 1, producer_name="p")


@scenario
def sends_of_a_replicator(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, permits=10, quietly=True)
    c.publish(1, 0, b"a", command=dict(message_id=dict(ledgerId=5, entryId=9)))
    c.recv_sorted(2)
    c.publish(1, 1, b"b", command=dict(num_messages=3))
    c.recv_sorted(2)
    for i, m in enumerate(
        ({"replicated_from": "other"}, {"replicate_to": ["standalone", "b"]}, {"replicate_to": ["__local__"]})
    ):
        c.publish(1, 2 + i, b"c", **m)
        c.recv_sorted(2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def encryption_required_while_producers_are_open(s):
    topic = new_topic(s)
    path = NAMESPACES + topic.removeprefix("persistent://").removesuffix("/t") + "/encryptionRequired"
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="plain")
    c.producer(topic, 2, quietly=True, producer_name="claims", encrypted=True)
    c.publish(1, 0)
    c.recv()
    c.publish(2, 0)
    c.recv()
    s.call("POST", path, True)
    s.call("GET", path, keep=True)
    time.sleep(0.7)
    c.none(0.3)
    c.publish(1, 1)
    c.recv()
    c.publish(2, 1)
    c.recv()
    c.publish(2, 2, encryption_keys=KEYS, encryption_algo="AES", encryption_param=b"\x01\x02")
    c.recv()
    c.producer(topic, 3, producer_name="late")
    c.producer(topic, 4, producer_name="late too", encrypted=True)
    c.publish(4, 0, batch(b"i", b"j"), command=dict(num_messages=2), num_messages_in_batch=2, encryption_keys=KEYS)
    c.recv()
    s.call("POST", path, False)
    time.sleep(0.7)
    c.producer(topic, 3, producer_name="late")


@scenario
def chunks_followed_one_by_one(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, quietly=True)
    for i in range(3):
        chunk = dict(uuid="u", chunk_id=i, num_chunks_from_msg=3, total_chunk_msg_size=9)
        c.publish(1, 0, b"abc", command=dict(is_chunk=True), **chunk)
        last = c.recv().message_id
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    whole = last | {"first_chunk_message_id": last | {"entryId": 0}}
    c.ask("SEEK", consumer_id=1, message_id=whole)
    c.recv()
    c.subscribe(topic, permits=10)
    s.note("from the first chunk", [[f.metadata.chunk_id, f.message_id["entryId"]] for f in drained(c)])
    ack(c, whole, quietly=False)
    s.note("backlog", backlog(s, topic))
    s.note("messages", stats(s, topic)["msgInCounter"])


@scenario
def chunks_of_two_messages_on_every_type(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for number, uuid, i in ((0, "u", 0), (1, "v", 0), (1, "v", 1), (0, "u", 1), (2, "w", 0)):
        many = 1 if uuid == "w" else 2
        chunk = dict(uuid=uuid, chunk_id=i, num_chunks_from_msg=many, total_chunk_msg_size=6)
        c.publish(1, number, b"abc", command=dict(is_chunk=True), **chunk)
        c.recv()
    for kind in ("Exclusive", "Failover", "Shared", "Key_Shared"):
        d = s.connect(kind)
        d.subscribe(topic, kind, permits=100, subType=kind, initialPosition="Earliest", quietly=True)
        s.note(kind, [[f.metadata.uuid, f.metadata.chunk_id] for f in drained(d)])


@scenario
def properties_of_subscriptions_through_their_life(s):
    topic = s.topic()

    def show():
        found = stats(s, topic)["subscriptions"]
        s.note("properties", {name: found[name]["subscriptionProperties"] for name in sorted(found)})

    a, b = s.connect(), s.connect()
    a.subscribe(topic, "s", subType="Shared", subscription_properties=properties(x="1"))
    show()
    b.subscribe(topic, "s", subType="Shared", subscription_properties=properties(x="2", y="3"))
    show()
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    b.ask("CLOSE_CONSUMER", consumer_id=1)
    a.subscribe(topic, "s", subType="Shared", subscription_properties=properties(z="9"))
    show()
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    more = dict(durable=False, start_message_id=EARLIEST, subscription_properties=properties(z="9"))
    a.subscribe(topic, "reader", **more)
    show()
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    s.call("PUT", rest(topic, "/subscription/s/properties"), {"w": "1"})
    show()
    s.call("PUT", rest(topic, "/unload"))
    s.lookup(topic)
    c = s.connect()
    c.subscribe(topic, "s", subType="Shared", subscription_properties=properties(k="v"))
    c.subscribe(topic, "twice", 2, subscription_properties=[*properties(a="1"), *properties(a="2")])
    show()


def _epochs(kind, start, epochs):
    def run(s):
        topic = s.topic()
        published(s, topic, 3)
        c = s.connect()
        given = {} if start is None else dict(consumer_epoch=start)
        c.subscribe(topic, permits=1000, quietly=True, subType=kind, initialPosition="Earliest", **given)

        def show():
            s.note(
                "got", [[f.payload.decode(), f.command.consumer_epoch, f.command.redelivery_count] for f in drained(c)]
            )

        show()
        for epoch in epochs:
            given = {} if epoch is None else dict(consumer_epoch=epoch)
            c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, **given)
            show()

    run.__name__ = f"epochs_of_{kind.lower()}_from_{start}_{'_'.join(map(str, epochs))}"
    scenario(run)


for _kind in ("Exclusive", "Shared"):
    for _start in (None, 0, 3):
        _epochs(_kind, _start, (2, 3, 4, 9, 1, None))
    _epochs(_kind, 0, (None, 5, 5, 4, 0))


def _unsubscribing(kind):
    def run(s):
        topic = s.topic(kind)
        a, b = s.connect(), s.connect()
        a.subscribe(topic, "s", subType=kind, quietly=True)
        if kind != "Exclusive":
            b.subscribe(topic, "s", subType=kind, quietly=True)
        for c in (a, b):
            c.recv_quietly(2)
        b.subscribe(topic, "other", 2, quietly=True)
        a.ask("UNSUBSCRIBE", consumer_id=1, force=False)
        a.ask("UNSUBSCRIBE", consumer_id=1, force=True)
        b.none(0.4)
        a.none(0.2)
        s.note("left", sorted(backlog(s, topic)))
        a.ask("UNSUBSCRIBE", consumer_id=1, force=True)
        a.subscribe(topic, "s", subType=kind)

    run.__name__ = f"unsubscribing_with_and_without_force_{kind.lower()}"
    scenario(run)


for _kind in ("Exclusive", "Shared", "Failover", "Key_Shared"):
    _unsubscribing(_kind)


@scenario
def initial_subscriptions_of_producers_under_limits(s):
    topic = new_topic(s)
    ns = topic.removeprefix("persistent://").removesuffix("/t")
    c = s.connect()

    def produce(number, name, place=topic):
        c.producer(place, number, producer_name=f"p{number}", initial_subscription_name=name)
        s.note("subscriptions", backlog(s, topic))

    produce(1, "one")
    published(s, topic, 2)
    for i, name in enumerate(("two", "one", "", "a/b c")):
        produce(2 + i, name)
    s.call("POST", f"{NAMESPACES}{ns}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    time.sleep(0.5)
    produce(6, "three")
    produce(7, "one")
    s.call("POST", f"{NAMESPACES}{ns}/maxSubscriptionsPerTopic", 1)
    s.call("POST", f"{NAMESPACES}{ns}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": True})
    time.sleep(0.5)
    produce(8, "four")
    s.lookup(f"non-persistent://{ns}/n")
    produce(9, "four", f"non-persistent://{ns}/n")
    s.http("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 2, quietly=True)
    s.lookup(f"persistent://{ns}/p-partition-0")
    produce(10, "four", f"persistent://{ns}/p-partition-0")
    s.call("GET", f"/admin/v2/persistent/{ns}/p/subscriptions", keep=True)


@scenario
def highest_sequence_ids_beside_deduplication(s):
    topic = new_topic(s, deduplication=True)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for seq, high in ((0, 4), (2, 3), (4, 4), (5, 3), (3, 9), (9, 9), (10, 12), (11, 20), (13, 0), (12, 2**40)):
        c.publish(1, seq, b"x", command=dict(highest_sequence_id=high, num_messages=2), num_messages_in_batch=1)
        c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def compaction_of_batches_with_removed_messages(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    each = dict(partition_key=["k", "k", "l"], compacted_out=[False, True, False])
    c.publish(1, 0, batch(b"a", b"b", b"c", **each), command=dict(num_messages=3), num_messages_in_batch=3)
    c.recv()
    each = dict(partition_key=["m", "l"], null_value=[False, True])
    c.publish(1, 3, batch(b"d", b"", **each), command=dict(num_messages=2), num_messages_in_batch=2)
    c.recv()
    compact(s, topic)
    for compacted in (True, False):
        d = s.connect()
        d.subscribe(
            topic, f"r{compacted}", permits=10, read_compacted=compacted, initialPosition="Earliest", quietly=True
        )
        d.recv()
        d.recv()
        d.none()
        d.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def compaction_of_odd_keys(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    odd = (
        dict(partition_key="k"),
        dict(partition_key=""),
        dict(partition_key="", null_partition_key=True),
        dict(),
        dict(partition_key="k", null_value=False),
        dict(partition_key="aGk=", partition_key_b64_encoded=True),
        dict(partition_key="hi"),
        dict(ordering_key=b"k"),
        dict(partition_key="gone"),
        dict(partition_key="gone", null_value=True),
    )
    for i, metadata in enumerate(odd):
        c.publish(1, i, b"v%d" % i, **metadata)
        c.recv_quietly()
    c.publish(1, 20, b"", partition_key="k2")
    c.recv_quietly()
    compact(s, topic)
    d = s.connect()
    d.subscribe(topic, permits=100, read_compacted=True, initialPosition="Earliest", quietly=True)
    for frame in drained(d):
        s.log_frame("r", frame)
    s.note("removed", stats(s, topic)["compaction"]["lastCompactionRemovedEventCount"])


@scenario
def metadata_at_the_ends_of_their_ranges(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, permits=10, quietly=True)
    odd = (
        dict(schema_id=b"\x01\x02"),
        dict(schema_version=bytes(8)),
        dict(entry_hash_min=7, entry_hash_max=9),
        dict(uncompressed_size=2**31, compression="ZSTD", event_time=2**63 - 1),
        dict(event_time=0, publish_time=0),
        dict(publish_time=2**64 - 1, deliver_at_time=-5),
    )
    for i, metadata in enumerate(odd):
        c.publish(1, i, b"a", **metadata)
        c.recv_sorted(2)
