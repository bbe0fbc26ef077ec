"""SEND: entries, counts and answers; chunks, sizes, deduplication, topics without storage."""

import time

from harness.steps import batch, namespace, now_ms, published, rest
from transcript import encode_send, scenario


@scenario
def receipt_and_message_of_each_metadata_field(s):
    """Fields that the producer set come back unchanged."""
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(
        1,
        3,
        b"zz",
        properties=[dict(key="a", value="1"), dict(key="a", value="2")],
        partition_key="key",
        ordering_key=b"order",
        event_time=5,
        replicated_from="other",
        replicate_to=["x"],
        compression="LZ4",
        uncompressed_size=10,
        schema_version=b"\x00" * 8,
        encryption_algo="algo",
        partition_key_b64_encoded=True,
        null_partition_key=True,
        uuid="u",
        schema_id=b"id",
    )
    c.recv_sorted(2)


@scenario
def compressed_batch_is_passed_on_untouched(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(
        1,
        0,
        b"no zstd at all",
        command=dict(num_messages=4),
        num_messages_in_batch=4,
        compression="ZSTD",
        uncompressed_size=99,
    )
    c.recv_sorted(2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def receipt_of_a_batch_echoes_the_highest_id(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, quietly=True)
    two = batch(b"a", b"b")
    c.publish(1, 0, two, command=dict(num_messages=2, highest_sequence_id=1), num_messages_in_batch=2)
    c.recv()
    c.publish(1, 2, two, command=dict(num_messages=2), num_messages_in_batch=2)
    c.recv()
    c.publish(1, 5, two, command=dict(num_messages=2, highest_sequence_id=4), num_messages_in_batch=2)
    c.recv()
    c.publish(1, 6, b"x", command=dict(highest_sequence_id=6))
    c.recv()


@scenario
def chunks_are_entries_of_their_own(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    for i in range(3):
        c.publish(
            1,
            0,
            b"part%d" % i,
            command=dict(is_chunk=True),
            uuid="p-0",
            chunk_id=i,
            num_chunks_from_msg=3,
            total_chunk_msg_size=15,
        )
        c.recv_sorted(2)


@scenario
def index_counts_across_producers_and_batches(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", quietly=True)
    b.producer(topic, 1, producer_name="b", quietly=True)
    a.publish_all(1, [b"1"])
    b.publish(1, 0, batch(b"2", b"3", b"4"), command=dict(num_messages=3), num_messages_in_batch=3)
    b.recv()
    a.publish_all(1, [b"5"], 1)
    b.subscribe(topic, permits=10, initialPosition="Earliest", quietly=True)
    for _ in range(3):
        b.recv()


@scenario
def index_goes_on_after_an_unload(s):
    c, topic = s.connect(), s.topic()
    published(s, topic, 3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    published(s, topic, 2, 3)
    c.subscribe(topic, permits=10, initialPosition="Earliest", quietly=True)
    for _ in range(5):
        c.recv()


@scenario
def large_message_up_to_the_limit(s):
    """4 MiB pass; the largest that a client may send is maxMessageSize less the metadata."""
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, bytes(4 * 1024 * 1024))
    c.recv_sorted(2)


@scenario
def message_over_the_frame_limit_closes(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, quietly=True)
    c.raw(encode_send(1, 0, bytes(5242880 + 10240)), "over the limit", tolerant=True)
    c.recv(5)


@scenario
def topic_limit_of_the_message_size(s):
    """A policy of the topic is checked after the frame was read."""
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, quietly=True)
    s.http("POST", rest(topic, "/maxMessageSize"), 100, quietly=True)
    time.sleep(1)
    c.publish(1, 0, bytes(1000))
    c.recv()
    c.publish(1, 1, bytes(10))
    c.recv()


@scenario
def sends_after_termination_are_ignored(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, quietly=True)
    c.publish_all(1, [b"a"])
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.recv()
    c.publish(1, 1)
    c.none()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="q", producer_access_mode="Exclusive")
    c.subscribe(topic, "sub", 1, initialPosition="Earliest", permits=10)
    c.recv()
    c.none()


@scenario
def send_with_a_transaction_while_they_are_off(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, command=dict(txnid_least_bits=1, txnid_most_bits=2), txnid_least_bits=1, txnid_most_bits=2)
    c.recv(3)
    c.none(1)


@scenario
def send_of_a_marker(s):
    """A client may not write markers; in any case consumers do not see them."""
    c, topic = s.connect(), s.topic()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, b"", command=dict(marker=True), marker_type=21)
    c.recv(3)
    c.none()
    c.publish(1, 1, b"", command=dict(marker=True), marker_type=13)
    c.recv(3)
    c.none()
    c.publish(1, 2, b"x")
    c.recv_sorted(2)


# deduplication
def deduplicated(s):
    return s.topic(namespace=namespace(s, deduplication=True))


@scenario
def deduplication_of_batches_compares_the_lowest(s):
    c, topic = s.connect(), deduplicated(s)
    c.producer(topic, 1, quietly=True, producer_name="p")
    for first, high in ((0, 4), (3, 8), (5, 9), (5, 9), (4, 20), (10, 10)):
        n = high - first + 1
        c.publish(
            1,
            first,
            batch(*[b"x"] * n),
            command=dict(num_messages=n, highest_sequence_id=high),
            num_messages_in_batch=n,
            highest_sequence_id=high,
        )
        c.recv()


@scenario
def deduplication_checks_the_last_chunk_only(s):
    c, topic = s.connect(), deduplicated(s)
    c.producer(topic, 1, quietly=True, producer_name="p")
    for sequence, chunk in ((0, 0), (0, 0), (0, 1), (0, 0), (0, 1), (1, 0), (1, 1)):
        more = dict(uuid=f"p-{sequence}", chunk_id=chunk, num_chunks_from_msg=2, total_chunk_msg_size=2)
        c.publish(1, sequence, command=dict(is_chunk=True), **more)
        c.recv()


@scenario
def deduplication_is_by_producer_name(s):
    """The name in PRODUCER counts; the name in the metadata has no effect."""
    c, topic = s.connect(), deduplicated(s)
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.producer(topic, 2, quietly=True, producer_name="b")
    for producer in (1, 2):
        for sequence in (0, 1, 1):
            c.publish(producer, sequence, producer_name="same")
            c.recv()


@scenario
def deduplication_survives_an_unload(s):
    c, topic = s.connect(), deduplicated(s)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"a", b"b", b"c"])
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p")
    for sequence in (2, 3):
        c.publish(1, sequence)
        c.recv()


