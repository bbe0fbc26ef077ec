"""The messages of each of several consumers while they come, go, stall and give back: Key_Shared, Failover, Shared, readers."""

import time

from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    drained,
    namespace,
    published,
    published_batches,
    read,
    rest,
    setup_connection,
    stats,
    texts,
)
from transcript import scenario

AUTO = dict(keySharedMode="AUTO_SPLIT")
ANY_ORDER = AUTO | dict(allowOutOfOrderDelivery=True)
KEYS = [f"key-{i}" for i in range(12)]
POLICIES = dict(in_order=AUTO, in_any_order=ANY_ORDER)


def sticky(*ranges, **more):
    return dict(keySharedMode="STICKY", hashRanges=[dict(start=a, end=b) for a, b in ranges]) | more


def by_policy(function):
    """One scenario for each of the two ways to split keys."""
    for name, meta in POLICIES.items():

        def run(s, meta=meta):
            function(s, meta)

        run.__name__ = f"{function.__name__}_{name}"
        scenario(run)
    return function


def by_partition(function):
    """One scenario for each of three partitions: the active consumer is chosen by the number."""
    for number in range(3):

        def run(s, number=number):
            topic = s.topic("p")
            s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
            s.lookup(f"{topic}-partition-{number}")
            function(s, f"{topic}-partition-{number}")

        run.__name__ = f"{function.__name__}_{number}"
        scenario(run)
    return function


def join(s, topic, name, permits=1000, meta=AUTO, **more):
    c = s.connect(name)
    kind = dict(subType="Key_Shared", keySharedMeta=meta) if meta else {}
    c.subscribe(topic, permits=permits, quietly=True, consumer_name=name, **(kind | more))
    return c


def keyed(s, topic, keys=KEYS, turn=0, size=1):
    """One entry for each key, of `size` messages; their ids."""
    c = setup_connection(s)
    c.producer(topic, 99, quietly=True, producer_name="p")
    ids, at = [], turn * 1000
    for key in keys:
        if size == 1:
            ids += c.publish_all(99, [b"%s/%d" % (key.encode(), turn)], at, partition_key=key)
        at += size
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=99)
    return ids


def got(s, *connections, seconds=0.5):
    """The messages of each consumer, by key and turn, with their redelivery counts."""
    for c in connections:
        frames = drained(c, seconds)
        s.note(c.name, [[f.payload.decode("latin-1"), f.command.redelivery_count] for f in frames])
        c.had = [*getattr(c, "had", []), *frames]


def ids_of(c):
    return [f.message_id for f in c.had]


@by_policy
def newcomer_that_leaves_before_it_got_anything(s, meta):
    topic = s.topic()
    a = join(s, topic, "left", meta=meta)
    keyed(s, topic)
    got(s, a)
    b = join(s, topic, "right", meta=meta)
    keyed(s, topic, turn=1)
    got(s, a, b)
    b.ask("CLOSE_CONSUMER", consumer_id=1)
    got(s, a)
    ack(a, *ids_of(a))
    got(s, a)


@by_policy
def newcomer_without_permits_takes_its_keys(s, meta):
    topic = s.topic()
    a = join(s, topic, "left", meta=meta)
    keyed(s, topic)
    got(s, a)
    ack(a, *ids_of(a))
    b = join(s, topic, "right", permits=0, meta=meta)
    keyed(s, topic, turn=1)
    got(s, a, b)
    b.send("FLOW", consumer_id=1, messagePermits=2)
    got(s, b)
    b.close()
    got(s, a, seconds=1)


@by_policy
def owner_gives_back_while_a_newcomer_waits(s, meta):
    topic = s.topic()
    a = join(s, topic, "left", meta=meta)
    keyed(s, topic)
    got(s, a)
    b = join(s, topic, "right", meta=meta)
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    got(s, a, b, seconds=0.7)
    keyed(s, topic, turn=1)
    got(s, a, b)


@by_policy
def three_come_and_the_first_goes(s, meta):
    topic = s.topic()
    a, b, c = (join(s, topic, name, meta=meta) for name in ("one", "two", "three"))
    keyed(s, topic)
    for x in (a, b, c):
        got(s, x)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    for x in (b, c):
        got(s, x)
    keyed(s, topic, turn=1)
    for x in (b, c):
        got(s, x)


