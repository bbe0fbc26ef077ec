"""Bytes of a bucket's snapshot: segments, bitmaps, one header; each a ledger entry of its own. Pure.

Entry (little-endian)::

    4s magic "MDB1" | u8 version | u8 kind | u16 0 | u32 crc32c of the rest | zlib(payload)

Payloads::

    kind 1, header    u32 ledgers | u32 segments | u32 bitmap entries | u64 indexes
                      i64 ledger id x ledgers
                      u32 indexes, i64 first time, i64 last time: three columns, one value a segment
    kind 2, bitmaps   u32 n, then n times: u32 ledger ordinal | u32 bytes | roaring bitmap (portable format)
    kind 3, segment   u32 indexes | u8 flags | i64 first time
                      times: differences to the previous time, u32 (flag 1: i64)
                      ledger ordinals u32, absent when all are equal (flag 2: one u32)
                      entry ids u32 (flag 4: differences to the previous id)

First come the segments in the order of time, segment k in entry k, then the bitmaps; the header is last, so that a
snapshot of any size is written as it is made. Decoding any bytes gives a value or SnapshotError.

Times are not negative: entries with such a time are due at once and never get here.

Version 1 had the header first. The index does not read such a snapshot; it examines the snapshot's range of the log.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import le, sub
from typing import TYPE_CHECKING, TypeVar

from pyroaring import BitMap

from magnetar.delayed.errors import SnapshotError
from magnetar.delayed.sorted_run import Columns
from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Directory", "SnapshotEncoder", "decode_bitmaps", "decode_header", "decode_segment", "segment_ends"]

T = TypeVar("T")
VERSION = 2
_FRAME = struct.Struct("<4sBBHI")
_MAGIC = b"MDB1"
_HEADER, _BITMAPS, _SEGMENT = 1, 2, 3
_WIDE_TIMES, _ONE_LEDGER, _ENTRY_STEPS = 1, 2, 4
_MAX_BITMAPS_BYTES = 1 << 20
_SMALL_SEGMENT = 512
"""The encoder ends a segment for its time span only with at least so many indexes: otherwise each long delay would be a
segment by itself.
"""
_U32 = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Directory:
    """The fields of the header."""

    ledgers: array[int]
    """Ledger ids by ordinal."""
    counts: array[int]
    first_times: array[int]
    last_times: array[int]
    bitmap_entries: int

    @property
    def segments(self) -> int:
        return len(self.counts)

    @property
    def entries(self) -> int:
        """The number of entries of the whole snapshot."""
        return self.segments + self.bitmap_entries + 1


def segment_ends(times: array[int], max_indexes: int, step_ms: int) -> list[int]:
    """Return the ends of the segments of sorted times: by number, or by time span for segments that are not small."""
    ends, start, count = [], 0, len(times)
    while start < count:
        end = min(start + max_indexes, count)
        small = start + _SMALL_SEGMENT
        if small < end and times[end - 1] >= times[start] + step_ms:
            low, high = small, end
            while low < high:
                middle = (low + high) // 2
                if times[middle] < times[start] + step_ms:
                    low = middle + 1
                else:
                    high = middle
            end = low
        ends.append(end)
        start = end
    return ends


class SnapshotEncoder:
    """Makes the entries of a snapshot from indexes that come in the order of keys, in pieces of any size."""

    def __init__(self, max_indexes: int, step_ms: int) -> None:
        self._max_indexes, self._step_ms = max_indexes, step_ms
        self._waiting = Columns.empty()
        self._ordinals: dict[int, int] = {}
        self._bitmaps: dict[int, BitMap] = {}
        self._counts, self._firsts, self._lasts = array("I"), array("q"), array("q")
        self._segments: list[bytes] = []

    def add(self, columns: Columns) -> None:
        """Take the next indexes."""
        for all_of, more in zip(self._waiting, columns, strict=True):
            all_of.extend(more)
        if self._waiting.rows >= 2 * self._max_indexes:
            self._emit(last=False)

    def take(self) -> list[bytes]:
        """Return the finished entries in order, each once."""
        ready, self._segments = self._segments, []
        return ready

    def finish(self) -> tuple[list[bytes], Directory]:
        """Return the remaining entries, and the directory."""
        self._emit(last=True)
        bits = [_frame(_BITMAPS, payload) for payload in _encode_bitmaps(self._bitmaps, self._ordinals)]
        directory = Directory(array("q", self._ordinals), self._counts, self._firsts, self._lasts, len(bits))
        return [*self.take(), *bits, _frame(_HEADER, _encode_header(directory))], directory

    def bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The smallest and the largest position so far."""
        low, high = min(self._bitmaps), max(self._bitmaps)
        return (low, self._bitmaps[low].min()), (high, self._bitmaps[high].max())

    def _emit(self, *, last: bool) -> None:
        waiting, start = self._waiting, 0
        ends = segment_ends(waiting.times, self._max_indexes, self._step_ms)
        for end in ends if last else ends[:-1]:
            part = waiting.part(start, end)
            for ledger_id, entries in _by_ledger(part):
                self._ordinals.setdefault(ledger_id, len(self._ordinals))
                self._bitmaps.setdefault(ledger_id, BitMap()).update(entries)
            self._segments.append(_frame(_SEGMENT, _encode_segment(part, self._ordinals)))
            self._counts.append(end - start)
            self._firsts.append(part.times[0])
            self._lasts.append(part.times[-1])
            start = end
        self._waiting = waiting.part(start, waiting.rows)