@scenario
def deduplication_switched_on_forgets_what_was_before(s):
    ns = namespace(s)
    c, topic = s.connect(), s.topic("t", ns)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"a", b"b"])
    s.http("POST", f"/admin/v2/namespaces/{ns}/deduplication", True, quietly=True)
    enabled = lambda: s.http("GET", rest(topic, "/stats"), quietly=True)[1]["deduplicationStatus"] == "Enabled"  # noqa: E731
    s.eventually("enabled", enabled)
    for sequence in (1, 1, 0, 2):
        c.publish(1, sequence)
        c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def last_sequence_id_without_deduplication(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="p")
    c.publish_all(1, [b"a", b"b"])
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def duplicate_is_answered_in_its_place(s):
    """Receipts of new messages and of duplicates, many under way at once."""
    c, topic = s.connect(), deduplicated(s)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"a", b"b"])
    for sequence in (0, 2, 3, 1, 3, 4):
        c.publish(1, sequence)
    c.recv_sorted(6)


# topics without storage
def fleeting(s, name="t"):
    return s.topic(name, domain="non-persistent")


@scenario
def non_persistent_message_needs_a_permit(s):
    """Without permits the message is dropped, not kept."""
    c, topic = s.connect(), fleeting(s)
    c.subscribe(topic, permits=1)
    c.producer(topic, 1, quietly=True)
    for i in range(3):
        c.publish(1, i, b"m%d" % i)
        c.recv_sorted(2 if i == 0 else 1)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.none()
    c.publish(1, 3, b"later")
    c.recv_sorted(2)


@scenario
def non_persistent_subscriptions_of_all_types(s):
    topic, p = fleeting(s), s.connect("p")
    for kind in "Exclusive", "Shared", "Failover", "Key_Shared":
        c = s.connect(kind)
        c.subscribe(topic, kind, permits=10, subType=kind, consumer_name="n")
    time.sleep(1.5)
    p.producer(topic, 1, quietly=True)
    p.publish_all(1, [b"one"])
    for c in s.connections:
        if "_" in c.name or c.name[0].isupper():
            c.recv_sorted(2, 1)


@scenario
def non_persistent_seek_redelivery_and_last_id(s):
    c, topic = s.connect(), fleeting(s)
    c.subscribe(topic, permits=10, subType="Shared", quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0)
    c.recv_sorted(2)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.none()
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[dict(ledgerId=0, entryId=0)])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("SEEK", consumer_id=1, message_publish_time=1)
    c.ask("CONSUMER_STATS", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1)


@scenario
def non_persistent_batches_and_exclusive_rules(s):
    a, b, topic = s.connect(), s.connect(), fleeting(s)
    a.subscribe(topic, permits=2)
    b.subscribe(topic)
    b.subscribe(topic, "sub", 2, subType="Shared")
    b.producer(topic, 1, quietly=True)
    b.publish(1, 0, batch(b"a", b"b", b"c"), command=dict(num_messages=3), num_messages_in_batch=3)
    b.recv()
    a.recv()
    b.publish(1, 3)
    b.recv()
    a.none()


@scenario
def non_persistent_readers_and_initial_positions(s):
    a, topic = s.connect(), fleeting(s)
    a.subscribe(topic, "reader", durable=False, permits=10, start_message_id=dict(ledgerId=1, entryId=1))
    a.producer(topic, 1, quietly=True)
    a.publish(1, 0)
    a.recv_sorted(2)
    b = s.connect()
    b.subscribe(topic, "reader")


@scenario
def non_persistent_topic_with_delayed_message(s):
    c, topic = s.connect(), fleeting(s)
    c.subscribe(topic, permits=10, subType="Shared", quietly=True)
    c.producer(topic, 1, quietly=True)
    due = now_ms(60_000)
    keep, s.lines = s.lines, []
    c.publish(1, 0, b"later", deliver_at_time=due)
    s.lines = keep
    frames = [c.recv_quietly(2), c.recv_quietly(2)]
    s.note("at once", sorted(f.type for f in frames if f))


@scenario
def non_persistent_producer_modes_and_schemas(s):
    c, topic = s.connect(), fleeting(s)
    c.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive")
    c.producer(topic, 2, producer_name="y")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 2, producer_name="y", schema=dict(name="s", type="String", schema_data=b""))
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def non_persistent_topic_deleted_under_its_clients(s):
    c, topic = s.connect(), fleeting(s)
    c.producer(topic, 1, quietly=True)
    c.subscribe(topic, "sub", 1, quietly=True)
    s.http("DELETE", rest(topic))
    s.http("DELETE", rest(topic, "?force=true"))
    c.recv_sorted(2)
