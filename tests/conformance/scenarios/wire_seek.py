"""SEEK, GET_LAST_MESSAGE_ID, CONSUMER_STATS, the end of a topic."""

import time

from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    backlog,
    drained,
    namespace,
    now_ms,
    published,
    published_batches,
    read,
    rest,
    texts,
    told,
)
from transcript import scenario


def again(s, c, topic, what, subscription="sub", consumer_id=1, **more):
    """Subscribes anew and notes the messages."""
    c.subscribe(topic, subscription, consumer_id, permits=100, quietly=True, **more)
    s.note(what, told(drained(c)))


def consuming(s, n=4, **more):
    """A topic with n messages, all read by an exclusive consumer; topic, connection, ids."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True, **more)
    ids = published(s, topic, n)
    read(c, n)
    return topic, c, ids


def ended(c):
    """The consumers that get the end of the topic at least once: a consumer that waits to read may get it again."""
    frames = list(iter(lambda: c.recv_quietly(1), None))
    return sorted({f.command.consumer_id for f in frames if f.type == "REACHED_END_OF_TOPIC"})


@scenario
def seek_to_each_kind_of_id(s):
    topic, c, ids = consuming(s)
    for name, id_ in dict(
        third=ids[2],
        earliest=EARLIEST,
        latest=LATEST,
        last=ids[3],
        beyond=ids[3] | dict(entryId=50),
        far=dict(ledgerId=10**9, entryId=0),
        zero=dict(ledgerId=0, entryId=0),
        before=ids[0] | dict(entryId=2**64 - 1),
    ).items():
        c.ask("SEEK", consumer_id=1, message_id=id_)
        again(s, c, topic, name)


@scenario
def seek_brings_back_what_was_acked(s):
    topic, c, ids = consuming(s)
    ack(c, ids[3], kind="Cumulative")
    s.note("backlog", backlog(s, topic))
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    again(s, c, topic, "from the second")
    ack(c, ids[2])
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    again(s, c, topic, "individual acks are forgotten")


@scenario
def seek_forward_drops_what_is_before(s):
    topic, c, ids = consuming(s)
    c.ask("SEEK", consumer_id=1, message_id=ids[3])
    again(s, c, topic, "last")
    s.note("backlog", backlog(s, topic))


@scenario
def seek_without_a_target(s):
    topic, c, _ = consuming(s)
    c.ask("SEEK", consumer_id=1)
    c.none()


@scenario
def seek_with_id_and_time(s):
    topic, c, ids = consuming(s)
    c.ask("SEEK", consumer_id=1, message_id=ids[2], message_publish_time=1)
    again(s, c, topic, "the id wins")


@scenario
def seek_by_time(s):
    """Broker time counts, not the publish time that the client wrote."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published(s, topic, 2)
    time.sleep(0.05)
    middle = now_ms()
    time.sleep(0.05)
    published(s, topic, 2, 2)
    keep = s.lines
    for name, at in dict(
        middle=middle, zero=0, publish_time=1_700_000_000_000, future=now_ms(3_600_000), one=1, all_ones=2**63 - 1
    ).items():
        s.lines = []
        frame = c.ask("SEEK", quietly=True, consumer_id=1, message_publish_time=at)
        s.lines = keep
        s.note("answer", frame.type)
        again(s, c, topic, name)