@by_policy
def keys_of_a_batch_pending_in_part(s, meta):
    """A key is free only when the whole batch is acknowledged."""
    topic = s.topic()
    a = join(s, topic, "left", meta=meta)
    ids = [published_batches(s, topic, [b"x"] * 3, partition_key=key)[0] for key in KEYS[:4]]
    read(a, 4)
    b = join(s, topic, "right", meta=meta)
    for key in KEYS[:4]:
        published_batches(s, topic, [b"y"] * 2, partition_key=key)
    frames = {c.name: [f.metadata.partition_key for f in drained(c)] for c in (a, b)}
    s.note("before", frames)
    ack(a, *[id_ | dict(ack_set=[0b110], batch_size=3) for id_ in ids])
    s.note("in part", {c.name: [f.metadata.partition_key for f in drained(c)] for c in (a, b)})
    ack(a, *ids)
    s.note("all", {c.name: [f.metadata.partition_key for f in drained(c)] for c in (a, b)})


@by_policy
def pending_keys_acknowledged_by_the_newcomer(s, meta):
    topic = s.topic()
    a = join(s, topic, "left", meta=meta)
    ids = keyed(s, topic)
    got(s, a)
    b = join(s, topic, "right", meta=meta)
    keyed(s, topic, turn=1)
    got(s, a, b)
    ack(b, *ids)
    got(s, a, b)


@by_policy
def pending_keys_skipped_by_an_administrator(s, meta):
    topic = s.topic()
    a = join(s, topic, "left", meta=meta)
    keyed(s, topic)
    got(s, a)
    b = join(s, topic, "right", meta=meta)
    keyed(s, topic, turn=1)
    got(s, a, b)
    s.call("POST", rest(topic, "/subscription/sub/skip_all"))
    got(s, a, b)
    keyed(s, topic, turn=2)
    got(s, a, b)


@by_policy
def few_permits_among_many_keys(s, meta):
    topic = s.topic()
    a, b = join(s, topic, "left", 3, meta), join(s, topic, "right", 2, meta)
    keyed(s, topic)
    keyed(s, topic, turn=1)
    got(s, a, b)
    for c in (b, a, b):
        c.send("FLOW", consumer_id=1, messagePermits=4)
        got(s, a, b)


@by_policy
def unacked_limits_among_keys(s, meta):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=4))
    a, b = join(s, topic, "left", meta=meta), join(s, topic, "right", meta=meta)
    keyed(s, topic)
    got(s, a, b)
    ack(a, *ids_of(a)[:3])
    got(s, a, b)
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    got(s, a, b)


@by_policy
def keys_after_a_seek(s, meta):
    topic = s.topic()
    a, b = join(s, topic, "left", meta=meta), join(s, topic, "right", meta=meta)
    ids = keyed(s, topic)
    got(s, a, b)
    a.ask("SEEK", consumer_id=1, message_id=ids[6])
    b.recv()
    for c in (b, a):
        c.subscribe(topic, quietly=True, subType="Key_Shared", consumer_name=c.name, keySharedMeta=meta)
    for c in (a, b):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=100)
        got(s, c)


@by_policy
def policies_that_do_not_go_together(s, meta):
    topic = s.topic()
    a = s.connect()
    a.subscribe(topic, "sub", 1, subType="Key_Shared", keySharedMeta=meta)
    b = s.connect()
    others = (None, AUTO, ANY_ORDER, sticky((0, 100)), sticky((0, 100), allowOutOfOrderDelivery=True), sticky())
    for i, other in enumerate(others):
        more = {} if other is None else dict(keySharedMeta=other)
        b.subscribe(topic, "sub", 10 + i, subType="Key_Shared", **more)
        b.ask("CLOSE_CONSUMER", consumer_id=10 + i)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    for i, other in enumerate(others):
        more = {} if other is None else dict(keySharedMeta=other)
        b.subscribe(topic, "sub", 20 + i, subType="Key_Shared", **more)
        b.ask("CLOSE_CONSUMER", consumer_id=20 + i)
    s.note("mode", stats(s, topic)["subscriptions"]["sub"].get("keySharedMode"))


