"""Deduplication: chunks, ranges of sequence ids that overlap, names in metadata, coming back."""

from harness.steps import batch, namespace, rest, stats, texts
from transcript import scenario

CHUNK = dict(uuid="u", num_chunks_from_msg=3, total_chunk_msg_size=9)


def topic_with_deduplication(s):
    """A topic on which it is in force, and a connection."""
    return s.topic(namespace=namespace(s, deduplication=True)), s.connect()


def send(c, producer_id, sequence_id, payload=b"x", command=None, **metadata):
    c.publish(producer_id, sequence_id, payload, command, **metadata)
    return c.recv()


@scenario
def chunk_is_what_command_and_metadata_call_so(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    for chunk in range(3):
        send(c, 1, 0, command=dict(is_chunk=True), chunk_id=chunk, **CHUNK)
    for chunk in range(3):
        send(c, 1, 0, command=dict(is_chunk=True), chunk_id=chunk, **CHUNK)
    for chunk in range(3):
        send(c, 1, 1, chunk_id=chunk, **CHUNK)
    for chunk in range(3):
        send(c, 1, 1, command=dict(is_chunk=True), chunk_id=chunk, **CHUNK)


@scenario
def chunk_flag_without_chunk_metadata(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    send(c, 1, 0, command=dict(is_chunk=True))
    c.recv(0.5)
    plain = s.topic("plain")
    d = s.connect()
    d.producer(plain, 1, producer_name="a")
    send(d, 1, 0, command=dict(is_chunk=True))


@scenario
def chunk_that_is_the_last_one_is_judged(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    for sequence_id, chunk in enumerate((1, 2, 0, 2)):
        send(c, 1, sequence_id, command=dict(is_chunk=True), chunk_id=chunk, **CHUNK)
        send(c, 1, sequence_id, command=dict(is_chunk=True), chunk_id=chunk, **CHUNK)


@scenario
def ranges_of_sequence_ids_that_overlap(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    for first, highest in ((0, 4), (3, 6), (4, 4), (5, 5), (5, 2), (6, 9), (9, 12), (10, 8), (10, 10), (11, 0)):
        command = dict(highest_sequence_id=highest, num_messages=2)
        send(c, 1, first, batch(b"a", b"b"), command, num_messages_in_batch=2)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="a")


@scenario
def sequence_ids_of_the_metadata_do_not_count(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    send(c, 1, 5, producer_name="other", highest_sequence_id=50)
    send(c, 1, 6, producer_name="other")
    send(c, 1, 6, producer_name="another")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="other")


@scenario
def metadata_counts_when_the_topic_is_loaded_again(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    send(c, 1, 5, producer_name="other", highest_sequence_id=50)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="other")


@scenario
def far_sequence_ids(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    for sequence_id in (2**62, 2**62, 2**63 - 1, 2**63 - 1, 2**63, 2**64 - 1, 0):
        send(c, 1, sequence_id)


@scenario
def bad_checksums_leave_no_trace(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    c.publish(1, 3, bad_crc=True)
    c.recv()
    send(c, 1, 3)
    c.publish(1, 3, bad_crc=True)
    c.recv()


@scenario
def two_producers_of_one_name_one_after_the_other(s):
    topic, c = topic_with_deduplication(s)
    d = s.connect()
    c.producer(topic, 1, producer_name="a")
    send(c, 1, 7)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    d.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    d.producer(topic, 1, producer_name="a")
    send(d, 1, 7)
    send(d, 1, 8)


@scenario
def what_is_refused_as_a_repeat_reaches_nobody(s):
    topic, c = topic_with_deduplication(s)
    c.producer(topic, 1, producer_name="a")
    reader = s.connect()
    reader.subscribe(topic, "reader", 1, 100, quietly=True)
    for sequence_id in (0, 1, 1, 0, 2, 2, 5, 3, 6):
        c.publish_all(1, [b"%d" % sequence_id], sequence_id)
    s.note("read", texts(iter(lambda: reader.recv_quietly(0.5), None)))


@scenario
def deduplication_of_a_namespace_and_of_its_topics(s):
    ns = namespace(s, deduplication=True)
    on, off = s.topic("on", ns), s.topic("off", ns)
    c = s.connect()
    for i, topic in enumerate((on, off)):
        c.producer(topic, i, producer_name="a")
        send(c, i, 3)
        send(c, i, 3)
    s.http("POST", rest(off, "/deduplicationEnabled"), False, quietly=True)
    s.eventually("off", lambda: c.publish_all(1, [b"x"], 3)[0]["ledgerId"] != 2**64 - 1)
    send(c, 1, 2)
    send(c, 0, 2)
    c.producer(off, 5, producer_name="b")


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
