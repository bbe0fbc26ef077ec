"""Key_Shared: hash ranges, order of a key while consumers come and go."""

import time

from harness.steps import ack, batch, drained, published, read, rest, setup_connection, texts, told
from transcript import scenario

AUTO = dict(keySharedMode="AUTO_SPLIT")
KEYS = [f"key-{i}" for i in range(30)]


def join(s, topic, name, permits=1000, meta=AUTO, **more):
    c = s.connect(name)
    c.subscribe(
        topic, permits=permits, quietly=True, subType="Key_Shared", consumer_name=name, keySharedMeta=meta, **more
    )
    return c


def sticky(*ranges, **more):
    return dict(keySharedMode="STICKY", hashRanges=[dict(start=a, end=b) for a, b in ranges]) | more


def keyed(s, topic, keys=KEYS, turn=0, field="partition_key"):
    """One message for each key, its payload key and turn; their ids."""
    c = setup_connection(s)
    c.producer(topic, 99, quietly=True, producer_name="p")
    ids = []
    for i, key in enumerate(keys):
        value = key.encode() if field == "ordering_key" else key
        ids += c.publish_all(99, [b"%s/%d" % (key.encode(), turn)], turn * 1000 + i, **{field: value})
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=99)
    return ids


def keys_of(frames):
    return [f.payload.decode().split("/")[0] for f in frames]


@scenario
def sticky_hash_of_known_keys(s):
    """The Murmur3 hash of a key modulo 65536: k1 24618, k2 32712, key1 293, key2 14772, key01 47652, key02 63883."""
    topic = s.topic()
    known = dict(k1=24618, k2=32712, key1=293, key2=14772, key01=47652, key02=63883)
    connections = {key: join(s, topic, key, meta=sticky((value, value))) for key, value in known.items()}
    keyed(s, topic, list(known))
    for key, c in connections.items():
        s.note(key, keys_of(drained(c, 0.3)))


@scenario
def sticky_ranges_meet_at_their_ends(s):
    topic = s.topic()
    a = join(s, topic, "low", meta=sticky((0, 24618)))
    b = join(s, topic, "high", meta=sticky((24619, 65535)))
    keyed(s, topic, ["k1", "k2", "key1", "key01"])
    s.note("low", keys_of(drained(a, 0.4)))
    s.note("high", keys_of(drained(b, 0.4)))


@scenario
def sticky_ranges_that_are_refused(s):
    topic = s.topic()
    a = s.connect()
    base = dict(subType="Key_Shared", consumer_name="n")
    a.subscribe(topic, "sub", 1, keySharedMeta=sticky((0, 100), (200, 300)), **base)
    b = s.connect()
    for i, ranges in enumerate(
        (
            [(100, 150)],
            [(101, 199)],
            [(150, 250)],
            [],
            [(500, 400)],
            [(600, 700), (650, 800)],
            [(65000, 70000)],
            [(-5, -1)],
            [(301, 301)],
        )
    ):
        b.subscribe(topic, "sub", 10 + i, keySharedMeta=sticky(*ranges), **base)


