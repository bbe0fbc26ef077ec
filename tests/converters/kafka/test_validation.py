import pytest

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, seal_batch
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import (
    CorruptRecordError,
    CrcMismatchError,
    DecompressedTooLargeError,
    InvalidRecordError,
    InvalidTimestampError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from magnetar.converters.kafka.message_builder import build_message_set, encode_message
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka.validation import ProduceRules, validate

RECORDS = [Record(n, 100 + n, b"k", b"v") for n in range(3)]
BATCH = build_record_batch(RECORDS)


def patched(start, data, batch=BATCH):
    out = bytearray(batch)
    out[start : start + len(data)] = data
    seal_batch(out, 0, len(out))
    return bytes(out)


def test_a_good_set_is_measured():
    data = build_message_set(RECORDS, 1, codec=Codec.GZIP) + BATCH
    validated = validate(data)
    assert (validated.message_count, validated.max_timestamp, validated.in_place) == (6, 102, True)
    assert [(e.start, e.end, e.magic, e.codec, e.message_count) for e in validated.entries] == [
        (0, len(data) - len(BATCH), 1, Codec.GZIP, 3),
        (len(data) - len(BATCH), len(data), 2, Codec.NONE, 3),
    ]


@pytest.mark.parametrize(
    ("codec", "magic", "offsets", "rebuild"),
    [
        (Codec.NONE, 0, [0, 0, 0], False),
        (Codec.GZIP, 0, [0, 1, 2], True),
        (Codec.GZIP, 1, [0, 1, 2], False),
        (Codec.GZIP, 1, [0, 0, 0], True),
        (Codec.GZIP, 1, [0, 2, 3], True),
    ],
)
def test_entries_that_must_be_rebuilt(codec, magic, offsets, rebuild):
    inner = b"".join(encode_message(magic, offset, 5, None, b"v") for offset in offsets)
    data = inner
    if codec is not Codec.NONE:
        data = encode_message(magic, 0, 5, None, compress(codec, inner, magic=magic), attributes=codec)
    validated = validate(data)
    assert validated.message_count == 3
    assert validated.in_place is not rebuild


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", InvalidRecordError),
        (BATCH[:-1], InvalidRecordError),
        (BATCH + b"\x00", InvalidRecordError),
        (BATCH[:-1] + b"\xff", CrcMismatchError),
        (patched(22, b"\x28"), InvalidTimestampError),  # control bit and LogAppendTime
        (patched(22, b"\x20"), InvalidRecordError),
        (patched(22, b"\x08"), InvalidTimestampError),
        (patched(22, b"\x06"), UnsupportedCompressionError),
        (patched(22, b"\x01"), CorruptRecordError),  # says gzip, is plain
        (patched(57, (2).to_bytes(4, "big")), InvalidRecordError),
        (patched(23, (3).to_bytes(4, "big")), InvalidRecordError),
        (patched(43, bytes(8)), InvalidRecordError),  # producer id without sequence
        (build_record_batch([RECORDS[0], RECORDS[2]]), InvalidRecordError),
        (build_record_batch([], BatchOptions(base_offset=0, last_offset_delta=0)), InvalidRecordError),
    ],
    ids=range(14),
)
def test_refusals(data, error):
    with pytest.raises(error):
        validate(data)


def test_offset_deltas_are_checked_one_by_one():
    second_last = build_record_batch([RECORDS[0], RECORDS[2]])
    with pytest.raises(InvalidRecordError, match="offset delta 2 where 1"):
        validate(patched(23, (1).to_bytes(4, "big"), second_last))


def test_rules_of_the_request():
    old = build_message_set(RECORDS, 1)
    with pytest.raises(UnsupportedMagicError):
        validate(old, ProduceRules(magics=frozenset((2,))))
    for data in (old, BATCH + BATCH):
        with pytest.raises(InvalidRecordError, match="exactly one"):
            validate(data, ProduceRules(single_batch=True))
    validate(BATCH, ProduceRules(single_batch=True))
    packed = build_record_batch(RECORDS, BatchOptions(codec=Codec.ZSTD))
    validate(packed)
    with pytest.raises(UnsupportedCompressionError):
        validate(packed, ProduceRules(zstd=False))
    with pytest.raises(DecompressedTooLargeError):
        validate(packed, ProduceRules(max_decompressed_bytes=5))


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_rules_of_the_topic(magic, codec):
    def build(*records):
        if magic == 2:
            return build_record_batch(records, BatchOptions(codec=codec))
        return build_message_set(records, magic, codec=codec)

    keyless = build(RECORDS[0], Record(1, 100, None, b"v"))
    validate(keyless)
    with pytest.raises(InvalidRecordError, match="key"):
        validate(keyless, ProduceRules(compacted=True))
    window = ProduceRules(not_before=100, not_after=102)
    validate(build(*RECORDS, Record(3, -1, b"", b"")), window)
    for timestamp in (99, 103):
        with pytest.raises(InvalidTimestampError, match=str(timestamp)):
            validate(build(RECORDS[0], Record(1, timestamp, b"k", b"")), window)


def test_a_wrapper_that_says_another_newest_timestamp():
    inner = build_message_set(RECORDS, 1)
    data = encode_message(1, 0, 0, None, compress(Codec.GZIP, inner, magic=1), attributes=1)
    (entry,) = validate(data).entries
    assert (entry.max_timestamp, entry.restamp) == (102, True)
    (entry,) = validate(BATCH).entries
    assert not entry.restamp
