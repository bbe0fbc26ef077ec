"""In which order those on one topic are told, and what duplicates count."""

from harness.steps import batch, namespace, rest, stats
from transcript import scenario


def closed(c):
    """Who was told to close, in order."""
    told = [f.command for f in iter(lambda: c.recv_quietly(0.4), None) if f.type.startswith("CLOSE_")]
    return [x.producer_id if hasattr(x, "producer_id") else -x.consumer_id for x in told]


def crowded(s, name):
    topic, c = s.topic(name), s.connect(name)
    for i, producer in enumerate(("zz", "b", "a", "p", "producer-1", "q", "x"), 1):
        c.producer(topic, i, quietly=True, producer_name=producer)
    for i, subscription in enumerate(("zz", "b", "sub", "a", "s1"), 1):
        c.subscribe(topic, subscription, i, quietly=True, subType="Shared")
    return topic, c


@scenario
def order_of_closes_at_an_unload(s):
    topic, c = crowded(s, "t")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.note("closed", closed(c))


@scenario
def order_of_closes_at_a_termination(s):
    topic, c = crowded(s, "t")
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    s.note("closed", closed(c))


@scenario
def order_of_closes_at_a_deletion(s):
    topic, c = crowded(s, "t")
    s.http("DELETE", rest(topic, "?force=true"), quietly=True)
    s.note("closed", closed(c))


@scenario
def duplicates_count_as_messages_that_came_in(s):
    topic, c = s.topic(namespace=namespace(s, deduplication=True)), s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for sequence in (5, 5, 3):
        c.publish(1, sequence)
        c.recv()
    for sequence in (6, 6):
        c.publish(1, sequence, batch(b"a", b"b"), command={"num_messages": 2}, num_messages_in_batch=2)
        c.recv()
    c.publish(1, 20, bad_crc=True)
    c.recv()
    b = stats(s, topic)
    s.note("counts", {k: b[k] for k in ("msgInCounter", "bytesInCounter", "storageSize")})


@scenario
def partitions_of_nothing_where_no_topic_may_be_made(s):
    ns, c = namespace(s, autoTopicCreation={"allowAutoTopicCreation": False}), s.connect()
    topic = f"persistent://{ns}/t-partition-0"
    s.lookup(topic)
    c.producer(topic)
    c.subscribe(topic)
    c.ask("PARTITIONED_METADATA", topic=topic)
    s.note("status", s.http("PUT", rest(topic, "/subscription/a"), "latest", quietly=True)[0])
