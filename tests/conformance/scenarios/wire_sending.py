"""SEND in all its fields: the broker's answer and the consumer's message."""

from harness.steps import ack, backlog, batch, namespace, read, rest, setup_connection
from transcript import encode, encode_send, scenario

COMPRESSIONS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
SHARED = dict(subType="Shared", quietly=True)


def sender(s, topic, permits=100, **more):
    """A connection with a producer and, on another, a consumer that reads all."""
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p", **more)
    d.subscribe(topic, "sub", 1, quietly=True, permits=permits)
    d.ask("CONSUMER_STATS", quietly=True, consumer_id=1)  # the permits have arrived
    return c, d


def sent(c, d, seconds=0.5, **how):
    """A SEND, its answer and the consumer's message."""
    how = {"producer_id": 1, "sequence_id": 0} | how
    c.publish(**how)
    c.recv(2)
    d.recv(seconds)


@scenario
def counts_of_messages_that_differ(s):
    """num_messages of the command against num_messages_in_batch and the messages in the batch."""
    c, d = sender(s, s.topic())
    for i, (command, metadata, payloads) in enumerate(
        (
            ({"num_messages": 3}, {"num_messages_in_batch": 2}, (b"a", b"b")),
            ({"num_messages": 2}, {"num_messages_in_batch": 3}, (b"a", b"b")),
            ({"num_messages": 2}, {}, (b"a", b"b")),
            ({}, {"num_messages_in_batch": 2}, (b"a", b"b")),
            ({"num_messages": 1}, {"num_messages_in_batch": 1}, (b"a",)),
            ({"num_messages": 2}, {"num_messages_in_batch": -1}, (b"a", b"b")),
            ({"num_messages": 1000}, {"num_messages_in_batch": 1000}, (b"a",)),
        )
    ):
        sent(c, d, sequence_id=i, payload=batch(*payloads), command=command, **metadata)


@scenario
def highest_sequence_ids_without_deduplication(s):
    c, d = sender(s, s.topic())
    for low, high in ((0, 5), (5, 5), (5, 3), (0, 0), (2**63, 2**64 - 1), (1, 2**64 - 1), (10, 12)):
        sent(c, d, sequence_id=low, command={"highest_sequence_id": high}, highest_sequence_id=high)


@scenario
def highest_sequence_ids_with_deduplication(s):
    ns = namespace(s, deduplication=True)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c, d = sender(s, topic)
    for low, high in (
        (0, 5),
        (5, 5),
        (3, 8),
        (6, 8),
        (9, 7),
        (9, 9),
        (8, 20),
        (10, 20),
        (21, None),
        (20, None),
        (22, 22),
    ):
        more = {} if high is None else {"highest_sequence_id": high}
        sent(c, d, sequence_id=low, command=more, **more)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def sequence_ids_that_jump_with_deduplication(s):
    ns = namespace(s, deduplication=True)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c, d = sender(s, topic)
    for sequence_id in (5, 5, 4, 6, 100, 50, 101, 2**62, 2**62 - 1, 2**63 - 1, 0):
        sent(c, d, sequence_id=sequence_id)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def flags_of_the_command(s):
    c, d = sender(s, s.topic())
    for i, command in enumerate(
        (
            {"marker": True},
            {"marker": False},
            {"is_chunk": True},
            {"is_chunk": False},
            {"txnid_least_bits": 0, "txnid_most_bits": 0},
            {"txnid_least_bits": 1},
            {"txnid_most_bits": 1},
            {"txnid_least_bits": 1, "txnid_most_bits": 1},
            {"message_id": {"ledgerId": 1, "entryId": 1}},
            {"marker": True, "is_chunk": True},
            {"num_messages": 5},
        )
    ):
        sent(c, d, sequence_id=i, command=command)


@scenario
def transaction_fields_that_are_not_whole(s):
    """Both halves make a transaction, be they nothing."""
    c, d = sender(s, s.topic())
    for i, halves in enumerate(
        ((0, None), (None, 0), (0, 0), (2**64 - 1, None), (None, 2**64 - 1), (2**64 - 1, 2**64 - 1))
    ):
        names = ("txnid_least_bits", "txnid_most_bits")
        sent(c, d, sequence_id=i, command={n: v for n, v in zip(names, halves, strict=True) if v is not None})


