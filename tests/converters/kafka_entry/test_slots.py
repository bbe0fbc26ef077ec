import pytest

from magnetar.converters.errors import ConversionCountError, ConversionError, ConversionTooLargeError
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import DecompressedTooLargeError
from magnetar.converters.kafka.message_builder import build_message_set, encode_message
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka_entry.options import KafkaOptions
from magnetar.converters.kafka_entry.single_message import HOLE
from magnetar.converters.kafka_entry.slots import SlotWriter
from magnetar.protocol.pulsar_api_pb2 import SingleMessageMetadata


def records(*offsets):
    return [Record(offset, 5, None, b"%d" % offset) for offset in offsets]


def batch(*offsets, **options):
    return build_record_batch(records(*offsets), BatchOptions(**options))


def write(data, declared, max_bytes=10_000, **options):
    writer = SlotWriter(KafkaOptions(), declared, max_bytes, **options)
    for each in RecordSet(data).batches():
        writer.add(each)
    writer.finish()
    return writer


def slots(writer):
    """The values by slot, None for a hole."""
    got, pos, payload = [], 0, bytes(writer.payload)
    while pos < len(payload):
        end = pos + 4 + int.from_bytes(payload[pos : pos + 4], "big")
        single = SingleMessageMetadata.FromString(payload[pos + 4 : end])
        pos = end + single.payload_size
        got.append(None if single.compacted_out else payload[end:pos])
    assert [i for i, value in enumerate(got) if value is None] == writer.holes
    return got


def control(offset):
    return batch(offset, control=True, transactional=True)


@pytest.mark.parametrize(
    ("data", "declared", "expected"),
    [
        (batch(7, 8), 2, [b"7", b"8"]),
        (batch(7, 9, 12), 6, [b"7", None, b"9", None, None, b"12"]),
        (batch(7, base_offset=5, last_offset_delta=4), 5, [None, None, b"7", None, None]),
        (batch(7) + batch(20, 22), 4, [b"7", b"20", None, b"22"]),  # the gap between batches is no hole
        (batch(7) + control(8) + batch(9), 3, [b"7", None, b"9"]),
        (control(0), 1, [None]),
        (batch(7), 3, [b"7", None, None]),  # declared more: filled at the end
        (build_message_set(records(3, 9), 1), 2, [b"3", b"9"]),
        (build_message_set(records(3, 5), 1, codec=Codec.GZIP), 3, [b"3", None, b"5"]),
        (build_message_set(records(3, 5), 1, codec=Codec.GZIP) + batch(6), 4, [b"3", None, b"5", b"6"]),
        (build_record_batch([], BatchOptions(base_offset=1, last_offset_delta=1)) + batch(3), 3, [None, None, b"3"]),
    ],
)
def test_records_stand_at_their_offsets(data, declared, expected):
    assert slots(write(data, declared)) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (batch(7, 9, 12), [b"7", b"9", b"12"]),
        (batch(7) + control(8) + batch(9, 11), [b"7", b"9", b"11"]),
        (batch(7, base_offset=5, last_offset_delta=4) + build_message_set(records(20, 25), 1), [b"7", b"20", b"25"]),
        (build_message_set(records(3, 5), 1, codec=Codec.GZIP) + batch(9), [b"3", b"5", b"9"]),
    ],
)
def test_dense_records_stand_side_by_side(data, expected):
    writer = write(data, len(expected), dense=True)
    assert slots(writer) == expected
    assert writer.holes == []
    with pytest.raises(ConversionCountError):
        write(data, len(expected) + 1, dense=True)
    with pytest.raises(ConversionCountError):
        write(data, len(expected) - 1, dense=True)


def test_a_negative_count():
    wrong = bytearray(batch(0))
    wrong[57:61] = (-5).to_bytes(4, "big", signed=True)
    (damaged,) = RecordSet(wrong).batches()
    with pytest.raises(ConversionError, match="-5 records"):
        SlotWriter(KafkaOptions(), 10, 1000, dense=True).add(damaged)


