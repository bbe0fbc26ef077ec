"""Deduplication: the statistics, cursors and answers after returns of producers, policies and unloads."""

from harness.figures import figures, internal_figures
from harness.steps import batch, drained, namespace, published, rest, stats, texts
from transcript import scenario

NEGATIVE = 2**64 - 5
LEVELS = ("namespace", "topic")


def on(s, level="namespace"):
    """A topic with deduplication from a policy of that level, and a connection."""
    if level == "namespace":
        return s.topic(namespace=namespace(s, deduplication=True)), s.connect()
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, quietly=True)
    s.eventually("enabled", lambda: stats(s, topic)["deduplicationStatus"] == "Enabled")
    return topic, s.connect()


def send(c, *sequence_ids, producer_id=1, **more):
    for sequence_id in sequence_ids:
        c.publish(producer_id, sequence_id, b"%d" % (sequence_id % 1000), **more)
        c.recv()


def content(s, topic, what="content"):
    c = s.connect()
    c.subscribe(topic, "look", 9, 100, quietly=True, durable=False, initialPosition="Earliest")
    s.note(what, texts(drained(c, 0.5)))
    c.close()


def status(s, topic):
    return stats(s, topic)["deduplicationStatus"]


def unload(s, topic, *connections):
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    for c in connections:
        c.recv()
    s.lookup(topic)


for level in LEVELS:

    def returning(s, level=level):
        topic, c = on(s, level)
        c.producer(topic, 1, producer_name="a")
        send(c, 1, 3, 2, 5, 5, 4, 6)
        c.ask("CLOSE_PRODUCER", producer_id=1)
        c.producer(topic, 1, producer_name="a")
        send(c, 6, 7)
        c.ask("CLOSE_PRODUCER", producer_id=1)
        c.producer(topic, 2, producer_name="b")
        send(c, 1, 2, producer_id=2)
        figures(s, topic, "stats")
        internal_figures(s, topic, "insides")
        unload(s, topic, c)
        c.producer(topic, 1, producer_name="a")
        send(c, 7, 8)
        c.producer(topic, 3, producer_name="c")
        send(c, 0, 0, producer_id=3)
        figures(s, topic, "stats again")
        content(s, topic)

    returning.__name__ = f"dedup_of_returning_producers_by_policy_of_the_{level}"
    scenario(returning)


@scenario
def dedup_of_negative_sequence_ids(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    send(c, NEGATIVE, NEGATIVE + 1, NEGATIVE, 0, NEGATIVE, 1)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="a")
    content(s, topic)


@scenario
def dedup_of_negative_sequence_ids_alone(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    send(c, NEGATIVE, NEGATIVE)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="a")
    send(c, NEGATIVE + 1)
    unload(s, topic, c)
    c.producer(topic, 1, producer_name="a")
    send(c, NEGATIVE + 1, 0)


@scenario
def dedup_of_batches_that_overlap(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    for first, highest in ((0, 2), (2, 4), (3, 5), (1, 9), (6, 8), (8, 8), (9, 9)):
        n = highest - first + 1
        more = dict(num_messages_in_batch=n, highest_sequence_id=highest)
        c.publish(1, first, batch(*[b"x"] * n), dict(num_messages=n, highest_sequence_id=highest), **more)
        c.recv()
    figures(s, topic, "stats")
    unload(s, topic, c)
    c.producer(topic, 1, producer_name="a")


@scenario
def dedup_switched_off_and_on_again(s):
    ns = namespace(s, deduplication=True)
    topic, c = s.topic(namespace=ns), s.connect()
    c.producer(topic, 1, producer_name="a")
    send(c, 5, 5, 6)
    s.http("POST", f"/admin/v2/namespaces/{ns}/deduplication", False, quietly=True)
    s.eventually("off", lambda: status(s, topic) == "Disabled")
    send(c, 5, 6, 7)
    internal_figures(s, topic, "insides while off")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="a")
    s.http("POST", f"/admin/v2/namespaces/{ns}/deduplication", True, quietly=True)
    s.eventually("on", lambda: status(s, topic) == "Enabled")
    send(c, 6, 7, 8, 8)
    s.http("DELETE", f"/admin/v2/namespaces/{ns}/deduplication", quietly=True)
    s.eventually("removed", lambda: status(s, topic) == "Disabled")
    send(c, 8, 8)
    internal_figures(s, topic, "insides at the end")
    content(s, topic)


@scenario
def dedup_of_the_topic_against_that_of_the_namespace(s):
    ns = namespace(s, deduplication=True)
    topic, c = s.topic(namespace=ns), s.connect()
    c.producer(topic, 1, producer_name="a")
    send(c, 1, 1)
    s.http("POST", rest(topic, "/deduplicationEnabled"), False, quietly=True)
    s.eventually("off", lambda: status(s, topic) == "Disabled")
    send(c, 1, 1)
    s.http("DELETE", rest(topic, "/deduplicationEnabled"), quietly=True)
    s.eventually("on", lambda: status(s, topic) == "Enabled")
    send(c, 1, 2, 2)
    content(s, topic)