@scenario
def sticky_owner_leaves_with_messages_pending(s):
    """The messages wait until a consumer takes the range, in parts or whole."""
    topic = s.topic()
    a = join(s, topic, "all", meta=sticky((0, 65535)))
    keyed(s, topic)
    got(s, a)
    ack(a, *ids_of(a)[:4])
    a.close()
    time.sleep(0.3)
    b = join(s, topic, "low", meta=sticky((0, 32767)))
    got(s, b)
    c = join(s, topic, "high", meta=sticky((32768, 65535)))
    got(s, b, c)


@scenario
def sticky_ranges_beside_a_gap(s):
    topic = s.topic()
    a = join(s, topic, "low", meta=sticky((0, 20000)))
    b = join(s, topic, "high", meta=sticky((40000, 50000), (60000, 65535)))
    for turn in range(2):
        keyed(s, topic, turn=turn)
        got(s, a, b)
    s.note("replay", stats(s, topic)["subscriptions"]["sub"]["msgBacklog"])
    c = join(s, topic, "gap", meta=sticky((20001, 39999), (50001, 59999)))
    got(s, a, b, c)
    join(s, topic, "none", meta=sticky((100, 200))).none(0.3)


@scenario
def sticky_in_any_order(s):
    topic = s.topic()
    meta = dict(allowOutOfOrderDelivery=True)
    a = join(s, topic, "low", permits=2, meta=sticky((0, 32767), **meta))
    b = join(s, topic, "high", permits=2, meta=sticky((32768, 65535), **meta))
    keyed(s, topic)
    got(s, a, b)
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    a.send("FLOW", consumer_id=1, messagePermits=3)
    got(s, a, b)


@scenario
def keys_written_in_every_way(s):
    """Ordering key, key, base64, empty, null; single and in batches."""
    topic = s.topic()
    a = join(s, topic, "low", meta=sticky((0, 32767)))
    b = join(s, topic, "high", meta=sticky((32768, 65535)))
    ways = (
        dict(partition_key="k1"),
        dict(partition_key="k1", ordering_key=b"key01"),
        dict(ordering_key=b""),
        dict(partition_key="", ordering_key=b"key01"),
        dict(partition_key=""),
        dict(partition_key="", null_partition_key=True),
        dict(partition_key="a2V5MDE=", partition_key_b64_encoded=True),
        dict(ordering_key=b"\xff\x00"),
        dict(partition_key="ключ"),
    )
    for i, way in enumerate(ways):
        published(s, topic, [b"%d" % i], i, **way)
    got(s, a, b)


def changes(s, *connections, seconds=1.4):
    """The ACTIVE_CONSUMER_CHANGE notices of each consumer, and its messages."""
    for c in connections:
        frames = list(iter(lambda c=c, seconds=seconds: c.recv_quietly(seconds), None))
        told = [f.command.is_active if f.type == "ACTIVE_CONSUMER_CHANGE" else f.type for f in frames]
        s.note(c.name, told)
        seconds = 0.2


@by_partition
def active_one_of_three_by_name(s, topic):
    a, b, c = (join(s, topic, name, meta=None, subType="Failover") for name in ("b", "c", "a"))
    changes(s, a, b, c)
    published(s, topic, 1)
    changes(s, a, b, c)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    changes(s, a, b)
    a.close()
    changes(s, b)


@by_partition
def active_one_and_levels(s, topic):
    levels = dict(x=2, y=1, z=1, w=0)
    connections = []
    for name, level in levels.items():
        connections.append(join(s, topic, name, meta=None, subType="Failover", priority_level=level))
        changes(s, *connections)
    published(s, topic, 2)
    changes(s, *connections)
    connections[-1].ask("CLOSE_CONSUMER", consumer_id=1)
    changes(s, *connections[:-1])


@by_partition
def active_one_of_equal_names(s, topic):
    a, b, c = s.connect("first"), s.connect("second"), s.connect("third")
    for x in (a, b, c):
        x.subscribe(topic, subType="Failover", consumer_name="same", permits=5, quietly=True)
        changes(s, x)
    published(s, topic, 1)
    changes(s, a, b, c)
    b.ask("CLOSE_CONSUMER", consumer_id=1)
    changes(s, a, c)


@by_partition
def active_one_goes_with_messages_pending(s, topic):
    a = join(s, topic, "a", meta=None, subType="Failover", priority_level=0)
    b = join(s, topic, "b", meta=None, subType="Failover", priority_level=1)
    changes(s, a, b)
    ids = published_batches(s, topic, [b"x"] * 3, [b"y"] * 2)
    read(a, 2)
    ack(a, ids[0] | dict(ack_set=[0b100], batch_size=3), kind="Cumulative")
    a.close()
    time.sleep(1.3)
    s.note("b", [[f.type, list(getattr(f.command, "ack_set", []))] for f in iter(lambda: b.recv_quietly(0.7), None)])


