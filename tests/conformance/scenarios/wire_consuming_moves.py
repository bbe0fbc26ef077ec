"""SEEK, redelivery, UNSUBSCRIBE, CLOSE_CONSUMER and questions on every subscription type."""

import time

from harness.consumers import by_type, join, resume
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
    stats,
    texts,
    told,
)


def places(frames):
    return [[f.command.message_id.entryId, list(f.command.ack_set), f.command.redelivery_count] for f in frames]


def figures(s, topic):
    sub = stats(s, topic)["subscriptions"].get("sub")
    s.note("backlog, unacked, sent", sub and [sub["msgBacklog"], sub["unackedMessages"], sub["msgOutCounter"]])


@by_type
def seek_with_others_connected(s, kind):
    """The closed consumers, the order of the answers, and the messages of each consumer that comes back."""
    topic = s.topic()
    a = join(s, topic, kind, name="a", consumer_name="a")
    others = [] if kind == "Exclusive" else [s.connect("b")]
    for b in others:
        b.subscribe(topic, permits=100, quietly=True, subType=kind, consumer_name="b", priority_level=1)
        drained(b, 0.3)
    ids = published(s, topic, 6)
    s.note("before", sorted(texts(drained(a)) + [x for b in others for x in texts(drained(b))]))
    a.ask("SEEK", consumer_id=1, message_id=ids[4])
    a.none()
    for b in others:
        b.none()
    resume(a, topic, kind, consumer_name="a")
    s.note("after", sorted(texts(drained(a)) + [x for b in others for x in texts(drained(b))]))
    figures(s, topic)


@by_type
def seek_of_a_reader_and_what_is_left(s, kind):
    """A subscription that is not durable ends with the SEEK; its position is kept for the next of its name."""
    topic = s.topic()
    ids = published(s, topic, 5)
    c = join(s, topic, kind, durable=False, start_message_id=EARLIEST)
    s.note("first", texts(drained(c)))
    c.ask("SEEK", consumer_id=1, message_id=ids[3])
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    resume(c, topic, kind, durable=False, start_message_id=EARLIEST)
    s.note("then", texts(drained(c)))
    figures(s, topic)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    resume(c, topic, kind, durable=False, start_message_id=EARLIEST)
    s.note("and anew", texts(drained(c)))