@scenario
def sticky_and_auto_split_do_not_mix(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    base = dict(subType="Key_Shared", consumer_name="n")
    a.subscribe(topic, "auto", 1, keySharedMeta=AUTO, **base)
    b.subscribe(topic, "auto", 1, keySharedMeta=sticky((0, 65535)), **base)
    a.subscribe(topic, "sticky", 2, keySharedMeta=sticky((0, 1000)), **base)
    b.subscribe(topic, "sticky", 2, keySharedMeta=AUTO, **base)
    b.subscribe(topic, "sticky", 3, **base)
    b.subscribe(topic, "auto", 4, **base)
    b.subscribe(topic, "auto", 5, keySharedMeta=AUTO | dict(allowOutOfOrderDelivery=True), **base)


@scenario
def sticky_message_without_an_owner_waits(s):
    topic = s.topic()
    a = join(s, topic, "a", meta=sticky((0, 1000)))
    keyed(s, topic, ["key1", "k1", "key1"])
    s.note("a", keys_of(drained(a)))
    b = join(s, topic, "b", meta=sticky((1001, 65535)))
    s.note("b", keys_of(drained(b)))


@scenario
def ordering_key_goes_before_partition_key(s):
    topic = s.topic()
    a = join(s, topic, "k1", meta=sticky((24618, 24618)))
    b = join(s, topic, "rest", meta=sticky((0, 24617), (24619, 65535)))
    published(s, topic, [b"both"], 0, partition_key="k2", ordering_key=b"k1")
    published(s, topic, [b"order"], 1, ordering_key=b"k1")
    published(s, topic, [b"base64"], 2, partition_key="azE=", partition_key_b64_encoded=True)
    published(s, topic, [b"plain"], 3, partition_key="azE=")
    published(s, topic, [b"key"], 4, partition_key="k1")
    s.note("k1", told(drained(a)))
    s.note("rest", told(drained(b)))


@scenario
def keyless_messages_are_spread(s):
    """The key of such a message is producer name and sequence id."""
    topic = s.topic()
    a, b = join(s, topic, "a", meta=sticky((0, 32767))), join(s, topic, "b", meta=sticky((32768, 65535)))
    published(s, topic, 20)
    s.note("a", told(drained(a)))
    s.note("b", told(drained(b)))


@scenario
def batch_goes_by_the_key_of_its_metadata(s):
    topic = s.topic()
    a = join(s, topic, "k1", meta=sticky((24618, 24618)))
    b = join(s, topic, "rest", meta=sticky((0, 24617), (24619, 65535)))
    c = setup_connection(s)
    c.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    inner = batch(b"x", b"y", partition_key=["k2", "k2"])
    c.publish(1, 0, inner, command=dict(num_messages=2), num_messages_in_batch=2, partition_key="k1")
    c.recv()
    inner = batch(b"x", b"y", partition_key=["k1", "k1"])
    c.publish(1, 2, inner, command=dict(num_messages=2), num_messages_in_batch=2)
    c.recv()
    s.lines = keep
    s.note("k1", [f.metadata.sequence_id for f in drained(a)])
    s.note("rest", [f.metadata.sequence_id for f in drained(b)])


@scenario
def auto_split_by_consumer_name(s):
    """The ring depends on the consumers' names alone, so the consumer of each key is known."""
    topic = s.topic()
    a, b, c = (join(s, topic, name) for name in ("left", "right", "middle"))
    keyed(s, topic)
    for x in (a, b, c):
        s.note(x.name, sorted(keys_of(drained(x, 0.5))))


@scenario
def auto_split_of_equal_names(s):
    topic = s.topic()
    a = join(s, topic, "same")
    b = s.connect("second")
    b.subscribe(topic, permits=1000, quietly=True, subType="Key_Shared", consumer_name="same", keySharedMeta=AUTO)
    keyed(s, topic)
    s.note("first", sorted(keys_of(drained(a, 0.5))))
    s.note("second", sorted(keys_of(drained(b, 0.5))))


@scenario
def auto_split_without_names(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    for c in (a, b):
        c.subscribe(topic, permits=1000, quietly=True, subType="Key_Shared")
    keyed(s, topic)
    got = [keys_of(drained(c, 0.5)) for c in (a, b)]
    s.note("each once", sorted(got[0] + got[1]) == sorted(KEYS))


@scenario
def newcomer_waits_for_keys_that_are_pending(s):
    """A key with unacked messages stays with its old consumer until they are acked."""
    topic = s.topic()
    a = join(s, topic, "left")
    ids = keyed(s, topic)
    first = drained(a)
    s.note("left has all", len(first))
    b = join(s, topic, "right")
    keyed(s, topic, turn=1)
    s.note("left goes on", sorted(keys_of(drained(a, 0.5))))
    s.note("right waits", sorted(keys_of(drained(b, 0.5))))
    ack(a, *ids)
    s.note("right", sorted(keys_of(drained(b, 0.7))))


@scenario
def newcomer_waits_only_for_the_keys_that_moved(s):
    topic = s.topic()
    a = join(s, topic, "left")
    ids = keyed(s, topic, KEYS[:10])
    read(a, 10)
    b = join(s, topic, "right")
    keyed(s, topic, turn=1)
    s.note("left", sorted(keys_of(drained(a, 0.5))))
    s.note("right", sorted(keys_of(drained(b, 0.5))))
    for key, id_ in zip(KEYS[:10], ids, strict=True):
        ack(a, id_)
        if frames := drained(b, 0.2):
            s.note("released by " + key, keys_of(frames))


@scenario
def leaver_hands_its_keys_over(s):
    topic = s.topic()
    a, b = join(s, topic, "left"), join(s, topic, "right")
    keyed(s, topic, KEYS[:12])
    s.note("left", keys_of(drained(a, 0.5)))
    s.note("right", keys_of(drained(b, 0.5)))
    b.ask("CLOSE_CONSUMER", consumer_id=1)
    s.note("left", told(drained(a, 0.7)))


@scenario
def out_of_order_delivery_allowed(s):
    topic = s.topic()
    meta = AUTO | dict(allowOutOfOrderDelivery=True)
    a = join(s, topic, "left", meta=meta)
    keyed(s, topic)
    read(a, 30)
    b = join(s, topic, "right", meta=meta)
    keyed(s, topic, turn=1)
    s.note("left", sorted(keys_of(drained(a, 0.5))))
    s.note("right", sorted(keys_of(drained(b, 0.5))))


@scenario
def slow_consumer_does_not_hold_up_the_others(s):
    topic = s.topic()
    a, b = join(s, topic, "left", permits=1), join(s, topic, "right")
    keyed(s, topic)
    s.note("left", keys_of(drained(a, 0.5)))
    s.note("right", sorted(keys_of(drained(b, 0.5))))
    a.send("FLOW", quietly=True, consumer_id=1, messagePermits=100)
    s.note("left", keys_of(drained(a, 0.5)))


@scenario
def redelivery_on_key_shared_keeps_the_order(s):
    topic = s.topic()
    a = join(s, topic, "left")
    for turn in range(3):
        keyed(s, topic, ["x", "y"], turn)
    frames = read(a, 6)
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[frames[0].message_id, frames[3].message_id])
    s.note("again", told(drained(a)))
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("all", told(drained(a)))


@scenario
def cumulative_ack_on_key_shared_is_ignored(s):
    topic = s.topic()
    a = join(s, topic, "left")
    ids = keyed(s, topic, ["x", "y"])
    read(a, 2)
    a.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[1]])
    a.ask("CONSUMER_STATS", consumer_id=1)
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", told(drained(a)))