def reads(s, topic, name, permits=100, **more):
    c = s.connect(name)
    c.subscribe(topic, name, durable=False, permits=permits, quietly=True, **more)
    frames = drained(c)
    s.note(name, [[f.command.message_id.entryId, list(f.command.ack_set)] for f in frames])
    return c


@scenario
def readers_from_every_place_of_batches(s):
    topic = s.topic()
    ids = published_batches(s, topic, [b"a"] * 3, [b"b"] * 3)
    for name, more in dict(
        plain={},
        index=dict(batch_index=1),
        last=dict(batch_index=2),
        minus=dict(batch_index=-1),
        beyond=dict(batch_index=9),
    ).items():
        reads(s, topic, name, start_message_id=ids[0] | more)
    reads(s, topic, "part", start_message_id=ids[0] | dict(ack_set=[0b100], batch_size=3))
    reads(s, topic, "nothing", start_message_id=ids[0] | dict(ack_set=[0], batch_size=3))


@scenario
def readers_from_places_that_are_not(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    first = ids[0]
    for name, start in dict(
        before=first | dict(entryId=2**64 - 1),
        beyond=first | dict(entryId=9),
        later=first | dict(ledgerId=2**61),
        earliest=EARLIEST,
        latest=LATEST,
        odd=dict(ledgerId=2**64 - 1, entryId=5),
    ).items():
        c = reads(s, topic, name, start_message_id=start)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published(s, topic, 1, 3)
    for c in s.connections:
        if c.name in ("before", "beyond", "later", "earliest", "latest", "odd"):
            s.note(c.name, texts(drained(c, 0.3)))


@scenario
def readers_of_one_name_and_different_places(s):
    """The position of the first reader counts while it is connected."""
    topic = s.topic()
    ids = published(s, topic, 4)
    a, b = s.connect("a"), s.connect("b")
    a.subscribe(topic, "r", durable=False, permits=1, quietly=True, subType="Shared", start_message_id=ids[2])
    b.subscribe(topic, "r", durable=False, permits=9, quietly=True, subType="Shared", start_message_id=EARLIEST)
    s.note("both", sorted(texts(drained(a)) + texts(drained(b))))
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    s.note("b", texts(drained(b)))
    b.close()
    time.sleep(0.3)
    a.subscribe(topic, "r", durable=False, permits=9, quietly=True, subType="Shared", start_message_id=EARLIEST)
    s.note("a", texts(drained(a)))


@scenario
def shared_levels_and_permits_that_run_out(s):
    topic = s.topic()
    shared = dict(meta=None, subType="Shared")
    high = join(s, topic, "high", 2, priority_level=0, **shared)
    low = join(s, topic, "low", 3, priority_level=1, **shared)
    for i in range(7):
        published(s, topic, 1, i)
        time.sleep(0.05)
    got(s, high, low)
    low.send("FLOW", consumer_id=1, messagePermits=1)
    got(s, high, low)
    high.send("FLOW", consumer_id=1, messagePermits=5)
    got(s, high, low)
    high.ask("CLOSE_CONSUMER", consumer_id=1)
    low.send("FLOW", consumer_id=1, messagePermits=20)
    got(s, low)


@scenario
def shared_subscription_blocked_as_a_whole(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=4))
    shared = dict(meta=None, subType="Shared")
    a, b = join(s, topic, "a", 0, **shared), join(s, topic, "b", 0, **shared)
    published(s, topic, 10)
    a.send("FLOW", consumer_id=1, messagePermits=3)
    time.sleep(0.3)
    a.send("FLOW", consumer_id=1, messagePermits=3)
    time.sleep(0.3)
    s.note("blocked", stats(s, topic)["subscriptions"]["sub"]["blockedSubscriptionOnUnackedMsgs"])
    got(s, a)
    ack(a, *ids_of(a)[:1])
    got(s, a)
    ack(a, *ids_of(a)[1:])
    got(s, a)
    a.close()
    b.send("FLOW", consumer_id=1, messagePermits=50)
    got(s, b)
