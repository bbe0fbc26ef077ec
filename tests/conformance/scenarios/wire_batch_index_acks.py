"""Acknowledgements of messages inside batches: the statistics, and the messages that come again."""

from harness.consumers import by_type, join
from harness.figures import figures, internal_figures
from harness.steps import ack, batch, drained, published, published_batches, read, rest, setup_connection
from transcript import scenario

FOUR = [b"a", b"b", b"c", b"d"]


def bits(message_id, *kept):
    """The id with the set of the messages that stay unacknowledged."""
    return message_id | dict(ack_set=[sum(1 << i for i in kept)])


def shown(s, what, frames):
    s.note(what, [[f.command.message_id.entryId, list(f.command.ack_set), f.command.redelivery_count] for f in frames])


def again(s, c, what="again", ids=(), consumer_id=1):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=consumer_id, message_ids=list(ids))
    shown(s, what, drained(c, 0.4))


@by_type
def batch_messages_acknowledged_one_by_one(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    first, second = published_batches(s, topic, FOUR, FOUR)
    read(c, 2)
    for kept in ((1, 2, 3), (2, 3), (3,)):
        ack(c, bits(first, *kept))
        figures(s, topic, f"kept {kept}")
    again(s, c)
    figures(s, topic, "after redelivery")
    ack(c, bits(first))
    figures(s, topic, "first done")
    ack(c, bits(second, 0, 1))
    ack(c, second)
    figures(s, topic, "second done")


@by_type
def batch_messages_acknowledged_and_then_the_next_batch_cumulatively(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, FOUR, FOUR)
    read(c, 3)
    ack(c, bits(ids[0], 1, 3))
    ack(c, bits(ids[2], 0, 3))
    figures(s, topic, "individual")
    ack(c, ids[1], kind="Cumulative")
    figures(s, topic, "cumulative")
    again(s, c)
    figures(s, topic, "after redelivery")
    internal_figures(s, topic, "insides")


@by_type
def batch_acknowledged_in_part_by_a_consumer_that_leaves(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, FOUR)
    read(c, 2)
    ack(c, bits(ids[0], 0))
    ack(c, bits(ids[1], 0, 1, 2))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    figures(s, topic, "without a consumer")
    d = join(s, topic, kind, permits=3, consumer_name="m")
    shown(s, "next consumer", drained(d, 0.4))
    figures(s, topic, "next consumer")
    d.send("FLOW", consumer_id=1, messagePermits=2)
    shown(s, "with two permits", drained(d, 0.4))
    figures(s, topic, "with two permits")


@by_type
def batch_of_several_acks_in_a_command(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, [b"x"], FOUR, [b"y", b"z"])
    read(c, 4)
    ack(c, bits(ids[0], 0), ids[1], bits(ids[2], 1, 2, 3), bits(ids[3]), quietly=False)
    figures(s, topic, "several")
    again(s, c)
    ack(c, ids[0], bits(ids[2], 1))
    figures(s, topic, "rest")
    again(s, c)


@by_type
def batch_messages_acknowledged_and_seek_to_the_batch(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, FOUR)
    read(c, 2)
    ack(c, bits(ids[0], 0, 1))
    ack(c, ids[1])
    c.ask("SEEK", consumer_id=1, message_id=bits(ids[0], 2, 3))
    c.subscribe(topic, permits=100, quietly=True, subType=kind, consumer_name="n")
    shown(s, "came", drained(c, 1.3))
    figures(s, topic, "after the seek")
    ack(c, bits(ids[0], 3))
    figures(s, topic, "acknowledged")
    again(s, c)


@by_type
def batch_messages_negatively_acknowledged_by_id(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, FOUR, FOUR)
    read(c, 3)
    ack(c, bits(ids[1], 0, 2))
    again(s, c, "by id", [ids[1]])
    again(s, c, "by id and index", [ids[1] | dict(batch_index=2), ids[2] | dict(batch_index=1)])
    figures(s, topic, "after")
    ack(c, bits(ids[1], 2))
    again(s, c, "by id again", [ids[1]])
    figures(s, topic, "end")


@by_type
def batch_acknowledged_in_part_and_skipped(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, FOUR, FOUR)
    read(c, 3)
    ack(c, bits(ids[0], 0, 2))
    ack(c, bits(ids[1], 1))
    s.http("POST", rest(topic, "/subscription/sub/skip/1"))
    figures(s, topic, "skipped one")
    again(s, c)
    s.http("POST", rest(topic, "/subscription/sub/skip_all"))
    figures(s, topic, "skipped all")
    again(s, c)


@by_type
def batch_acknowledged_in_part_beside_another_subscription(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    d = join(s, topic, "Shared", consumer_name="m", subscription="second")
    ids = published_batches(s, topic, FOUR, FOUR)
    read(c, 2)
    read(d, 2)
    ack(c, bits(ids[0], 0, 2))
    ack(d, bits(ids[0], 1), bits(ids[1], 3))
    figures(s, topic, "both")
    again(s, c)
    again(s, d, "second")
    ack(c, ids[1], kind="Cumulative")
    ack(d, *ids)
    figures(s, topic, "end")
    internal_figures(s, topic, "insides")


@by_type
def batch_with_a_cumulative_ack_of_a_part(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, FOUR)
    read(c, 2)
    for i, kept in ((0, (2, 3)), (0, (3,)), (1, (1, 2, 3)), (1, (3,))):
        ack(c, bits(ids[i], *kept), kind="Cumulative", quietly=False)
        figures(s, topic, f"batch {i} kept {kept}")
    again(s, c)
    ack(c, ids[1], kind="Cumulative")
    figures(s, topic, "end")


@by_type
def batch_acks_of_the_batch_size_field(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, FOUR, FOUR)
    read(c, 2)
    ack(c, bits(ids[0], 0, 1) | dict(batch_size=4, batch_index=2))
    figures(s, topic, "size 4")
    ack(c, bits(ids[0], 0) | dict(batch_size=9))
    figures(s, topic, "size 9")
    ack(c, ids[1] | dict(batch_index=1, batch_size=4))
    figures(s, topic, "index without a set")
    again(s, c)


@scenario
def batch_of_two_consumers_of_a_shared_subscription(s):
    """A consumer acknowledges messages of a batch that another consumer holds."""
    topic = s.topic()
    a = join(s, topic, "Shared", consumer_name="a")
    b = join(s, topic, "Shared", consumer_name="b")
    ids = published_batches(s, topic, FOUR, FOUR)
    shown(s, "a", drained(a, 0.4))
    shown(s, "b", drained(b, 0.4))
    ack(a, bits(ids[1], 0))
    ack(b, bits(ids[0], 1))
    figures(s, topic, "crossed")
    again(s, a, "a again")
    shown(s, "b then", drained(b, 0.4))
    again(s, b, "b again")
    shown(s, "a then", drained(a, 0.4))
    figures(s, topic, "after redelivery")
    a.close()
    shown(s, "b gets all", drained(b, 0.6))
    figures(s, topic, "b alone")
    ack(b, *ids)
    figures(s, topic, "end")


@scenario
def batch_acks_and_a_limit_of_unacknowledged_messages(s):
    topic = s.topic()
    s.http("POST", rest(topic, "/maxUnackedMessagesOnConsumer"), 6, quietly=True)
    c = join(s, topic, "Shared", consumer_name="n")
    ids = published_batches(s, topic, *[FOUR] * 4)
    shown(s, "first", drained(c, 0.5))
    figures(s, topic, "blocked")
    ack(c, bits(ids[0], 3), bits(ids[1], 2, 3))
    shown(s, "after parts", drained(c, 0.5))
    ack(c, ids[0])
    ack(c, ids[1])
    shown(s, "after both", drained(c, 0.5))
    figures(s, topic, "end")


@by_type
def compressed_and_keyed_batches_acknowledged_in_part(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    p = setup_connection(s)
    p.producer(topic, 5, quietly=True, producer_name="q")
    ids = p.publish_all(5, [batch(b"a", b"b"), batch(b"c", b"d")], 0, partition_key="k", num_messages_in_batch=2)
    ids += published(s, topic, [b"single"], 9)
    shown(s, "came", drained(c, 0.4))
    ack(c, bits(ids[0], 1))
    ack(c, ids[2])
    figures(s, topic, "parts")
    again(s, c)
    s.http("POST", rest(topic, "/subscription/sub/expireMessages/100000"))
    figures(s, topic, "end")