@scenario
def exclusive_consumer_with_hash_ranges(s):
    """Entries outside its ranges are skipped and stay in the backlog."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True, keySharedMeta=sticky((0, 30000)))
    keyed(s, topic, ["k1", "k2", "key1", "key01"])
    s.note("seen", keys_of(drained(c)))
    time.sleep(0.2)
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def consumer_with_key_ranges_on_failover(s):
    topic = s.topic()
    c = s.connect()
    ranges = dict(keySharedMode="STICKY", hashRanges=[dict(start=0, end=30000)])
    c.subscribe(topic, permits=10, subType="Failover", consumer_name="n", keySharedMeta=ranges, quietly=True)
    c.recv()
    for i, key in enumerate(("k1", "k2", "key1", "key01")):
        published(s, topic, [key.encode()], i, partition_key=key)
    s.note("came", texts(drained(c)))


@scenario
def sticky_range_is_free_when_its_owner_leaves(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    ranges = dict(keySharedMode="STICKY", hashRanges=[dict(start=0, end=65535)])
    sticky = dict(subType="Key_Shared", keySharedMeta=ranges)
    a.subscribe(topic, permits=10, **sticky)
    published(s, topic, 3, partition_key="k")
    read(a, 3)
    b.subscribe(topic, **sticky)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    b.subscribe(topic, permits=10, **sticky)
    s.note("came", told(drained(b)))


@scenario
def key_shared_mode_changes_when_nobody_is_connected(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, subType="Key_Shared", keySharedMeta=dict(keySharedMode="AUTO_SPLIT"))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    ranges = dict(keySharedMode="STICKY", hashRanges=[dict(start=0, end=65535)])
    c.subscribe(topic, "sub", 1, subType="Key_Shared", keySharedMeta=ranges)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, "sub", 1, subType="Shared")


@scenario
def key_shared_rejoining_under_the_same_name(s):
    """The consumer gets the same keys again."""
    topic = s.topic()
    keys = [f"key-{i}" for i in range(12)]
    connections = {}
    for name in ("left", "right"):
        connections[name] = c = s.connect(name)
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=name, quietly=True)
    for turn in range(2):
        for i, key in enumerate(keys):
            published(s, topic, [key.encode()], turn * 100 + i, partition_key=key)
        for name, c in connections.items():
            frames = drained(c, 0.4)
            s.note(name, sorted(texts(frames)))
            ack(c, *[f.message_id for f in frames])
        if turn == 0:
            connections["right"].ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
            more = dict(subType="Key_Shared", consumer_name="right", quietly=True)
            connections["right"].subscribe(topic, permits=100, **more)


@scenario
def key_shared_newcomer_of_three(s):
    topic = s.topic()
    keys = [f"key-{i}" for i in range(20)]
    connections = []
    for name in ("a", "b", "c", "d"):
        c = s.connect(name)
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=name, quietly=True)
        connections.append(c)
        for i, key in enumerate(keys):
            published(s, topic, [key.encode()], len(connections) * 100 + i, partition_key=key)
        for x in connections:
            frames = drained(x, 0.4)
            s.note(f"{x.name} of {len(connections)}", sorted(texts(frames)))
            ack(x, *[f.message_id for f in frames])


MODES = {
    "sticky": {"keySharedMode": "STICKY", "hashRanges": [{"start": 0, "end": 10}]},
    "in order": {"keySharedMode": "AUTO_SPLIT"},
    "out of order": {"keySharedMode": "AUTO_SPLIT", "allowOutOfOrderDelivery": True},
}


def second_of(s, topic, first, second):
    """The answer to a second consumer of a subscription: type, error and text."""
    c = s.connect()
    c.subscribe(topic, consumer_id=1, quietly=True, **first)
    frame = c.ask("SUBSCRIBE", True, topic=topic, subscription="sub", consumer_id=2, **second)
    c.close()
    return [frame.type, int(frame.command.error), frame.command.message] if frame.type == "ERROR" else [frame.type]


def texts_of_second_consumers(s, domain):
    kinds = ("Exclusive", "Shared", "Failover", "Key_Shared")
    for n, (a, b) in enumerate((a, b) for a in kinds for b in kinds if a != b):
        topic = s.topic(f"t{n}", domain=domain)
        s.note(f"{a}, then {b}", second_of(s, topic, {"subType": a}, {"subType": b}))
    for n, (a, b) in enumerate((a, b) for a in MODES for b in MODES if a != b):
        topic = s.topic(f"k{n}", domain=domain)
        meta = [{"subType": "Key_Shared", "keySharedMeta": MODES[each]} for each in (a, b)]
        s.note(f"{a}, then {b}", second_of(s, topic, *meta))


@scenario
def texts_for_consumers_of_another_type(s):
    texts_of_second_consumers(s, "persistent")


@scenario
def texts_for_consumers_of_another_type_without_storage(s):
    texts_of_second_consumers(s, "non-persistent")


@scenario
def text_for_a_range_that_ends_before_its_start(s):
    meta = {"keySharedMode": "STICKY", "hashRanges": [{"start": 10, "end": 5}]}
    f = s.connect().ask("SUBSCRIBE", True, topic=s.topic(), subscription="s", consumer_id=1, subType="Key_Shared", keySharedMeta=meta)  # fmt: skip
    s.note("text", [f.type, f.command.message])


@scenario
def refused_first_consumers_leave_the_type_of_their_subscription(s):
    topic = s.topic()
    refused = dict(none=[], backwards=[(5, 4)], double=[(0, 5), (5, 9)])
    c = s.connect()
    for i, (name, ranges) in enumerate(refused.items()):
        meta = dict(keySharedMode="STICKY", hashRanges=[dict(start=a, end=b) for a, b in ranges])
        c.subscribe(topic, name, i, subType="Key_Shared", keySharedMeta=meta)
    found = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]
    for name in refused:
        s.note(name, [found[name].get(key) for key in ("type", "keySharedMode", "consumers")])
        c.subscribe(topic, name, 9, subType="Exclusive")
        c.ask("CLOSE_CONSUMER", consumer_id=9)
