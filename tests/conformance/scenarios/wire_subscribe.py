"""SUBSCRIBE: types, positions, names, readers, limits, and leaving again."""

import time

from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    backlog,
    drained,
    namespace,
    published,
    published_batches,
    read,
    rest,
    texts,
)
from transcript import scenario


def got(s, c, what="messages", seconds=0.7):
    s.note(what, texts(drained(c, seconds)))


@scenario
def each_type_against_each_connected_type(s):
    kinds = "Exclusive", "Shared", "Failover", "Key_Shared"
    topic = s.topic()
    a, b = s.connect(), s.connect()
    for i, first in enumerate(kinds):
        a.subscribe(topic, first, i, subType=first, quietly=True)
        for j, second in enumerate(kinds):
            frame = b.subscribe(topic, first, 10 * i + j, quietly=True, subType=second, consumer_name=f"b{j}")
            s.note(f"{second} beside {first}", [frame.type, getattr(frame.command, "error", None)])


@scenario
def type_may_change_when_nobody_is_connected(s):
    topic = s.topic()
    c = s.connect()
    ids = published(s, topic, 3)
    c.subscribe(topic, permits=10, initialPosition="Earliest", subType="Shared", quietly=True)
    got(s, c)
    ack(c, ids[1])
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, "sub", 2, permits=10)
    got(s, c)


@scenario
def exclusive_twice_on_one_connection(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "sub", 2)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, "sub", 2)


@scenario
def odd_subscription_names(s):
    c, topic = s.connect(), s.topic()
    for i, name in enumerate(
        ("", " ", "a/b", "ümlaut", "a b", "__compaction", "pulsar.dedup", "pulsar.repl.x", "x" * 300)
    ):
        c.subscribe(topic, name, i)
    status, names = s.http("GET", rest(topic, "/subscriptions"), quietly=True)
    s.note("kept", sorted(names))


@scenario
def initial_position_counts_only_once(s):
    topic = s.topic()
    c = s.connect()
    published(s, topic, 2)
    c.subscribe(topic, quietly=True, initialPosition="Latest", permits=10)
    got(s, c, "latest")
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, quietly=True, initialPosition="Earliest", permits=10)
    got(s, c, "earliest, but it exists")


@scenario
def durable_subscription_ignores_a_start_id(s):
    topic = s.topic()
    c = s.connect()
    ids = published(s, topic, 4)
    c.subscribe(topic, "a", 1, start_message_id=ids[2], initialPosition="Earliest", permits=10)
    got(s, c)
    c.subscribe(topic, "b", 2, start_message_id=ids[2], permits=10)
    got(s, c)


@scenario
def reader_from_earliest_latest_and_nowhere(s):
    topic = s.topic()
    published(s, topic, 3)
    reader = dict(durable=False, permits=10, quietly=True)
    for name, more in dict(
        earliest=dict(start_message_id=EARLIEST),
        latest=dict(start_message_id=LATEST),
        absent={},
        absent_earliest=dict(initialPosition="Earliest"),
        absent_latest=dict(initialPosition="Latest"),
        beyond=dict(start_message_id=dict(ledgerId=10**9, entryId=0)),
        before=dict(start_message_id=dict(ledgerId=0, entryId=0)),
    ).items():
        c = s.connect(name)
        c.subscribe(topic, name, 1, **reader, **more)
        got(s, c, name)
    published(s, topic, 1, 3)
    for c in s.connections:
        if c.name not in {"quiet", "setup"}:
            got(s, c, c.name, 0.3)


