"""Redelivery by type of subscription: the messages that come again, their counts, and the figures after each step."""

from harness.consumers import by_type, by_types, join
from harness.figures import figures, internal_figures
from harness.steps import ack, drained, now_ms, published, published_batches, read, rest, told
from transcript import scenario


def redeliver(c, *ids, consumer_id=1, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=consumer_id, message_ids=list(ids), **more)


def came(s, c, what="came", seconds=0.5):
    frames = drained(c, seconds)
    s.note(what, [[f.command.message_id.entryId, f.command.redelivery_count, list(f.command.ack_set)] for f in frames])


@by_type
def redelivered_one_after_another(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published(s, topic, 4)
    came(s, c)
    for chosen in ([ids[1]], [ids[1], ids[3]], [ids[0], ids[0]], []):
        redeliver(c, *chosen)
        came(s, c, f"asked for {len(chosen)}")
        figures(s, topic, "figures")
    ack(c, ids[1])
    redeliver(c, ids[1])
    came(s, c, "acknowledged")
    redeliver(c)
    came(s, c, "all")
    figures(s, topic, "end")


@by_type
def redelivered_batches_in_part(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d"], [b"e", b"f"])
    came(s, c)
    ack(c, ids[0] | dict(ack_set=[0b101]))
    figures(s, topic, "part")
    redeliver(c, ids[0], ids[2])
    came(s, c, "by id")
    figures(s, topic, "by id")
    ack(c, ids[2] | dict(ack_set=[0b10]), ids[1])
    redeliver(c)
    came(s, c, "all")
    figures(s, topic, "all")
    internal_figures(s, topic, "insides")


@by_type
def redelivered_to_the_next_consumer(s, kind):
    topic = s.topic()
    a = join(s, topic, kind, consumer_name="a")
    ids = published(s, topic, 5, partition_key="k")
    came(s, a)
    ack(a, ids[0], ids[2])
    redeliver(a, ids[1])
    came(s, a, "again")
    a.close()
    s.eventually("gone", lambda: "consumerName" not in str(s.http("GET", rest(topic, "/stats"), quietly=True)[1]))
    figures(s, topic, "alone")
    b = join(s, topic, kind, consumer_name="b")
    came(s, b, "next", 1)
    figures(s, topic, "next")


@by_types("Key_Shared")
def redelivered_among_two_consumers(s, kind):
    topic = s.topic()
    a, b = join(s, topic, kind, consumer_name="a", permits=3), join(s, topic, kind, consumer_name="b", permits=3)
    published(s, topic, 6, partition_key="k")
    for each in (a, b):
        came(s, each, each.name)
    figures(s, topic, "both")
    for each in (a, b):
        redeliver(each)
    for each in (a, b):
        came(s, each, each.name)
    for each in (a, b):
        each.send("FLOW", consumer_id=1, messagePermits=10)
        came(s, each, each.name)
    figures(s, topic, "more permits")


@by_types("Exclusive", "Failover")
def redelivered_with_epochs(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n", consumer_epoch=1)
    published(s, topic, 3)
    came(s, c)
    for epoch in (2, 2, 1, 5, 0):
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, consumer_epoch=epoch)
        s.note(f"epoch {epoch}", [[f.payload.decode(), f.command.consumer_epoch] for f in drained(c, 0.5)])
    figures(s, topic, "end")


@by_type
def redelivered_after_an_unload(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published(s, topic, 4)
    came(s, c)
    ack(c, ids[1])
    redeliver(c, ids[0])
    came(s, c, "again")
    s.http("PUT", rest(topic, "/unload"))
    c.recv(5)
    s.lookup(topic)
    d = join(s, topic, kind, consumer_name="n")
    came(s, d, "after", 1.2)
    redeliver(d, ids[0], ids[1])
    came(s, d, "again")
    figures(s, topic, "end")


@by_type
def redelivered_and_skipped(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n", permits=2)
    ids = published(s, topic, 5)
    came(s, c)
    s.http("POST", rest(topic, "/subscription/sub/skip/3"))
    figures(s, topic, "skipped")
    redeliver(c, ids[0], ids[1])
    c.send("FLOW", consumer_id=1, messagePermits=10)
    came(s, c, "after")
    figures(s, topic, "end")


@scenario
def redelivered_delayed_messages(s):
    topic = s.topic()
    c = join(s, topic, "Shared", consumer_name="n")
    ids = published(s, topic, 2, deliver_at_time=now_ms(500))
    s.note("came", told(read(c, 2)))
    redeliver(c, *ids)
    came(s, c, "again")
    published(s, topic, 1, first=5, deliver_at_time=now_ms(3_600_000))
    redeliver(c)
    came(s, c, "all")
    figures(s, topic, "end", ("msgDelayed", "msgBacklogNoDelayed", "lastConsumedTimestamp"))