def test_carelessly_numbered_inner_messages_keep_their_order():
    inner = b"".join(encode_message(1, 0, 5, None, b"%d" % n) for n in range(3))
    data = encode_message(1, 0, 5, None, compress(Codec.GZIP, inner, magic=1), attributes=Codec.GZIP)
    assert slots(write(data, 3)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "data", [batch(1, 2, 3), batch(1) * 3, build_message_set(records(1, 3), 1, codec=Codec.GZIP), batch(1, 3)]
)
def test_more_than_declared_is_an_error(data):
    with pytest.raises(ConversionCountError, match="2 are declared"):
        write(data, 2)


def test_records_outside_their_batch():
    wrong = bytearray(batch(0, 1, 2, 3))
    wrong[23:27] = (1).to_bytes(4, "big")
    writer = SlotWriter(KafkaOptions(), 10, 1000)
    (damaged,) = RecordSet(wrong).batches()
    with pytest.raises(ConversionError, match="beyond"):
        writer.add(damaged)
    backwards = bytearray(batch(0, 1, 2))
    # The offset deltas of the records are single bytes; turn 1 into 3.
    at = backwards.index(b"\x02\x01\x02" + b"1")
    backwards[at] = 6
    (damaged,) = RecordSet(backwards).batches()
    with pytest.raises(ConversionError, match="out of order"):
        SlotWriter(KafkaOptions(), 10, 1000).add(damaged)


def test_a_negative_span():
    wrong = bytearray(batch(0))
    wrong[23:27] = (-5).to_bytes(4, "big", signed=True)
    (damaged,) = RecordSet(wrong).batches()
    with pytest.raises(ConversionError, match="spans -4"):
        SlotWriter(KafkaOptions(), 10, 1000).add(damaged)


def test_the_output_is_bounded():
    many = build_record_batch([Record(n, 5, b"k" * 20, b"") for n in range(100)])
    with pytest.raises(ConversionTooLargeError):
        write(many, 100, 2_000)
    with pytest.raises(ConversionTooLargeError):
        write(build_message_set([Record(n, 5, b"k" * 20, b"") for n in range(100)], 1), 100, 2_000)
    with pytest.raises(DecompressedTooLargeError):
        write(build_record_batch([Record(0, 5, None, bytes(9_000))], BatchOptions(codec=Codec.GZIP)), 1, 2_000)
    assert len(write(batch(0), 3, 1000).payload) < 1000


def test_a_billion_holes_are_not_written():
    with pytest.raises(ConversionTooLargeError, match="holes"):
        write(batch(0), 1 << 30)
    with pytest.raises(ConversionTooLargeError, match="holes"):
        write(batch(0, (1 << 30) - 1), 1 << 30)
    assert len(HOLE) == 8


def test_headers_that_are_encoded_one_by_one_are_bounded():
    headers = tuple(Header("h", None) for _ in range(20))
    data = build_record_batch([Record(0, 5, None, b"", headers), Record(2, 5, None, b"", headers)])
    assert len(write(data, 3, max_headers=40).holes) == 1
    with pytest.raises(ConversionTooLargeError, match="headers"):
        write(data, 3, max_headers=39)


def cut_wrapper():
    """A wrapper of a message and of many bytes behind it that are no message."""
    inner = build_message_set([Record(0, 5, None, b"")], 1) + bytes(8) + b"\x7f\xff\xff\xff" + bytes(900)
    return encode_message(1, 0, 5, None, compress(Codec.GZIP, inner, magic=1), attributes=Codec.GZIP)


def test_decompressed_bytes_without_output_are_bounded_over_all_batches():
    assert len(slots(write(cut_wrapper() * 4, 4, 1000))) == 4
    with pytest.raises(DecompressedTooLargeError):
        write(cut_wrapper() * 5, 5, 1000)
