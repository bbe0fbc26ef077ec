"""Epochs, fencing, retention, priorities, chunks and compacted reads, several in one topic."""

from harness.consumers import by_type, by_types
from harness.figures import internal_figures
from harness.joining import join as served
from harness.steps import ack, namespace, published, published_batches, rest, stats
from transcript import scenario


def seen(s, c, seconds=0.4):
    """The messages that come until silence; notes each payload and redelivery count, or the type of the frame."""
    frames = [f for f in iter(lambda: c.recv_quietly(seconds), None) if f]
    shown = [
        f"{f.payload.decode('latin-1')} {f.command.redelivery_count}" if f.type == "MESSAGE" else f.type for f in frames
    ]
    s.note("frames", shown)
    return [f for f in frames if f.type == "MESSAGE"]


def short(i):
    return {k: i[k] for k in ("ledgerId", "entryId")}


@by_type
def epochs_beside_partial_acks(s, kind):
    topic = s.topic()
    c = served(s, topic, kind)
    (i,) = published_batches(s, topic, [b"a", b"b", b"c"])
    seen(s, c)
    ack(c, short(i) | {"ack_set": [0b110]})
    for e in (1, 3, 2):
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, consumer_epoch=e)
        for f in iter(lambda: c.recv_quietly(0.4), None):
            s.note("again", [f.type, list(f.command.ack_set), f.command.consumer_epoch])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[short(i)])
    for f in iter(lambda: c.recv_quietly(0.4), None):
        s.note("again", [f.type, list(f.command.ack_set), f.command.redelivery_count])


@scenario
def fencing_producer_beside_deduplication(s):
    topic = s.topic()
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, quietly=True)
    a, b = s.connect("a"), s.connect("b")
    a.producer(topic, 1, producer_name="p", producer_access_mode="Exclusive")
    for n in (0, 1):
        a.publish(1, n)
        a.recv()
    b.producer(topic, 1, producer_name="p", producer_access_mode="ExclusiveWithFencing")
    a.recv(1)
    b.publish(1, 1)
    b.recv()
    b.publish(1, 2)
    b.recv()
    a.publish(1, 3)
    a.recv(1)
    a.producer(topic, 2, producer_name="p", producer_access_mode="Exclusive", topic_epoch=0)
    s.call("PUT", rest(topic, "/unload"))
    b.recv(1)
    s.lookup(topic)
    b.producer(topic, 1, producer_name="p", producer_access_mode="Exclusive", topic_epoch=1)
    b.publish(1, 2)
    b.recv()
    a.producer(topic, 3, producer_name="q", producer_access_mode="ExclusiveWithFencing")


@scenario
def producer_names_taken_beside_epochs(s):
    topic = s.topic()
    a, b = s.connect("a"), s.connect("b")
    a.producer(topic, 1, producer_name="p", user_provided_producer_name=False, epoch=0)
    b.producer(topic, 1, producer_name="p", user_provided_producer_name=False, epoch=1)
    a.recv(1)
    b.producer(topic, 2, producer_name="p", user_provided_producer_name=True, epoch=5)
    b.producer(topic, 1, producer_name="p", user_provided_producer_name=False, epoch=1)
    a.producer(topic, 1, producer_name="p", user_provided_producer_name=False, epoch=2)
    b.recv(1)