@scenario
def reader_start_ids_around_the_end(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    for name, entry in dict(last=2, after_last=3, far=99, minus=2**64 - 1).items():
        c = s.connect(name)
        c.subscribe(
            topic, name, 1, durable=False, permits=10, quietly=True, start_message_id=ids[0] | dict(entryId=entry)
        )
        got(s, c, name)
    published(s, topic, 2, 3)
    for c in s.connections:
        if c.name not in {"quiet", "setup"}:
            got(s, c, c.name, 0.3)


@scenario
def reader_start_ids_behind_the_end_with_an_initial_position(s):
    """A start further behind the end than the next entry does not count; the initial position counts."""
    topic = s.topic()
    last = published(s, topic, 3)[-1]
    behind = dict(last=2, next=3, after_next=4, far=99, ledger=0)
    for kind in ("Exclusive", "Shared", "Failover", "Key_Shared"):
        for name, entry in behind.items():
            for position in ("Earliest", "Latest"):
                start = dict(last, entryId=entry, ledgerId=last["ledgerId"] + (1000 if name == "ledger" else 0))
                fields = dict(durable=False, start_message_id=start, initialPosition=position, subType=kind)
                c = s.connect(f"{kind} {name} {position}")
                c.subscribe(topic, c.name, 1, permits=10, quietly=True, **fields)
    for c in s.connections:
        if c.name not in {"quiet", "setup"}:
            got(s, c, c.name, 0.1)


@scenario
def reader_inside_a_batch(s):
    """The whole entry comes, with an ack set when the start id has a batch index."""
    topic = s.topic()
    (first,) = published_batches(s, topic, [b"a", b"b", b"c"])
    for i, more in enumerate((dict(batch_index=1), dict(batch_index=2), dict(batch_index=0), dict(batch_index=-1))):
        c = s.connect(f"r{i}")
        c.subscribe(topic, f"r{i}", 1, durable=False, permits=10, start_message_id=first | more)
        c.recv()


@scenario
def reader_with_an_ack_set_in_its_start_id(s):
    topic = s.topic()
    (first,) = published_batches(s, topic, [b"a", b"b", b"c"])
    c = s.connect()
    c.subscribe(topic, "r", 1, durable=False, permits=10, start_message_id=first | dict(ack_set=[0b100], batch_size=3))
    c.recv()


@scenario
def reader_rolled_back_by_a_duration(s):
    topic = s.topic()
    published(s, topic, 2)
    time.sleep(2.2)
    published(s, topic, 1, 2)
    for name, seconds in dict(one=1, hour=3600).items():
        c = s.connect(name)
        c.subscribe(
            topic,
            name,
            1,
            durable=False,
            permits=10,
            start_message_rollback_duration_sec=seconds,
            start_message_id=LATEST,
        )
        c.recv()
        got(s, c)


@scenario
def durable_subscription_rolled_back_by_a_duration(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, "d", 1, permits=10, start_message_rollback_duration_sec=3600)
    c.recv(2)
    got(s, c)


@scenario
def reader_leaves_nothing_behind(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "reader", 1, durable=False)
    c.subscribe(topic, "durable", 2)
    status, names = s.http("GET", rest(topic, "/subscriptions"), quietly=True)
    s.note("connected", sorted(names))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=2)
    s.eventually("reader gone", lambda: s.http("GET", rest(topic, "/subscriptions"), quietly=True)[1] == ["durable"])


@scenario
def reader_and_durable_of_one_name(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "one", 1, durable=False)
    b.subscribe(topic, "one", 1, durable=True)
    b.subscribe(topic, "two", 2, durable=True)
    a.subscribe(topic, "two", 2, durable=False)
    b.ask("CLOSE_CONSUMER", consumer_id=2)
    a.subscribe(topic, "two", 2, durable=False)


@scenario
def readers_of_one_name(s):
    """A non-durable subscription may be shared as any other."""
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "one", 1, durable=False, subType="Shared", permits=10)
    b.subscribe(topic, "one", 1, durable=False, subType="Shared")
    a.subscribe(topic, "two", 2, durable=False)
    b.subscribe(topic, "two", 2, durable=False)
    published(s, topic, 1)
    a.recv()


@scenario
def reader_acks_and_redelivery(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "r", 1, durable=False, permits=10, quietly=True, start_message_id=EARLIEST)
    ids = published(s, topic, 3)
    read(c, 3)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[0]])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    got(s, c)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1)


@scenario
def subscription_properties_are_kept_from_its_creation(s):
    topic = s.topic()
    c = s.connect()

    def told():
        return s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]["subscriptionProperties"]

    c.subscribe(topic, subscription_properties=[dict(key="k", value="1"), dict(key="l", value="2")])
    s.note("first", told())
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, subscription_properties=[dict(key="k", value="other")])
    s.note("second", told())


@scenario
def consumer_metadata_is_limited(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, "a", 1, metadata=[dict(key="k", value="v" * 1023)])
    c.subscribe(topic, "b", 2, metadata=[dict(key="k", value="v" * 1024)])
    c.subscribe(topic, "c", 3, metadata=[dict(key="k", value="v" * 600), dict(key="l", value="v" * 600)])


@scenario
def read_compacted_by_type(s):
    topic = s.topic()
    c = s.connect()
    for i, kind in enumerate(("Exclusive", "Shared", "Failover", "Key_Shared")):
        c.subscribe(topic, kind, i, subType=kind, read_compacted=True, consumer_name="n")
    c.subscribe(topic, "reader", 9, durable=False, read_compacted=True)
    np = s.topic("np", domain="non-persistent")
    c.subscribe(np, "np", 10, read_compacted=True)


