"""Fixed bytes, computed independently of this code: a change of them breaks every client."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol import _pure, replies
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.key_hash import murmur3_32, murmur3_32_with_each, sticky_hash
from magnetar.protocol.runs import EntryFlag, EntryRun
from magnetar.protocol.topic_name import topics_hash

try:
    from magnetar.protocol import _speedups
except ImportError:
    TWINS = [_pure]
else:
    TWINS = [_pure, _speedups]
twin = pytest.mark.parametrize("speed", TWINS, ids=lambda module: module.__name__.rpartition(".")[2])

SEND = bytes.fromhex("000000270000000808063204080110070e015dbb2b140000000c0a017010071880d095ffbc3168656c6c6f")
RECEIPT = bytes.fromhex("000000260000002208073a1e080110071a1608ffffffffffffffffff0110ffffffffffffffffff012000")
PREFIX = bytes.fromhex("0e02000000090881d095ffbc311009")


def q(*values):
    return array("q", values).tobytes()


@twin
def test_crc32c(speed):
    assert speed.crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"456789", crc32c(b"123")) == 0xE3069283


@twin
def test_send(speed):
    consumed, items, error = speed.cut(SEND, 0, len(SEND), 1 << 20)
    assert (consumed, error, len(items)) == (len(SEND), None, 1)
    run = EntryRun.from_cut(items[0])
    assert (run.producer_id, run.count, run.sequence(0), run.total_messages) == (1, 1, 7, 1)
    assert run.any_flags == EntryFlag.HAS_CHECKSUM
    assert bytes(run.entry(0)) == SEND[16:]


@twin
def test_a_flipped_bit_is_a_bad_checksum(speed):
    broken = SEND[:-1] + bytes([SEND[-1] ^ 1])
    _, items, error = speed.cut(broken, 0, len(broken), 1 << 20)
    assert error is None
    assert items[0][9] == EntryFlag.HAS_CHECKSUM | EntryFlag.BAD_CHECKSUM


@twin
def test_metadata_without_a_required_field_is_unreadable(speed):
    meta = pb.MessageMetadata(producer_name="p", sequence_id=1).SerializePartialToString()
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = 1, 2
    encoded = command.SerializeToString()
    payload = len(meta).to_bytes(4, "big") + meta
    frame = (4 + len(encoded) + len(payload)).to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded + payload
    assert speed.cut(frame, 0, len(frame), 1 << 20)[1][0][9] == EntryFlag.UNREADABLE


@twin
@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("00100000", "frame of 1048576 bytes is larger than the limit"),
        ("00000003000000", "frame of 3 bytes holds no command"),
        ("000000060000000008011001", "command of 0 bytes in a frame of 6"),
        ("0000000600000003" + "080110", "command of 3 bytes in a frame of 6"),
        ("0000000800000004" + "32020801", "command without a known type"),
        ("0000000800000004" + "08063200", "SEND does not parse"),
    ],
)
def test_broken_frames_are_named(speed, frame, text):
    data = bytes.fromhex(frame)
    assert speed.cut(data, 0, len(data), 1 << 20) == (0, [], text)


@twin
def test_receipt_of_a_duplicate(speed):
    assert speed.encode_receipts(1, q(7), q(0), 0, 1, -1, -1, 0) == RECEIPT


@twin
def test_stored_prefix(speed):
    slab, offsets = speed.stamp(b"xyz", q(0, 3), q(1), 0, 1, 5, 6, 4, 1_700_000_000_001, 8)
    assert slab[32:] == PREFIX + b"xyz"
    assert offsets == q(0, len(slab))
    assert _pure.RECORD_HEADER.unpack(slab[:32])[2:] == (5, 6, 4)
    assert speed.scan_records(slab, 0, len(slab), 5) == (offsets, len(slab), None)


@twin
def test_messages_parse_as_protobuf(speed):
    slab, offsets = speed.stamp(SEND[16:], q(0, len(SEND) - 16), q(1), 0, 1, 5, 6, 4, 1_700_000_000_001, 8)
    frame = speed.encode_messages(2**64 - 1, slab, offsets, 0, 1, -1, 0, 3, [2])
    size = int.from_bytes(frame[4:8], "big")
    message = pb.BaseCommand.FromString(frame[8 : 8 + size]).message
    assert (message.consumer_id, message.redelivery_count, message.consumer_epoch) == (2**64 - 1, 2, 3)
    assert (message.message_id.ledgerId, message.message_id.entryId, message.message_id.partition) == (5, 6, -1)
    assert message.message_id.HasField("partition")
    assert frame[8 + size :] == SEND[16:]
    kept = speed.encode_messages(1, slab, offsets, 0, 1, -1, 1, -1, None)
    assert kept.endswith(PREFIX + SEND[16:])
    bare = speed.encode_messages(1, slab, offsets, 0, 1, -1, 2, -1, None)
    assert bare.endswith(SEND[22:])
    assert not bare.endswith(SEND[16:])


@twin
@pytest.mark.parametrize(
    ("count", "payload_bytes", "compression", "messages"),
    [
        (3, 18, 0, 3),
        (3, 17, 0, 1),
        (0, 18, 0, 1),
        (-7, 18, 0, 1),
        (2**31 - 1, 5 << 20, 0, 1),
        (5461, 1, pb.ZSTD, 5461),
        (5462, 1, pb.ZSTD, 1),
        (1, 0, 0, 1),
    ],
)
def test_an_entry_counts_the_messages_that_its_bytes_may_hold(speed, count, payload_bytes, compression, messages):
    meta = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=count, compression=compression
    ).SerializeToString()
    body = len(meta).to_bytes(4, "big") + meta + bytes(payload_bytes)
    slab, offsets = speed.stamp(body, q(0, len(body)), q(1), 0, 1, 1, 0, -1, -1, -2)
    facts = speed.entry_facts(slab, offsets, 0, 1, False)
    assert (facts.batch_sizes, facts.total_messages, facts.publish_time) == (q(messages), messages, q(2))


@pytest.mark.parametrize(
    ("key", "murmur", "sticky"),
    [
        ("k1", 2110152746, 24618),
        ("k2", 1479966664, 32712),
        ("key1", 462881061, 293),
        ("key2", 1936800180, 14772),
        ("key01", 39696932, 47652),
        ("key02", 751761803, 63883),
    ],
)
def test_key_hash(key, murmur, sticky):
    assert murmur3_32(key.encode()) == murmur
    assert sticky_hash(key.encode()) == sticky


@twin
def test_key_of_a_message_without_key(speed):
    meta = pb.MessageMetadata(producer_name="p", sequence_id=12, publish_time=2).SerializeToString()
    body = len(meta).to_bytes(4, "big") + meta
    slab, offsets = speed.stamp(body, q(0, len(body)), q(1), 0, 1, 1, 0, -1, -1, -2)
    assert speed.entry_facts(slab, offsets, 0, 1, True).key_hashes == q(murmur3_32(b"p-12"))


def test_topics_hash():
    a, b = "persistent://public/default/a", "persistent://public/default/b"
    assert [topics_hash(x) for x in ([], [a], [b, a])] == ["00000000", "e4a876e3", "c7559e98"]


def test_ping():
    assert replies.ping() == bytes.fromhex("00000009000000050812920100")


@given(st.binary(max_size=20), st.lists(st.binary(max_size=9)))
def test_a_prefix_is_hashed_once_for_many_suffixes(prefix, suffixes):
    assert murmur3_32_with_each(prefix, suffixes) == [murmur3_32(prefix + suffix) for suffix in suffixes]