@scenario
def fields_of_the_metadata_that_mean_something(s):
    c, d = sender(s, s.topic())
    for i, metadata in enumerate(
        (
            {"marker_type": 10},
            {"marker_type": 0},
            {"txnid_least_bits": 1, "txnid_most_bits": 1},
            {"null_value": True},
            {"null_partition_key": True, "partition_key": ""},
            {"replicated_from": "other"},
            {"replicate_to": ["other"]},
            {"replicate_to": ["__local__"]},
            {"ordering_key": b""},
            {"event_time": 2**63},
            {"highest_sequence_id": 9},
            {"uuid": "u"},
            {"num_chunks_from_msg": 1, "chunk_id": 0, "total_chunk_msg_size": 1, "uuid": "u"},
            {"schema_version": b"\0" * 8},
            {"schema_version": b""},
            {"schema_version": b"\0" * 7 + b"\x09"},
            {"schema_id": b"\x01\x02"},
            {"partition_key": "k", "partition_key_b64_encoded": True},
            {"encryption_keys": [{"key": "k", "value": b"v"}], "encryption_param": b"p", "encryption_algo": "a"},
            {"uncompressed_size": 0},
            {"uncompressed_size": 2**32 - 1},
            {"properties": [{"key": "", "value": ""}, {"key": "k", "value": "1"}, {"key": "k", "value": "2"}]},
            {"producer_name": "another"},
            {"producer_name": ""},
            {"publish_time": 0},
            {"publish_time": 2**64 - 1},
        )
    ):
        sent(c, d, sequence_id=i, **metadata)


@scenario
def empty_payloads_of_every_kind(s):
    c, d = sender(s, s.topic())
    for i, metadata in enumerate(
        (
            {},
            {"null_value": True},
            {"num_messages_in_batch": 1},
            {"compression": "LZ4", "uncompressed_size": 0},
            {"partition_key": "k"},
        )
    ):
        sent(c, d, sequence_id=i, payload=b"", **metadata)


@scenario
def compressions_that_are_not_what_they_say(s):
    """The broker passes payloads on as they are."""
    c, d = sender(s, s.topic())
    for i, kind in enumerate(COMPRESSIONS):
        sent(c, d, sequence_id=i, payload=b"not compressed", compression=kind, uncompressed_size=5)
        sent(
            c, d, sequence_id=i, payload=b"not a batch", compression=kind, uncompressed_size=5, num_messages_in_batch=3
        )


@scenario
def chunks_in_and_out_of_order(s):
    c, d = sender(s, s.topic())
    for i, (uuid, chunk, of) in enumerate(
        (
            ("a", 0, 3),
            ("a", 2, 3),
            ("a", 1, 3),
            ("b", 1, 2),
            ("b", 0, 2),
            ("c", 0, 2),
            ("c", 0, 2),
            ("d", 5, 2),
            ("e", -1, 2),
            ("", 0, 2),
        )
    ):
        sent(
            c, d, sequence_id=i, command={"is_chunk": True}, uuid=uuid, chunk_id=chunk, num_chunks_from_msg=of, total_chunk_msg_size=of
        )  # fmt: skip


@scenario
def chunks_that_are_never_whole_with_shared_consumers(s):
    topic = s.topic()
    c, d, e = s.connect(), s.connect(), s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for client in (d, e):
        client.subscribe(topic, "sub", 1, quietly=True, subType="Shared", permits=10)
    for i in range(4):
        c.publish(1, i, command={"is_chunk": True}, uuid="u", chunk_id=i, num_chunks_from_msg=9, total_chunk_msg_size=9)
        c.recv()
    s.note("messages", sum(1 for client in (d, e) for _ in iter(lambda client=client: client.recv_quietly(0.4), None)))


@scenario
def delays_of_every_time(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    d.subscribe(topic, "sub", 1, quietly=True, subType="Shared", permits=20)
    for i, time in enumerate((0, 1, -1, -(2**63))):
        c.publish(1, i, deliver_at_time=time)
        c.recv()
        d.recv(1)
    c.publish(1, 9, b"far", deliver_at_time=2**63 - 1)
    c.recv()
    d.none(0.4)


@scenario
def sends_to_producers_that_are_not_there(s):
    topic = s.topic()
    for name, steps in (
        ("never", lambda c: None),
        (
            "closed",
            lambda c: (
                c.producer(topic, 1, quietly=True, producer_name="a"),
                c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1),
            ),
        ),
        ("refused", lambda c: c.producer("bad://x", 1, quietly=True)),
        ("other id", lambda c: c.producer(topic, 2, quietly=True, producer_name="b")),
    ):
        c = s.connect(name)
        steps(c)
        c.publish(1, 0)
        c.recv(2)
        c.recv(2)