@scenario
def number_of_consumers_limited(s):
    ns = namespace(s, maxConsumersPerTopic=3, maxConsumersPerSubscription=2)
    c, topic = s.connect(), s.topic("t", ns)
    for i in range(3):
        c.subscribe(topic, "one", i, subType="Shared")
    c.subscribe(topic, "two", 3, subType="Shared")
    c.subscribe(topic, "three", 4)
    c.ask("CLOSE_CONSUMER", consumer_id=0)
    c.subscribe(topic, "three", 4)


@scenario
def number_of_subscriptions_limited(s):
    ns = namespace(s, maxSubscriptionsPerTopic=2)
    c, topic = s.connect(), s.topic("t", ns)
    for i, name in enumerate(("a", "b", "c")):
        c.subscribe(topic, name, i)
    c.subscribe(topic, "reader", 7, durable=False)
    c.ask("UNSUBSCRIBE", consumer_id=0)
    c.subscribe(topic, "c", 8)


@scenario
def subscription_types_enabled(s):
    ns = namespace(s, subscriptionTypesEnabled=["Exclusive", "Shared"])
    c, topic = s.connect(), s.topic("t", ns)
    for i, kind in enumerate(("Exclusive", "Shared", "Failover", "Key_Shared")):
        c.subscribe(topic, kind, i, subType=kind)


@scenario
def replicated_subscription_flag(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, replicate_subscription_state=True)
    s.note("replicated", s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]["isReplicated"])


@scenario
def close_consumer_and_come_back(s):
    """Messages without acknowledgement come again, acknowledged messages do not."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    ids = published(s, topic, 4)
    read(c, 4)
    ack(c, ids[0])
    ack(c, ids[2])
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.none()
    c.subscribe(topic, permits=10)
    got(s, c)
    s.note("backlog", backlog(s, topic))


@scenario
def unsubscribe_forgets_everything(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    published(s, topic, 2)
    read(c, 2)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.subscribe(topic, initialPosition="Latest", permits=10)
    c.none()


@scenario
def unsubscribe_by_force(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, quietly=True, subType="Shared")
    b.subscribe(topic, quietly=True, subType="Shared")
    a.ask("UNSUBSCRIBE", consumer_id=1)
    a.ask("UNSUBSCRIBE", consumer_id=1, force=True)
    a.none()
    b.recv()
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def unsubscribe_of_a_standby(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, quietly=True, subType="Failover", consumer_name="a", priority_level=0)
    a.recv_quietly()
    b.subscribe(topic, quietly=True, subType="Failover", consumer_name="b", priority_level=1)
    b.ask("UNSUBSCRIBE", consumer_id=1)
    a.ask("UNSUBSCRIBE", consumer_id=1)
    b.ask("CLOSE_CONSUMER", consumer_id=1)
    a.ask("UNSUBSCRIBE", consumer_id=1)


@scenario
def unload_and_deletion_close_consumers(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, "a", 1, quietly=True)
    c.subscribe(topic, "b", 2, quietly=True, durable=False)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv_sorted(2)
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def subscription_deleted_over_rest(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, "a", 1, quietly=True)
    s.http("DELETE", rest(topic, "/subscription/a"))
    s.http("DELETE", rest(topic, "/subscription/a?force=true"))
    c.recv()
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def partitions_have_subscriptions_of_their_own(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    c.subscribe(topic + "-partition-0", "a", 1)
    c.subscribe(topic + "-partition-1", "b", 2)
    for i in range(2):
        s.http("GET", rest(f"{topic}-partition-{i}", "/subscriptions"), keep=True)
    status, names = s.http("GET", rest(topic, "/subscriptions"), quietly=True)
    s.note("of the topic", sorted(names))


@scenario
def subscription_properties_that_come_twice(s):
    topic = s.topic()
    c = s.connect()
    twice = [dict(key="a", value=value) for value in ("1", "2", "")]
    c.subscribe(topic, subscription_properties=[*twice, dict(key="", value="empty"), dict(key="b", value="")])
    s.call("GET", rest(topic, "/subscription/sub/properties"), keep=True)


@scenario
def rollback_of_a_reader_in_use(s):
    topic = s.topic()
    published(s, topic, 3)
    start = dict(durable=False, start_message_id=EARLIEST, permits=10)
    a, b = s.connect("a"), s.connect("b")
    a.subscribe(topic, "r", quietly=True, **start)
    s.note("before", texts(drained(a)))
    b.subscribe(topic, "r", start_message_rollback_duration_sec=100, **start)
    s.note("the new reader", [f.type for f in iter(lambda: b.recv_quietly(0.7), None)])
    a.recv(2)