@by_type
def seek_of_a_reader_that_comes_back_durable(s, kind):
    topic = s.topic()
    ids = published(s, topic, 4)
    c = join(s, topic, kind, durable=False, start_message_id=LATEST)
    c.ask("SEEK", consumer_id=1, message_id=ids[2])
    resume(c, topic, kind)
    s.note("then", texts(drained(c)))
    s.note("durable", stats(s, topic)["subscriptions"]["sub"]["isDurable"])
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@by_type
def seek_to_parts_of_batches(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published_batches(s, topic, [b"a"] * 4, [b"b"] * 4)
    read(c, 2)
    for more in (
        dict(batch_index=2),
        dict(ack_set=[0b1100], batch_size=4),
        dict(ack_set=[0b0011], batch_size=4),
        dict(ack_set=[0], batch_size=4),
        dict(ack_set=[0b1111], batch_size=4),
    ):
        c.ask("SEEK", consumer_id=1, message_id=ids[1] | more)
        resume(c, topic, kind)
        s.note("came", places(drained(c)))
        figures(s, topic)


@by_type
def seek_with_acks_pending_and_partly_done(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published_batches(s, topic, *[[b"x"] * 2] * 4)
    read(c, 4)
    ack(c, ids[0] | dict(ack_set=[0b10], batch_size=2))
    ack(c, ids[2])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    drained(c)
    c.ask("SEEK", consumer_id=1, message_id=ids[0])
    resume(c, topic, kind)
    s.note("all", places(drained(c)))
    c.ask("SEEK", consumer_id=1, message_id=ids[3])
    figures(s, topic)
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    figures(s, topic)
    resume(c, topic, kind)
    s.note("all", places(drained(c)))


@by_type
def seek_to_the_broker_time_of_messages(s, kind):
    """The first message at or after that moment."""
    topic = s.topic()
    c = join(s, topic, kind)
    for i in range(3):
        published(s, topic, 1, i)
        time.sleep(0.02)
    stamps = [f.entry_metadata.broker_timestamp for f in read(c, 3)]
    keep = s.lines
    for name, at in dict(
        second=stamps[1], after=stamps[1] + 1, last=stamps[2], beyond=stamps[2] + 1, first=stamps[0]
    ).items():
        s.lines = []
        c.ask("SEEK", quietly=True, consumer_id=1, message_publish_time=at)
        s.lines = keep
        resume(c, topic, kind)
        s.note(name, texts(drained(c)))


@by_type
def seek_on_an_empty_topic(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    for target in (dict(message_id=EARLIEST), dict(message_id=LATEST), dict(message_publish_time=5)):
        c.ask("SEEK", consumer_id=1, **target)
        c.none(0.3)
        resume(c, topic, kind)
    published(s, topic, 2)
    s.note("new", texts(drained(c)))


@by_type
def seek_on_a_non_persistent_topic(s, kind):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True, subType=kind)
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.ask("SEEK", consumer_id=1, message_publish_time=5)
    c.ask("SEEK", consumer_id=1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published(s, topic, 1)
    s.note("came", texts(drained(c)))


@by_type
def redelivery_with_epochs(s, kind):
    """Older, equal and newer epochs, with and without ids."""
    topic = s.topic()
    c = join(s, topic, kind, consumer_epoch=3)
    ids = published(s, topic, 2)
    s.note("came", [[f.command.HasField("consumer_epoch"), f.command.consumer_epoch] for f in drained(c)])
    for epoch in (2, 3, 4, 4, None):
        for some in ([], [ids[1]]):
            more = {} if epoch is None else dict(consumer_epoch=epoch)
            c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=some, **more)
            s.note("again", [[*place, f.command.consumer_epoch] for f in drained(c, 0.4) for place in places([f])])


@by_type
def redelivery_of_ids_of_all_sorts(s, kind):
    """Acked, unknown, twice the same, of a batch with an index."""
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published_batches(s, topic, *[[b"x"] * 2] * 4)
    read(c, 4)
    ack(c, ids[1])
    some = [ids[1], ids[2], ids[2], ids[3] | dict(batch_index=1, ack_set=[1], batch_size=2), ids[0] | dict(entryId=50)]
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=some)
    s.note("again", places(drained(c)))
    figures(s, topic)


@by_type
def redelivery_without_permits(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, permits=3)
    published_batches(s, topic, [b"a"] * 2, [b"b"] * 2, [b"c"] * 2)
    s.note("first", places(drained(c)))
    for permits in (0, 1, 1, 5):
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        c.none(0.3)
        if permits:
            c.send("FLOW", consumer_id=1, messagePermits=permits)
        s.note("again", sorted(places(drained(c))))


@by_type
def unsubscribe_with_messages_pending(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 3)
    read(c, 3)
    ack(c, ids[0])
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]], request_id=78)
    c.send("FLOW", consumer_id=1, messagePermits=1)
    c.none()
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    resume(c, topic, kind, initialPosition="Earliest")
    s.note("anew", told(drained(c)))


@by_type
def unsubscribe_of_one_of_two(s, kind):
    topic = s.topic()
    a = join(s, topic, kind, name="a", consumer_name="a")
    b = s.connect("b")
    b.subscribe(topic, subType=kind, consumer_name="b", priority_level=1)
    b.none(0.3)
    for force in (False, True):
        b.ask("UNSUBSCRIBE", consumer_id=1, force=force)
    a.none(0.4)
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    a.ask("CLOSE_CONSUMER", consumer_id=1)


@by_type
def questions_of_one_who_left(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    for _ in range(2):
        c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.subscribe(topic, subType=kind)
    c.subscribe(topic, subType=kind)
    c.ask("UNSUBSCRIBE", consumer_id=1)


@by_type
def last_message_id_after_everything(s, kind):
    """Of skipped, cleared, expired and trimmed messages."""
    topic = s.topic("t", namespace(s))
    c = join(s, topic, kind, permits=0)
    published(s, topic, 3)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    s.call("POST", rest(topic, "/subscription/sub/skip/1"))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published_batches(s, topic, [b"x"] * 3)
    s.call("POST", rest(topic, "/subscription/sub/skip_all"))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    s.note("backlog", backlog(s, topic))
    c.send("FLOW", consumer_id=1, messagePermits=5)
    published(s, topic, 1, 9)
    s.note("came", texts(drained(c)))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