@scenario
def retention_beside_subscriptions_that_come_late(s):
    ns = namespace(s, retention={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    topic = s.topic(namespace=ns)
    c = served(s, topic, "Exclusive")
    ids = published(s, topic, 4)
    ack(c, *ids)
    s.call("PUT", rest(topic, "/unload"))
    c.recv(1)
    s.lookup(topic)
    published(s, topic, 2, 10)
    s.call("PUT", rest(topic, "/trim"))
    d = served(s, topic, "Shared", "d", subscription="late")
    seen(s, d)
    s.call("POST", f"/admin/v2/namespaces/{ns}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    s.call("PUT", rest(topic, "/trim"))
    internal_figures(s, topic, "trimmed")
    s.call("POST", rest(topic, "/subscription/late/resetcursor/0"))
    d.recv(1)
    d = served(s, topic, "Shared", "e", subscription="late")
    seen(s, d)


@by_type
def consumers_renamed_and_prioritized(s, kind):
    topic = s.topic()
    a, b, d = s.connect("a"), s.connect("b"), s.connect("d")
    a.subscribe(topic, "sub", 1, 1, subType=kind, consumer_name="z", priority_level=1)
    if kind == "Failover":
        a.recv(3)
    b.subscribe(topic, "sub", 1, 1, subType=kind, consumer_name="z", priority_level=0)
    if kind == "Failover":
        b.recv(3)
        a.recv(0.3)
    d.subscribe(topic, "sub", 1, 1, subType=kind, consumer_name="", priority_level=-1)
    if kind == "Failover":
        d.recv(3)
        b.recv(0.3)
    published(s, topic, 5)
    for c in (a, b, d):
        seen(s, c, 0.3)
    d.close()
    for c in (a, b):
        seen(s, c, 3 if kind == "Failover" else 0.3)


@scenario
def key_shared_sticky_beside_automatic(s):
    topic = s.topic()
    a, b = s.connect("a"), s.connect("b")

    def half(first, last):
        return dict(keySharedMode="STICKY", hashRanges=[dict(start=first, end=last)])

    a.subscribe(topic, "sub", 1, 10, subType="Key_Shared", keySharedMeta=half(0, 32767))
    b.subscribe(topic, "sub", 1, 10, subType="Key_Shared")
    published(s, topic, [b"1", b"2", b"3"], partition_key="k")
    published(s, topic, [b"4", b"5"], 7, partition_key="z")
    seen(s, a)
    b.subscribe(topic, "sub", 2, 10, subType="Key_Shared", keySharedMeta=half(32768, 65535))
    seen(s, b)
    a.close()
    seen(s, b)
    b.subscribe(topic, "sub", 3, 10, subType="Key_Shared", keySharedMeta=half(0, 100))
    seen(s, b)


@by_types("Exclusive", "Failover", "Key_Shared")
def chunks_acknowledged_in_part(s, kind):
    topic = s.topic()
    c = served(s, topic, kind)
    ids = []
    for n in range(3):
        ids += published(
            s,
            topic,
            [b"c%d" % n],
            0,
            uuid="u",
            num_chunks_from_msg=3,
            total_chunk_msg_size=6,
            chunk_id=n,
            partition_key="k",
        )
    seen(s, c)
    ack(c, ids[0], ids[2])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    seen(s, c)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[1]])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    seen(s, c)
    x = stats(s, topic)["subscriptions"]["sub"]
    s.note("stats", {k: x.get(k) for k in ("msgBacklog", "unackedMessages", "msgOutCounter")})


@by_types("Exclusive", "Failover", "Key_Shared")
def seek_with_the_first_chunk(s, kind):
    topic = s.topic()
    c = served(s, topic, kind)
    ids = []
    for n in range(3):
        ids += published(
            s,
            topic,
            [b"c%d" % n],
            0,
            uuid="u",
            num_chunks_from_msg=3,
            total_chunk_msg_size=6,
            chunk_id=n,
            partition_key="k",
        )
    published(s, topic, [b"x"], 9)
    seen(s, c)
    c.ask("SEEK", consumer_id=1, message_id=dict(**short(ids[2]), first_chunk_message_id=short(ids[0])))
    c.recv(1)
    d = served(s, topic, kind, "d")
    seen(s, d)


@by_types("Exclusive", "Failover", "Key_Shared")
def ordering_keys_and_null_keys(s, kind):
    topic = s.topic()
    a, b = served(s, topic, kind, "a"), s.connect("b")
    if kind in ("Shared", "Key_Shared"):
        b = served(s, topic, kind, "b")
    for n, more in enumerate(
        (
            dict(partition_key="k"),
            dict(partition_key="k", ordering_key=b"o"),
            dict(ordering_key=b"k"),
            dict(partition_key="aw==", partition_key_b64_encoded=True),
            dict(null_partition_key=True),
            dict(partition_key=""),
            dict(ordering_key=b""),
            dict(null_value=True, partition_key="k"),
        )
    ):
        published(s, topic, [b"%d" % n], n, **more)
    for c in (a, b):
        seen(s, c)