def decode_header(entry: bytes) -> Directory:
    """Parse the header. Raises SnapshotError."""
    return _decoded(_HEADER, entry, _header)


def decode_bitmaps(entry: bytes, directory: Directory) -> list[tuple[int, BitMap]]:
    """Return (ledger id, entries) pairs. Raises SnapshotError."""
    return _decoded(_BITMAPS, entry, lambda payload: list(_bitmaps(payload, directory)))


def decode_segment(entry: bytes, directory: Directory, segment: int) -> Columns:
    """Parse a segment. Raises SnapshotError."""
    return _decoded(_SEGMENT, entry, lambda payload: _segment(payload, directory, segment))


# --- encoding --------------------------------------------------------------------------------------------------------


def _frame(kind: int, payload: bytes) -> bytes:
    packed = zlib.compress(payload, 1)
    return _FRAME.pack(_MAGIC, VERSION, kind, 0, crc32c(packed)) + packed


def _bytes(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _by_ledger(part: Columns) -> Iterator[tuple[int, Iterable[int]]]:
    ids = set(part.ledgers)
    if len(ids) == 1:
        yield part.ledgers[0], part.entries
        return
    groups: dict[int, list[int]] = {ledger_id: [] for ledger_id in sorted(ids)}
    for ledger_id, entry_id in zip(part.ledgers, part.entries, strict=True):
        groups[ledger_id].append(entry_id)
    yield from groups.items()


def _encode_header(directory: Directory) -> bytes:
    numbers = struct.pack(
        "<IIIQ", len(directory.ledgers), directory.segments, directory.bitmap_entries, sum(directory.counts)
    )
    columns = (directory.ledgers, directory.counts, directory.first_times, directory.last_times)
    return numbers + b"".join(map(_bytes, columns))


def _encode_bitmaps(bitmaps: Mapping[int, BitMap], ordinals: Mapping[int, int]) -> Iterator[bytes]:
    parts: list[bytes] = []
    size = 0
    for ledger_id, bitmap in bitmaps.items():
        bitmap.run_optimize()
        data = bitmap.serialize()
        if parts and size + len(data) > _MAX_BITMAPS_BYTES:
            yield struct.pack("<I", len(parts)) + b"".join(parts)
            parts, size = [], 0
        parts.append(struct.pack("<II", ordinals[ledger_id], len(data)) + data)
        size += len(data)
    if parts:
        yield struct.pack("<I", len(parts)) + b"".join(parts)


def _encode_segment(part: Columns, ordinals: Mapping[int, int]) -> bytes:
    flags = 0
    steps = array("q", map(sub, part.times, (part.times[0], *part.times[:-1])))
    if max(steps) > _U32:
        flags |= _WIDE_TIMES
    numbers = [ordinals[ledger_id] for ledger_id in part.ledgers]
    if len(set(numbers)) == 1:
        flags |= _ONE_LEDGER
        numbers = numbers[:1]
    entries = part.entries
    if all(map(le, entries, memoryview(entries)[1:])):
        flags |= _ENTRY_STEPS
        entries = array("I", [entries[0], *(b - a for a, b in pairwise(entries))])
    times = steps if flags & _WIDE_TIMES else array("I", steps)
    head = struct.pack("<IBq", part.rows, flags, part.times[0])
    return head + b"".join(map(_bytes, (times, array("I", numbers), entries)))


# --- decoding --------------------------------------------------------------------------------------------------------


def _decoded(kind: int, entry: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        magic, version, found, _, checksum = _FRAME.unpack_from(entry)
    except struct.error as error:
        raise SnapshotError("an entry is too short") from error
    if magic != _MAGIC or version != VERSION or found != kind:
        raise SnapshotError(f"kind {kind} of version {VERSION} expected, found {magic!r} {version} {found}")
    packed = entry[_FRAME.size :]
    if crc32c(packed) != checksum:
        raise SnapshotError("checksum")
    try:
        return decode(zlib.decompress(packed))
    except (struct.error, zlib.error, ValueError, IndexError, OverflowError) as error:
        raise SnapshotError(f"kind {kind} does not decode: {error}") from error


def _column(payload: bytes, at: int, typecode: str, count: int) -> tuple[array[int], int]:
    values: array[int] = array(typecode)
    end = at + values.itemsize * count
    if end > len(payload):
        raise ValueError("a column is too short")
    values.frombytes(payload[at:end])
    if sys.byteorder == "big":
        values.byteswap()
    return values, end


def _header(payload: bytes) -> Directory:
    ledgers, segments, bitmap_entries, indexes = struct.unpack_from("<IIIQ", payload)
    ids, at = _column(payload, struct.calcsize("<IIIQ"), "q", ledgers)
    counts, at = _column(payload, at, "I", segments)
    firsts, at = _column(payload, at, "q", segments)
    lasts, at = _column(payload, at, "q", segments)
    if sum(counts) != indexes or at != len(payload):
        raise ValueError("the header's numbers contradict each other")
    return Directory(ids, counts, firsts, lasts, bitmap_entries)


def _bitmaps(payload: bytes, directory: Directory) -> Iterator[tuple[int, BitMap]]:
    (count,) = struct.unpack_from("<I", payload)
    at = 4
    for _ in range(count):
        ordinal, size = struct.unpack_from("<II", payload, at)
        at += 8
        data = payload[at : at + size]
        if len(data) != size:
            raise ValueError("a bitmap is too short")
        yield directory.ledgers[ordinal], BitMap.deserialize(data)
        at += size


def _segment(payload: bytes, directory: Directory, segment: int) -> Columns:
    count, flags, first_time = struct.unpack_from("<IBq", payload)
    if count != directory.counts[segment] or first_time != directory.first_times[segment]:
        raise ValueError("the segment is not the one of the directory")
    steps, at = _column(payload, struct.calcsize("<IBq"), "q" if flags & _WIDE_TIMES else "I", count)
    ordinals, at = _column(payload, at, "I", 1 if flags & _ONE_LEDGER else count)
    entries, at = _column(payload, at, "I", count)
    ids = directory.ledgers
    if flags & _ONE_LEDGER:
        ledgers = array("q", [ids[ordinals[0]]]) * count
    else:
        ledgers = array("q", map(ids.__getitem__, ordinals))
    steps_from = accumulate(steps, initial=first_time)
    next(steps_from)
    if flags & _ENTRY_STEPS:
        entries = array("I", accumulate(entries))
    return Columns(array("q", steps_from), ledgers, entries)
