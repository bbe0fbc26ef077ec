"""A decoded snapshot equals its input; any other bytes are a SnapshotError."""

import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.delayed.errors import SnapshotError
from magnetar.delayed.snapshot_format import SnapshotEncoder, decode_bitmaps, decode_header, decode_segment
from magnetar.delayed.sorted_run import Columns

TIMES = st.one_of(st.integers(0, 5000), st.integers(0, 1 << 62), st.just((1 << 63) - 1))
KEYS = st.lists(
    st.tuples(TIMES, st.sampled_from([0, 1, 7, 1 << 40]), st.one_of(st.integers(0, 50), st.just((1 << 32) - 1))),
    min_size=1,
    max_size=60,
    unique_by=lambda key: key[1:],
)


def encoded(keys, max_indexes=7, pieces=1):
    encoder = SnapshotEncoder(max_indexes, 1000)
    keys, entries = sorted(keys), []
    step = max(len(keys) // pieces, 1)
    for start in range(0, len(keys), step):
        encoder.add(Columns.of(keys[start : start + step]))
        entries += encoder.take()
    rest, directory = encoder.finish()
    return entries + rest, directory, encoder.bounds()


def decoded(entries):
    directory = decode_header(entries[-1])
    keys = []
    for k in range(directory.segments):
        keys += decode_segment(entries[k], directory, k).keys()
    bits = {}
    for entry in entries[directory.segments : -1]:
        for ledger_id, bitmap in decode_bitmaps(entry, directory):
            bits.setdefault(ledger_id, set()).update(bitmap)
    return keys, bits, directory


@settings(deadline=None)
@given(keys=KEYS, pieces=st.integers(1, 9))
def test_round_trip(keys, pieces):
    entries, directory, bounds = encoded(keys, pieces=pieces)
    got, bits, read = decoded(entries)
    assert got == sorted(keys) and len(entries) == directory.entries == read.entries
    assert {(a, b) for a, ids in bits.items() for b in ids} == {key[1:] for key in keys}
    positions = sorted(key[1:] for key in keys)
    assert bounds == (positions[0], positions[-1])
    assert list(read.first_times) == list(directory.first_times) and max(read.counts) <= 7


@settings(deadline=None)
@given(keys=KEYS)
def test_the_same_bytes_in_any_pieces(keys):
    assert encoded(keys, pieces=1)[0] == encoded(keys, pieces=5)[0]


@settings(max_examples=200, deadline=None)
@given(keys=KEYS, data=st.data())
def test_a_flipped_or_missing_byte_is_noticed(keys, data):
    entries, _, _ = encoded(keys)
    k = data.draw(st.integers(0, len(entries) - 1))
    at = data.draw(st.integers(0, len(entries[k]) - 1))
    if data.draw(st.booleans()):
        entries[k] = (
            entries[k][:at] + bytes([entries[k][at] ^ (1 << data.draw(st.integers(0, 7)))]) + entries[k][at + 1 :]
        )
    else:
        entries[k] = entries[k][:at]
    try:
        keys_again, _, _ = decoded(entries)
    except SnapshotError:
        return
    assert keys_again == sorted(keys), "only bytes without meaning may change"


@settings(deadline=None)
@given(garbage=st.binary(max_size=200))
def test_garbage_is_a_snapshot_error(garbage):
    _, directory, _ = encoded([(1, 2, 3)])
    for decode in (decode_header, lambda g: decode_bitmaps(g, directory), lambda g: decode_segment(g, directory, 0)):
        with pytest.raises(SnapshotError):
            decode(garbage)


@settings(deadline=None)
@given(payload=st.binary(max_size=120), kind=st.sampled_from([1, 2, 3]))
def test_a_valid_frame_around_garbage_is_a_snapshot_error_or_a_value(payload, kind):
    import zlib

    from magnetar.protocol.checksum import crc32c

    packed = zlib.compress(payload)
    entry = struct.pack("<4sBBHI", b"MDB1", 2, kind, 0, crc32c(packed)) + packed
    _, directory, _ = encoded([(1, 2, 3)])
    try:
        if kind == 1:
            decode_header(entry)
        elif kind == 2:
            decode_bitmaps(entry, directory)
        else:
            assert isinstance(decode_segment(entry, directory, 0).times, array)
    except SnapshotError:
        pass


def test_an_older_version_is_a_snapshot_error():
    entries, directory, _ = encoded([(1, 2, 3)])
    old = entries[0][:4] + b"\x01" + entries[0][5:]
    with pytest.raises(SnapshotError, match="version"):
        decode_segment(old, directory, 0)
