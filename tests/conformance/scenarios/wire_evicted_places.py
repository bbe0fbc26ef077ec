"""Places of evicted messages: acknowledged, sought, peeked at, asked for again, by consumers, readers and requests."""

import time

from harness.consumers import by_types, join
from harness.figures import figures
from harness.quotas import CHECK_SECONDS, EVICT, WITHOUT, limit_namespace, plain_topic
from harness.steps import EARLIEST, ack, backlog, drained, published, published_batches, read, rest, stats, texts, told
from transcript import scenario

QUEUES = by_types("Exclusive", "Failover", "Shared", "Key_Shared")


def evicted(s, topic, size):
    """Set the quota and wait for its eviction."""
    limit_namespace(s, topic, EVICT, size)
    s.until(lambda: stats(s, topic)["backlogSize"] < size, 6)
    time.sleep(CHECK_SECONDS / 2)


@QUEUES
def seek_to_what_was_evicted(s, kind):
    topic = plain_topic(s)
    c = join(s, topic, kind, consumer_name="n")
    ids = published(s, topic, [b"%02d" % i * 25 for i in range(10)], partition_key="k")
    s.note("came", len(read(c, 10)))
    evicted(s, topic, 400)
    s.note("left", backlog(s, topic))
    limit_namespace(s, topic, EVICT, 10**6)
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    c.recv(2)
    d = join(s, topic, kind, consumer_name="n")
    s.note("came again", [t[:2] for t in texts(drained(d))])
    s.note("backlog", backlog(s, topic))


@QUEUES
def late_acks_of_evicted_messages(s, kind):
    topic = plain_topic(s)
    c = join(s, topic, kind, consumer_name="n")
    ids = published(s, topic, [b"%02d" % i * 25 for i in range(10)], partition_key="k")
    s.note("came", len(read(c, 10)))
    evicted(s, topic, 400)
    ack(c, *ids[:3], quietly=False)
    if kind in ("Exclusive", "Failover"):
        ack(c, ids[2], kind="Cumulative", quietly=False)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=ids[:2] + ids[8:])
    s.note("again", [[t[0][:2], t[1]] for t in told(drained(c))])
    figures(s, topic, "figures", WITHOUT)
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def last_message_id_and_readers_beside_an_eviction(s):
    topic = plain_topic(s)
    c = join(s, topic, "Exclusive", consumer_name="n", permits=0)
    ids = published(s, topic, [bytes(50)] * 10)
    evicted(s, topic, 300)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    for at, start in enumerate((EARLIEST, ids[2], ids[9])):
        r = s.connect()
        r.subscribe(topic, f"reader-{at}", durable=False, start_message_id=start, permits=100, quietly=True)
        s.note(f"reader {at}", len(drained(r)))
        r.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        r.close()
    s.note("backlog", backlog(s, topic)["sub"])


@scenario
def requests_about_a_subscription_beside_an_eviction(s):
    topic = plain_topic(s)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    published(s, topic, [bytes(50)] * 10)
    evicted(s, topic, 400)
    s.http("GET", rest(topic, "/subscription/a/position/1"))
    s.http("GET", rest(topic, "/backlog"), keep=None)
    s.http("GET", rest(topic, "/subscription/a/analyzeBacklog"), keep=["entries", "messages"])
    s.http("POST", rest(topic, "/subscription/a/skip/1"))
    s.note("backlog", backlog(s, topic))
    s.http("POST", rest(topic, "/subscription/a/resetcursor"), EARLIEST | {"partitionIndex": -1})
    s.note("backlog", backlog(s, topic)["a"] <= 4)


@scenario
def evicted_batches_and_a_reset_into_them(s):
    topic = plain_topic(s)
    c = join(s, topic, "Shared", consumer_name="n", permits=1000)
    ids = published_batches(s, topic, *[[b"%d" % i * 10] * 4 for i in range(8)])
    read(c, 8)
    ack(c, ids[6] | {"ack_set": [0b0011]})
    evicted(s, topic, 400)
    figures(s, topic, "evicted", WITHOUT)
    limit_namespace(s, topic, EVICT, 10**6)
    s.http("POST", rest(topic, "/subscription/sub/resetcursor"), ids[2] | {"partitionIndex": -1, "batchIndex": 1})
    c.recv(2)
    d = join(s, topic, "Shared", consumer_name="n", permits=1000)
    s.note("came", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(d)])


@scenario
def eviction_of_chunks(s):
    topic = plain_topic(s)
    c = join(s, topic, "Shared", consumer_name="n", permits=3)
    p = s.connect()
    p.producer(topic, 1, quietly=True, producer_name="p")
    for message in range(3):
        for i in range(3):
            chunk = dict(uuid=f"p-{message}", num_chunks_from_msg=3, chunk_id=i, total_chunk_msg_size=150)
            p.publish_all(1, [bytes(50)], message, **chunk)
    s.note("came", len(read(c, 3)))
    evicted(s, topic, 600)
    s.note("left", backlog(s, topic))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.send("FLOW", consumer_id=1, messagePermits=100)
    s.note("again", [[f.command.message_id.entryId, f.metadata.chunk_id] for f in drained(c)])


@scenario
def eviction_under_a_limit_of_unacknowledged_messages(s):
    topic = plain_topic(s)
    ns = topic.split("://")[1].rpartition("/")[0]
    s.http("POST", f"/admin/v2/namespaces/{ns}/maxUnackedMessagesPerConsumer", 4, quietly=True)
    time.sleep(0.5)
    c = join(s, topic, "Shared", consumer_name="n")
    ids = published(s, topic, [b"%02d" % i * 25 for i in range(12)])
    s.note("came", len(drained(c)))
    evicted(s, topic, 600)
    s.note("after the eviction", [t[:2] for t in texts(drained(c))])
    ack(c, *ids[:4])
    s.note("after acks", [t[:2] for t in texts(drained(c))])
    ack(c, *ids[4:8])
    s.note("after more acks", [t[:2] for t in texts(drained(c))])
