"""The search continues in a damaged file at a real entry, never inside an entry, with any bytes between."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka import batch_search
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.batch_search import SearchBounds, find_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.records import Record

BOUNDS = SearchBounds((100,), 1 << 20)


def records(first, count=3):
    return [Record(first + n, 5, b"k", b"value %d" % n) for n in range(count)]


ENTRIES = {
    "magic 2": build_record_batch(records(100)),
    "magic 2 zstd": build_record_batch(records(100), BatchOptions(codec=Codec.ZSTD)),
    "magic 1": build_message_set(records(100, 1), 1),
    "magic 0 gzip": build_message_set(records(100), 0, codec=Codec.GZIP),
    "begins anew": build_record_batch(records(0)),
    "above 4 G": build_record_batch(records(1 << 33)),
}


def reader(data):
    return lambda position, length: data[position : position + length]


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("window", [64, 200, 1 << 20])
@pytest.mark.parametrize("before", [0, 1, 63, 64, 65, 500])
def test_it_is_found_wherever_it_stands(monkeypatch, name, window, before):
    monkeypatch.setattr(batch_search, "_WINDOW_BYTES", window)
    bounds = SearchBounds((1 << 62, (1 << 33) - 5), 1 << 20) if name == "above 4 G" else BOUNDS
    filler = (b"\x00\x01" * 300)[:before]
    data = filler + ENTRIES[name] + b"behind"
    assert find_batch(reader(data), 0, bounds) == before
    assert find_batch(reader(data), before + 1, bounds) is None


@given(st.integers(0, len(ENTRIES["magic 2"]) - 1), st.integers(0, 7))
@settings(max_examples=80)
def test_a_flipped_entry_is_passed_over(at, bit):
    damaged = bytearray(ENTRIES["magic 2"])
    damaged[at] ^= 1 << bit
    following = build_record_batch(records(103))
    found = find_batch(reader(bytes(damaged) + following), 0, BOUNDS)
    if at < 8 or 12 <= at < 16:  # offset and leader epoch are in no checksum: the entry is usable, if its offset fits
        assert found in (0, len(damaged))
    else:
        assert found == len(damaged)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(5_000),
        ENTRIES["magic 2"][:-1],
        build_record_batch([Record(1 << 40, 5, None, b"v")]),  # no offset that follows 100
    ],
)
def test_nothing_is_found(data):
    assert find_batch(reader(data), 0, BOUNDS) is None


def test_sizes_are_bounded():
    big = build_record_batch([Record(100, 5, None, bytes(3_000))])
    assert find_batch(reader(big), 0, SearchBounds((100,), 2_000)) is None
    assert find_batch(reader(big), 0, BOUNDS) == 0


@given(st.binary(max_size=300))
def test_total(data):
    found = find_batch(reader(data), 0, BOUNDS)
    assert found is None or 0 <= found < len(data)


@pytest.mark.parametrize("tail", range(1, 26))
def test_a_header_cut_by_the_end_of_the_file(tail):
    data = bytes(4) + ENTRIES["magic 1"][: 16 + tail]
    assert find_batch(reader(data), 0, BOUNDS) is None
    assert find_batch(reader(bytes(30) + ENTRIES["magic 0 gzip"][:17]), 0, BOUNDS) is None
