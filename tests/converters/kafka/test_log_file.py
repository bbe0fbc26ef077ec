import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka import log_file
from magnetar.converters.kafka.batch_builder import build_record_batch
from magnetar.converters.kafka.errors import CorruptRecordError, KafkaFormatError
from magnetar.converters.kafka.log_file import LogEnd, LogFile
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.records import Record

PARTS = [build_record_batch([Record(n, 1, b"k", bytes(50)), Record(n + 1, 2, None, None)]) for n in range(0, 10, 2)] + [
    build_message_set([Record(10, 1, None, b"old")], 1)
]
DATA = b"".join(PARTS)


def opened(data, **options):
    return LogFile(lambda position, length: data[position : position + length], len(data), **options)


@pytest.mark.parametrize("chunk", [1, 30, 61, 200, 1 << 20])
def test_every_chunk_size_gives_the_same(monkeypatch, chunk):
    monkeypatch.setattr(log_file, "_CHUNK_BYTES", max(chunk, 26))
    log = opened(DATA)
    got = list(log.batches())
    assert [bytes(item.batch.buffer) for item in got] == PARTS
    assert [item.position for item in got] == [0] + [item.next_position for item in got[:-1]]
    assert (log.end, log.valid_bytes) == (LogEnd.CLEAN, len(DATA))


def test_reading_resumes_at_any_batch():
    whole = list(opened(DATA).batches())
    for item in whole:
        rest = list(opened(DATA).batches(item.next_position))
        assert [r.position for r in rest] == [w.position for w in whole if w.position >= item.next_position]


@given(st.integers(0, len(DATA)))
@settings(max_examples=60)
def test_a_cut_file_ends_at_the_last_whole_entry(cut):
    log = opened(DATA[:cut])
    whole = list(log.batches())
    assert log.valid_bytes == sum(len(bytes(item.batch.buffer)) for item in whole) <= cut
    assert log.end is (LogEnd.CLEAN if log.valid_bytes == cut else LogEnd.TORN)


def test_a_file_shorter_than_it_says():
    log = LogFile(lambda position, length: DATA[position : min(position + length, 40)], len(DATA))
    assert list(log.batches()) == []
    assert log.end is LogEnd.TORN


def test_zeros_behind_the_data_are_preallocation():
    log = opened(DATA + bytes(5000))
    assert len(list(log.batches())) == len(PARTS)
    assert (log.end, log.valid_bytes) == (LogEnd.PREALLOCATED, len(DATA))


def test_zeros_of_a_file_shorter_than_it_says():
    data = DATA + bytes(100)
    log = LogFile(lambda position, length: data[position : position + length], len(data) + 1000)
    list(log.batches())
    assert log.end is LogEnd.PREALLOCATED


def test_an_empty_file():
    log = opened(b"")
    assert list(log.batches()) == []
    assert (log.end, log.valid_bytes) == (LogEnd.CLEAN, 0)


@pytest.mark.parametrize(
    ("data", "error", "why"),
    [
        (DATA + bytes(100) + b"x", CorruptRecordError, "zeros"),
        (DATA + b"\x00" * 8 + b"\x00\x00\x00\x05" + bytes(30), CorruptRecordError, f"position {len(DATA)}"),
        (DATA + b"\x00" * 8 + b"\x7f\xff\xff\xff" + bytes(30), CorruptRecordError, f"position {len(DATA)}"),
        (DATA[:16] + b"\x07" + DATA[17:], CorruptRecordError, "unknown magic 7"),
        (bytes(11) + b"\x14" + bytes(4) + b"\x02" + bytes(30), CorruptRecordError, "too few"),
    ],
)
def test_damage_names_its_position(data, error, why):
    with pytest.raises(error, match=why):
        list(opened(data).batches())


def test_the_batch_size_is_limited():
    with pytest.raises(CorruptRecordError):
        list(opened(DATA, max_batch_bytes=100).batches())


@given(st.binary(max_size=200))
def test_total(data):
    log = opened(data)
    try:
        list(log.batches())
    except KafkaFormatError:
        return
    assert log.end is not None
    assert 0 <= log.valid_bytes <= len(data)


def skipping(data, **options):
    """(batches, damage) of a file that takes note of damage."""
    damage = []
    log = opened(data, on_damage=damage.append, **options)
    return [bytes(item.batch.buffer) for item in log.batches()], damage, log


@pytest.mark.parametrize("broken", [b"\x00\x00\x00\x05", b"\x00\x00\x30\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_reading_goes_on_behind_a_broken_size(broken):
    at = len(PARTS[0])
    data = DATA[: at + 8] + broken + DATA[at + 12 :]
    got, [damage], log = skipping(data)
    assert got == [PARTS[0], *PARTS[2:]]
    assert (damage.position, damage.next_position) == (at, at + len(PARTS[1]))
    assert log.end is LogEnd.CLEAN
    with pytest.raises(CorruptRecordError, match=f"position {at}"):
        list(opened(data).batches())


def test_damage_up_to_the_end():
    data = DATA + b"\x00" * 8 + b"\x00\x00\x00\x05" + b"x" * 30
    got, [damage], log = skipping(data)
    assert got == PARTS
    assert (damage.position, damage.next_position) == (len(DATA), len(data))
    assert log.end is LogEnd.CLEAN


def test_a_torn_tail_is_no_damage():
    got, damage, log = skipping(DATA[:-5])
    assert (got, damage, log.end) == (PARTS[:-1], [], LogEnd.TORN)


@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 7)), max_size=4))
@settings(max_examples=60)
def test_with_any_flipped_bit_skipped_and_read_parts_make_up_the_file(flips):
    data = bytearray(DATA)
    for at, bit in flips:
        data[at] ^= 1 << bit
    damage, read = [], []
    log = opened(bytes(data), on_damage=damage.append)
    for item in log.batches():
        read.append((item.position, item.next_position))
    spans = sorted(read + [(d.position, d.next_position) for d in damage])
    end = log.valid_bytes if log.end is not LogEnd.CLEAN else len(data)
    assert [a for a, _ in spans] == [0, *[b for _, b in spans]][: len(spans)]
    assert (spans[-1][1] if spans else 0) == end
