"""Frames and commands that are wrong in some way, and errors that the connection survives."""

import struct

from harness.steps import batch, published
from harness.wire import PUBLISH_TIME, checksummed, command, framed, headers_and_payload, metadata_of
from transcript import encode, encode_send, pb, scenario

LIMIT = 5242880 + 10240


def raw_frame(body):
    return struct.pack(">II", len(body) + 4, len(body)) + body


def try_raw(s, name, data, **connect):
    c = s.connect(name, **connect)
    c.raw(data, name, tolerant=True)
    c.recv(3)
    return c


@scenario
def frame_sizes_around_the_limit(s):
    """The limit counts the four bytes of the size itself; its header alone is enough to be closed."""
    for name, size in ("limit", LIMIT - 4), ("one more", LIMIT - 3), ("2^31", 2**31), ("2^32-1", 2**32 - 1):
        try_raw(s, name, struct.pack(">I", size))


@scenario
def frame_with_a_negative_command_size(s):
    try_raw(s, "command size -1", struct.pack(">Ii", 8, -1) + bytes(4))
    try_raw(s, "command size 0", struct.pack(">II", 8, 0) + bytes(4))


@scenario
def bytes_after_a_simple_command_are_ignored(s):
    topic = s.topic()
    base, _ = command("LOOKUP", dict(topic=topic, request_id=5))
    try_raw(s, "trailing bytes", framed(base, b"trailing bytes"))


@scenario
def missing_required_fields_close(s):
    for name, fields in dict(
        LOOKUP=dict(request_id=1),
        PRODUCER=dict(topic="t", request_id=1),
        SUBSCRIBE=dict(topic="t", subscription="s", consumer_id=1, request_id=1),
        FLOW=dict(consumer_id=1),
        ACK=dict(consumer_id=1),
        SEEK=dict(consumer_id=1),
        CLOSE_PRODUCER=dict(producer_id=1),
    ).items():
        try_raw(s, name.lower(), encode(name, **fields))


@scenario
def unknown_fields_are_ignored(s):
    """A newer client may set fields that this broker does not know."""
    topic = s.topic()
    base, _ = command("LOOKUP", dict(topic=topic, request_id=5))
    unknown = base.SerializeToString() + bytes.fromhex("fa3f03616263")
    try_raw(s, "unknown field", raw_frame(unknown))


@scenario
def unknown_enum_value_of_a_required_field(s):
    """subType 9 does not exist."""
    topic = s.topic()
    inner = pb.CommandSubscribe(topic=topic, subscription="sub", subType="Exclusive", consumer_id=1, request_id=1)
    text = inner.SerializeToString().replace(b"\x18\x00", b"\x18\x09")
    base = b"\x08\x04\x22" + bytes([len(text)]) + text
    try_raw(s, "subType 9", raw_frame(base))


@scenario
def unknown_enum_value_of_an_optional_field(s):
    """producer_access_mode 9 does not exist."""
    topic = s.topic()
    inner = pb.CommandProducer(topic=topic, producer_id=1, request_id=1, producer_name="p")
    text = inner.SerializeToString() + b"\x50\x09"
    base = b"\x08\x05\x2a" + bytes([len(text)]) + text
    try_raw(s, "access mode 9", raw_frame(base))


@scenario
def send_without_an_entry(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    base, _ = command("SEND", dict(producer_id=1, sequence_id=0))
    c.raw(framed(base), "SEND without metadata and payload")
    c.recv(3)


@scenario
def send_with_a_cut_off_checksum(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    base, _ = command("SEND", dict(producer_id=1, sequence_id=0))
    c.raw(framed(base, b"\x0e\x01\x00"), "cut off in the checksum")
    c.recv(3)


@scenario
def send_with_metadata_that_does_not_parse(s):
    """The message is stored and has its receipt, and consumers never see it."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, entry=struct.pack(">I", 5) + b"\xff" * 5 + b"payload")
    c.recv()
    c.publish(1, 1, entry=struct.pack(">I", 500) + b"short")
    c.recv()
    c.publish(1, 2, b"good")
    c.recv()
    d.recv()
    d.none()


@scenario
def send_with_metadata_that_lacks_required_fields(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, entry=headers_and_payload(pb.MessageMetadata(producer_name="p"), b"x"))
    c.recv()
    d.none()


@scenario
def send_without_checksum_is_accepted(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, b"plain", crc=False)
    c.recv()
    d.recv()


@scenario
def send_that_brings_its_own_entry_metadata(s):
    """A 0x0e02 part before the checksum: only a broker may write it."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    bem = pb.BrokerEntryMetadata(broker_timestamp=1, index=77).SerializeToString()
    entry = checksummed(headers_and_payload(metadata_of(0, {}), b"x"))
    base, _ = command("SEND", dict(producer_id=1, sequence_id=0))
    c.raw(framed(base, b"\x0e\x02" + struct.pack(">I", len(bem)) + bem + entry), "own entry metadata")
    c.recv(3)
    d.none(1)


@scenario
def bad_checksum_between_good_ones(s):
    """The error comes in its place, the other entries are stored; a bad entry leaves no gap in entries and index."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish(1, 0, b"a")
    c.publish(1, 1, b"b", bad_crc=True)
    c.publish(1, 2, b"c")
    c.recv_sorted(3)
    d.recv()
    d.recv()
    d.none()


@scenario
def empty_payload_is_a_message(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish(1, 0, b"")
    c.recv()
    d.recv()
    c.publish(1, 1, b"", null_value=True)
    c.recv()
    d.recv()


@scenario
def batch_whose_count_is_a_lie(s):
    """The broker looks only at num_messages of the command for the index, at the metadata for the permits."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=3, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish(1, 0, batch(b"a", b"b"), command=dict(num_messages=5), num_messages_in_batch=2)
    c.recv()
    d.recv()
    c.publish(1, 2, b"c", command=dict(num_messages=1))
    c.recv()
    d.recv()
    d.none()


@scenario
def send_with_zero_or_negative_message_count(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    for i, count in enumerate((0, -1, 1)):
        c.publish(1, i, b"x", command=dict(num_messages=count))
        c.recv(3)
        d.recv(3)


@scenario
def flow_of_a_negative_number_closes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    c.send("FLOW", consumer_id=1, messagePermits=2**31)
    c.recv(3)


@scenario
def flow_for_nobody_with_no_permits_is_ignored(s):
    c = s.connect()
    c.send("FLOW", consumer_id=44, messagePermits=0)
    c.none()


@scenario
def empty_and_odd_acks(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    ids = published(s, topic, 2)
    c.recv_quietly(), c.recv_quietly()
    c.ask("ACK", consumer_id=1, ack_type="Individual")
    c.ask("ACK", consumer_id=1, ack_type="Cumulative")
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=ids)
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[dict(ledgerId=10**9, entryId=0)])
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[dict(ledgerId=10**9, entryId=0)])
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0] | dict(entryId=10**6)])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.recv(2)
    c.recv(2)
    c.none()