@scenario
def send_to_a_producer_whose_topic_was_unloaded(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    s.call("PUT", rest(topic, "/unload"))
    c.recv()
    for i in range(3):
        c.publish(1, i)
    c.none(0.5)
    s.lookup(topic)
    c.producer(topic, 1, producer_name="a", epoch=1)
    for i in range(3):
        c.publish(1, i)
        c.recv()


@scenario
def receipts_and_errors_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.raw(b"".join(encode_send(1, i) for i in range(5)) + encode("PING") + encode_send(1, 5), "5 SENDs, PING, SEND")
    for _ in range(6):
        c.recv()


@scenario
def encrypted_topic_and_every_kind_of_message(s):
    ns = namespace(s, encryptionRequired=True)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c, d = sender(s, topic, encrypted=True)
    key = {"encryption_keys": [{"key": "k", "value": b"v"}]}
    for i, how in enumerate(
        ({}, key, {"encryption_algo": "x"}, {"encryption_param": b"x"}, key | {"num_messages_in_batch": 2}, {})
    ):
        sent(c, d, sequence_id=i, **how)
    c.publish(1, 9, bad_crc=True)
    c.recv()
    c.publish(1, 10, command={"marker": True})
    c.recv()


@scenario
def message_sizes_limited_by_policy(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    s.call("POST", rest(topic, "/maxMessageSize"), 100)
    s.eventually("in force", lambda: c.publish_all(1, [b"x" * 500])[0] is None)

    def answered(size, **how):
        keep, s.lines = s.lines, []
        c.publish(1, size, b"x" * size, **how)
        frame = c.recv_quietly()
        s.lines = keep
        s.note(f"{size} {sorted(how)}", [frame.type, getattr(frame.command, "error", None)])

    for size in (10, 30, 50, 60, 61, 62, 63, 64, 65, 70, 90, 99, 100, 101, 200):
        answered(size)
    answered(50, properties=[{"key": "k" * 50, "value": "v"}])
    answered(50, command={"num_messages": 2}, num_messages_in_batch=2)
    answered(500, bad_crc=True)
    answered(50, crc=False)
    answered(68, crc=False)
    s.call("DELETE", rest(topic, "/maxMessageSize"))
    s.eventually("free", lambda: c.publish_all(1, [b"x" * 500])[0] is not None)


@scenario
def odd_sends_to_a_non_persistent_topic(s):
    for i, how in enumerate(
        (
            {"payload": b"x" * 100_000},
            {"bad_crc": True},
            {"crc": False},
            {"command": {"marker": True}},
            {"command": {"txnid_least_bits": 1, "txnid_most_bits": 1}},
            {"command": {"txnid_least_bits": 1}},
            {"command": {"message_id": {"ledgerId": 1, "entryId": 1}}},
            {"command": {"num_messages": 0}},
            {"command": {"num_messages": -1}},
            {"command": {"highest_sequence_id": 9}},
            {"command": {"is_chunk": True}},
            {"entry": b""},
            {"entry": b"a", "crc": False},
            {"entry": b"ab", "crc": False},
            {"entry": b"garbage"},
            {"deliver_at_time": 2**62},
            {"encryption_keys": [{"key": "k", "value": b"v"}]},
        )
    ):
        c, d = sender(s, s.topic(f"t{i}", domain="non-persistent"))
        sent(c, d, **how)
        sent(c, d, sequence_id=1, payload=b"after")
        c.close()
        d.close()


@scenario
def batch_of_one_message(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    p = setup_connection(s)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    p.publish(1, 0, batch(b"a"), num_messages_in_batch=1)
    id_ = p.recv().message_id
    s.lines = keep
    c.recv()
    ack(c, id_ | dict(ack_set=[1], batch_size=1))
    s.note("backlog", backlog(s, topic))
    ack(c, id_ | dict(ack_set=[0], batch_size=1))
    s.note("backlog", backlog(s, topic))


@scenario
def batch_with_an_event_time_and_properties_of_each(s):
    """The inside of a batch is the clients' own."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    payload = batch(b"a", b"b", event_time=[1, 2], partition_key=["x", "y"], sequence_id=[0, 1])
    more = dict(num_messages_in_batch=2, event_time=9, properties=[dict(key="k", value="v")])
    c.publish(1, 0, payload, command=dict(num_messages=2, highest_sequence_id=1), **more)
    c.recv_sorted(2)


@scenario
def largest_message(s):
    """Just under five mebibytes with its metadata."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, bytes(5_242_000))
    c.recv_sorted(2)


@scenario
def send_with_a_message_id_of_its_own(s):
    """Only a shadow topic looks at it."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, command=dict(message_id=dict(ledgerId=77, entryId=88)))
    c.recv()


@scenario
def batch_and_single_messages_in_one_write(s):
    topic = s.topic()
    c, p = s.connect(), setup_connection(s)
    c.subscribe(topic, permits=100, quietly=True)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    for i, n in enumerate((1, 3, 1, 2)):
        more = dict(num_messages_in_batch=n) if n > 1 else {}
        p.publish(1, 10 * i, batch(*[b"x"] * n) if n > 1 else b"x", command=dict(num_messages=n), **more)
    s.lines = keep
    s.note("receipts", [p.recv_quietly().command.sequence_id for _ in range(4)])
    s.note("index", [f.entry_metadata.index for f in read(c, 4)])


@scenario
def highest_sequence_ids_beyond_an_int64(s):
    c, d = sender(s, s.topic())
    for low, high in ((0, 2**63 - 1), (1, 2**63), (2, 2**63 + 7), (2**63 + 1, 2**63), (2**63 + 3, 8), (2**64 - 1, 0)):
        sent(c, d, sequence_id=low, command={"highest_sequence_id": high})