@scenario
def dedup_of_chunks_that_come_twice(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    for sequence_id in (0, 0, 1):
        for chunk in (0, 1):
            metadata = dict(uuid=f"a-{sequence_id}", num_chunks_from_msg=2, total_chunk_msg_size=2, chunk_id=chunk)
            c.publish(1, sequence_id, b"x", dict(is_chunk=True), **metadata)
            c.recv()
    figures(s, topic, "stats")
    unload(s, topic, c)
    c.producer(topic, 1, producer_name="a")


@scenario
def dedup_of_several_producers_of_a_connection(s):
    topic, c = on(s)
    for i, name in enumerate(("a", "b", "c")):
        c.producer(topic, i, producer_name=name)
    for sequence_id in (4, 4, 3, 5):
        for i in range(3):
            send(c, sequence_id, producer_id=i)
    for i in range(3):
        c.ask("CLOSE_PRODUCER", producer_id=i)
    for i, name in enumerate(("a", "b", "c")):
        c.producer(topic, i, producer_name=name)


@scenario
def dedup_of_markers_and_of_messages_without_a_body(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    for i in (0, 0, 1):
        c.publish(1, i, b"", null_value=True)
        c.recv()
    for i in (1, 2, 2):
        c.publish(1, i, b"", dict(marker=True), marker_type=20)
        c.recv()
    figures(s, topic, "stats")
    content(s, topic)


@scenario
def dedup_of_a_producer_that_takes_over_by_a_higher_epoch(s):
    topic, c = on(s)
    d = s.connect()
    c.producer(topic, 1, producer_name="a", epoch=1, user_provided_producer_name=True)
    send(c, 3, 4)
    c.producer(topic, 1, producer_name="a", epoch=2, user_provided_producer_name=True)
    d.producer(topic, 1, producer_name="a", epoch=3, user_provided_producer_name=True)
    send(d, 4, 5)
    send(c, 5, 6)


@scenario
def dedup_and_a_truncated_topic(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    send(c, 3, 4)
    s.http("DELETE", rest(topic, "/truncate"))
    send(c, 4, 5)
    internal_figures(s, topic, "insides")
    unload(s, topic, c)
    c.producer(topic, 1, producer_name="a")
    content(s, topic)


@scenario
def dedup_of_a_topic_deleted_and_made_again(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    send(c, 3, 4)
    s.http("DELETE", rest(topic, "?force=true"))
    c.recv()
    s.lookup(topic)
    c.producer(topic, 1, producer_name="a")
    send(c, 4, 4)
    published(s, topic, 2)
    content(s, topic)


@scenario
def dedup_of_sequence_ids_from_the_metadata_of_two_producers_named_alike(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="a")
    c.publish(1, 7, b"one", producer_name="b")
    c.recv()
    c.producer(topic, 2, producer_name="b")
    send(c, 7, 7, producer_id=2)
    c.ask("CLOSE_PRODUCER", producer_id=2)
    c.producer(topic, 2, producer_name="b")
    unload(s, topic, c, c)
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="b")


@scenario
def dedup_snapshot_intervals(s):
    topic, c = on(s)
    s.http("POST", rest(topic, "/deduplicationSnapshotInterval"), 1)
    c.producer(topic, 1, producer_name="a")
    send(c, *range(105))
    internal_figures(s, topic, "insides")
    figures(s, topic, "stats")
    unload(s, topic, c)
    c.producer(topic, 1, producer_name="a")
    internal_figures(s, topic, "insides after the unload")


@scenario
def dedup_on_partitions(s):
    ns = namespace(s, deduplication=True)
    topic, c = f"persistent://{ns}/t", s.connect()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for i in range(2):
        s.lookup(f"{topic}-partition-{i}")
        c.producer(f"{topic}-partition-{i}", i, producer_name="a")
    send(c, 1, 1, producer_id=0)
    send(c, 1, 0, producer_id=1)
    figures(s, f"{topic}-partition-1", "stats")


@scenario
def dedup_on_a_non_persistent_topic(s):
    ns = namespace(s, deduplication=True)
    topic, c = s.topic(namespace=ns, domain="non-persistent"), s.connect()
    c.producer(topic, 1, producer_name="a")
    send(c, 1, 1, 0)
    figures(s, topic, "stats")


@scenario
def dedup_of_negative_sequence_ids_over_an_unload(s):
    topic, c = on(s)
    c.producer(topic, 1, producer_name="p")
    send(c, NEGATIVE)
    unload(s, topic, c)
    c.producer(topic, 1, producer_name="p")
    send(c, 0, 1)
    send(c, NEGATIVE)
    unload(s, topic, c)
    c.producer(topic, 1, producer_name="p")