@scenario
def duplicate_keys_of_producer_metadata_close(s):
    topic = s.topic()
    twice = [dict(key="k", value="1"), dict(key="k", value="2")]
    c = s.connect()
    c.send("PRODUCER", topic=topic, producer_id=1, request_id=1, metadata=twice)
    c.recv(3)
    d = s.connect()
    d.send("SUBSCRIBE", topic=topic, subscription="s", subType="Shared", consumer_id=1, request_id=1, metadata=twice)
    d.recv(3)


@scenario
def schema_without_a_name_closes(s):
    topic = s.topic()
    c = s.connect()
    c.send("PRODUCER", topic=topic, producer_id=1, request_id=1, schema=dict(type="String"))
    c.recv(3)


@scenario
def publish_time_zero_and_odd_sequence_ids(s):
    """The broker echoes all sequence ids unchanged."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for sequence in (5, 5, 0, 2**63 - 1, 2**64 - 1, 2**63):
        c.publish(1, sequence, publish_time=PUBLISH_TIME)
        c.recv(3)


@scenario
def requests_after_a_failed_one_go_on(s):
    c = s.connect()
    topic = s.topic()
    for request in (
        ("PRODUCER", dict(topic="a/b", producer_id=1)), ("SUBSCRIBE", dict(topic="a/b", subscription="s", subType="Shared", consumer_id=1)),
        ("SEEK", dict(consumer_id=5)), ("UNSUBSCRIBE", dict(consumer_id=5)), ("GET_LAST_MESSAGE_ID", dict(consumer_id=5)),
        ("GET_SCHEMA", dict(topic="a/b")), ("LOOKUP", dict(topic="a/b")), ("PARTITIONED_METADATA", dict(topic="a/b")),
        ("CLOSE_CONSUMER", dict(consumer_id=5)), ("CLOSE_PRODUCER", dict(producer_id=5)), ("WATCH_TOPIC_LIST_CLOSE", dict(watcher_id=5)),
        ("NEW_TXN", dict()), ("PRODUCER", dict(topic=topic, producer_id=1, producer_name="a")),
    ):  # fmt: skip
        c.ask(request[0], **request[1])


@scenario
def ids_and_request_ids_at_their_ends(s):
    c = s.connect()
    topic = s.topic()
    for i, number in enumerate((0, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)):
        c.ask("PRODUCER", topic=topic, producer_id=number, producer_name=f"p{i}", request_id=number)
        c.ask("SUBSCRIBE", topic=topic, subscription="s", subType="Shared", consumer_id=number, request_id=number)
        c.publish(number, number)
        c.recv()


@scenario
def frames_that_are_cut_or_stretched(s):
    good = encode("LOOKUP", topic="persistent://public/default/x", authoritative=False, request_id=1)
    for note, data in (
        ("nothing", b"\0\0\0\0"), ("command of no size", struct.pack(">II", 4, 0)), ("a size too small", struct.pack(">I", 1) + b"\0"),
        ("a size of three", struct.pack(">I", 3) + b"\0\0\0"), ("bytes behind", struct.pack(">I", len(good)) + good[4:] + b"xxxx"),
        ("twice at once", good + good), ("a command cut off", struct.pack(">II", 8, 4) + good[8:12]),
        ("command size beyond", struct.pack(">II", 8, 100) + good[8:12]), ("a huge size", struct.pack(">I", 2**31 - 1)), ("a negative size", b"\xff" * 8),
    ):  # fmt: skip
        c = s.connect()
        c.raw(data, note, tolerant=True)
        if c.recv(0.6) and note == "twice at once":
            c.recv(2)
        c.close()


@scenario
def sends_that_are_damaged(s):
    topic = s.topic()
    good = encode_send(1, 0, b"hello")
    at = good.index(b"\x0e\x01")
    damaged = {
        "magic": good[:at] + b"\x0e\x03" + good[at + 2 :],
        "checksum": good[: at + 2] + b"\0\0\0\0" + good[at + 6 :],
        "metadata size beyond": good[: at + 6] + b"\x7f\xff\xff\xff" + good[at + 10 :],
        "metadata size negative": good[: at + 6] + b"\xff\xff\xff\xff" + good[at + 10 :],
    }
    for note, data in damaged.items():
        c = s.connect()
        c.producer(topic, 1, quietly=True, producer_name=note)
        c.raw(data, note, tolerant=True)
        c.recv(1)
        c.close()