@scenario
def seek_of_a_shared_subscription_closes_all(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    for c in (a, b):
        c.subscribe(topic, permits=100, quietly=True, subType="Shared")
    ids = published(s, topic, 4)
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    drained(a), drained(b)
    a.ask("SEEK", consumer_id=1, message_id=ids[2])
    b.recv()
    again(s, b, topic, "counts are forgotten", subType="Shared")


@scenario
def seek_inside_a_batch(s):
    """By an ack set: its bits are the messages to come; a batch index alone means the whole entry."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d"])
    read(c, 2)
    for more in (
        dict(batch_index=1),
        dict(ack_set=[0b100], batch_size=3),
        dict(ack_set=[0b110], batch_index=1, batch_size=3),
    ):
        c.ask("SEEK", consumer_id=1, message_id=ids[0] | more)
        c.subscribe(topic, permits=100, quietly=True)
        c.recv()
        c.recv()


@scenario
def seek_across_ledgers(s):
    topic, c, ids = consuming(s, 2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    more = published(s, topic, 2, 2)
    c.subscribe(topic, permits=100, quietly=True)
    drained(c)
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    again(s, c, topic, "in the first ledger")
    c.ask("SEEK", consumer_id=1, message_id=ids[1] | dict(entryId=2))
    again(s, c, topic, "after the first ledger")
    c.ask("SEEK", consumer_id=1, message_id=more[1])
    again(s, c, topic, "in the second ledger")


@scenario
def seek_of_a_reader(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = s.connect()
    c.subscribe(topic, "r", 1, durable=False, permits=10, quietly=True, start_message_id=LATEST)
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    again(s, c, topic, "its position is kept", "r", durable=False, start_message_id=LATEST)


@scenario
def seek_of_a_reader_shared_by_two(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    a, b = s.connect(), s.connect()
    for c in (a, b):
        c.subscribe(topic, "r", 1, durable=False, permits=10, quietly=True, subType="Shared")
    a.ask("SEEK", consumer_id=1, message_id=ids[1])
    b.recv()


@scenario
def seek_twice_at_once(s):
    topic, c, ids = consuming(s)
    c.ask("SEEK", consumer_id=1, message_id=ids[2])
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    again(s, c, topic, "of a consumer that was closed")


@scenario
def seek_to_the_end_and_new_messages(s):
    topic, c, _ = consuming(s)
    c.ask("SEEK", consumer_id=1, message_id=LATEST)
    published(s, topic, 1, 4)
    again(s, c, topic, "published after the seek")


@scenario
def last_message_id_by_contents(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, 1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published_batches(s, topic, [b"a", b"b", b"c"])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published_batches(s, topic, [b"d"])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def last_message_id_of_an_empty_topic(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "durable", 1, quietly=True)
    c.subscribe(topic, "reader", 2, durable=False, quietly=True)
    for consumer_id in (1, 2):
        m = c.ask("GET_LAST_MESSAGE_ID", quietly=True, consumer_id=consumer_id).command
        last, mark = m.last_message_id, m.consumer_mark_delete_position
        s.note("last", [last.ledgerId == 2**64 - 1, last.entryId == 2**64 - 1, last.partition, last.batch_index])
        s.note("mark delete", [mark.ledgerId == 2**64 - 1, mark.entryId == 2**64 - 1])


@scenario
def mark_delete_of_a_latest_and_an_earliest_subscription(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, "latest", 1, quietly=True)
    c.subscribe(topic, "earliest", 2, initialPosition="Earliest", quietly=True)
    c.subscribe(topic, "reader", 3, durable=False, start_message_id=LATEST, quietly=True)
    c.subscribe(topic, "old reader", 4, durable=False, start_message_id=EARLIEST, quietly=True)
    for consumer_id in (1, 2, 3, 4):
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=consumer_id)


@scenario
def consumer_stats_by_type(s):
    topic = s.topic()
    for kind in "Exclusive", "Shared", "Failover", "Key_Shared":
        c = s.connect(kind)
        c.subscribe(topic, kind, subType=kind, consumer_name="n", quietly=True)
        if kind == "Failover":
            c.recv_quietly()
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
    published_batches(s, topic, [b"a", b"b"], [b"c"])
    time.sleep(0.3)
    for c in s.connections:
        if c.name[0].isupper():
            read(c, 2)
            c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def consumer_stats_of_a_reader(s):
    topic = s.topic()
    published(s, topic, 3)
    c = s.connect()
    c.subscribe(topic, "r", 1, durable=False, start_message_id=EARLIEST, quietly=True, permits=2)
    read(c, 2)
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def consumer_stats_of_nobody_closes(s):
    c = s.connect()
    c.send("CONSUMER_STATS", consumer_id=5, request_id=1)
    c.recv(3)


@scenario
def end_of_topic_is_told_to_everybody(s):
    topic = s.topic()
    c = s.connect()
    published(s, topic, 1)
    c.subscribe(topic, "behind", 1, initialPosition="Earliest", permits=10, quietly=True)
    c.subscribe(topic, "ahead", 2, permits=10, quietly=True)
    c.subscribe(topic, "shared", 3, subType="Shared", permits=10, quietly=True)
    read(c, 1)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    s.note("told", ended(c))


@scenario
def end_of_topic_for_latecomers(s):
    topic = s.topic()
    published(s, topic, 1)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c = s.connect()
    c.subscribe(topic, "latest", 1)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.recv()
    c.subscribe(topic, "earliest", 2, initialPosition="Earliest", permits=10)
    (message,) = read(c, 1)
    c.none()
    c.ask("ACK", consumer_id=2, ack_type="Individual", message_id=[message.message_id])
    c.none()
    c.subscribe(topic, "shared", 3, subType="Shared", permits=10)
    c.recv()


@scenario
def end_of_topic_and_a_standby(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, subType="Failover", consumer_name="a", priority_level=0, permits=10, quietly=True)
    a.recv_quietly()
    b.subscribe(topic, subType="Failover", consumer_name="b", priority_level=1, permits=10, quietly=True)
    published(s, topic, 1)
    (message,) = read(a, 1)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    a.send("ACK", consumer_id=1, ack_type="Individual", message_id=[message.message_id])
    s.note("active", ended(a))
    s.note("standby", ended(b))


@scenario
def retained_messages_are_there_for_readers(s):
    ns = namespace(s, retention=dict(retentionTimeInMinutes=10, retentionSizeInMB=10))
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    ids = published(s, topic, 2)
    read(c, 2)
    ack(c, ids[1], kind="Cumulative")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    published(s, topic, 1, 2)
    reader = s.connect()
    reader.subscribe(topic, "r", durable=False, start_message_id=EARLIEST, permits=10, quietly=True)
    s.note("left", texts(drained(reader)))


@scenario
def truncated_topic_has_nothing_left(s):
    topic, c, ids = consuming(s)
    s.http("DELETE", rest(topic, "/truncate"))
    c.none()
    s.note("backlog", backlog(s, topic))
    published(s, topic, 1, 4)
    s.note("new", texts(drained(c)))
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.subscribe(topic, permits=100, quietly=True)
    s.note("from the start", texts(drained(c))[-1:])
