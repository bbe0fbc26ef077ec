"""Slab: consecutive entries of one ledger as one buffer of log records. The unit of append, cache and read.

Layout of ``data`` (little-endian), record after record, from ``offsets[0]`` to ``offsets[count]``::

    u32 body_bytes | u32 crc32c | u64 ledger_id | u64 entry_id | i64 last_add_confirmed | body

The body is the entry: an optional broker entry metadata prefix (0x0e02), then the client's headers and payload.
Journal, ledger files and cache hold these same bytes; nothing is encoded again on the way.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from magnetar.protocol import speed
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from magnetar.protocol.runs import EntryRun

__all__ = ["RECORD_HEADER_BYTES", "Slab", "Span", "slab_of_run"]

RECORD_HEADER_BYTES = 32
_PAIR = struct.Struct("=2q")
_HAS, _BAD = EntryFlag.HAS_CHECKSUM, EntryFlag.BAD_CHECKSUM


class Slab:
    """An immutable run of the entries ``first_entry_id .. last_entry_id``.

    ``data`` may be larger than the slab (a slab cut from a read-ahead buffer shares it): always go through ``offsets``.
    """

    __slots__ = (
        "__dict__",
        "checksum",
        "count",
        "data",
        "first_entry_id",
        "last_entry_id",
        "ledger_id",
        "offset_view",
        "offsets",
        "size_bytes",
    )

    def __init__(self, ledger_id: int, first_entry_id: int, data: bytes, offsets: bytes, checksum: int = -1) -> None:
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.data = data
        self.offsets = offsets
        """``count + 1`` native int64: the offset of each record in ``data``, then the end of the last record."""
        self.checksum = checksum
        """CRC-32C of ``data`` if it is known and ``data`` has this slab alone; else -1."""
        self.offset_view = view = memoryview(offsets).cast("q")
        """``offsets`` as a sequence of ints."""
        self.count = count = len(view) - 1
        self.last_entry_id = first_entry_id + count - 1
        self.size_bytes: int = view[count] - view[0]

    def position(self, index: int) -> Position:
        return Position(self.ledger_id, self.first_entry_id + index)

    def body(self, index: int) -> memoryview:
        """The entry's bytes (with the prefix of broker entry metadata, if any), not copied."""
        offsets = self.offset_view
        return memoryview(self.data)[offsets[index] + RECORD_HEADER_BYTES : offsets[index + 1]]

    def record_view(self) -> memoryview:
        """The bytes of all records of this slab, not copied."""
        offsets = self.offset_view
        return memoryview(self.data)[offsets[0] : offsets[self.count]]

    def slice(self, start: int, end: int) -> Span:
        """Entries ``start .. end - 1`` (indices within the slab)."""
        return Span(self, start, end)

    def span(self, first_entry_id: int, last_entry_id: int) -> Span:
        """The part of this slab within ``first_entry_id .. last_entry_id`` (inclusive); it may be empty."""
        start = max(first_entry_id - self.first_entry_id, 0)
        return Span(self, start, max(start, min(last_entry_id - self.first_entry_id + 1, self.count)))

    def part(self, start: int, end: int) -> Slab:
        """Return the entries ``start .. end - 1`` as a slab that shares ``data``."""
        return Slab(self.ledger_id, self.first_entry_id + start, self.data, self.offsets[start * 8 : (end + 1) * 8])

    def facts(self, want_hash: bool = False) -> speed.Facts:
        """Facts of each entry from MessageMetadata (see ``speed.entry_facts``); computed once and kept."""
        known: speed.Facts | None = self.__dict__.get("_hashed") or (None if want_hash else self.__dict__.get("_facts"))
        if known is None:
            known = speed.entry_facts(self.data, self.offsets, 0, self.count, want_hash)
            self.__dict__["_hashed" if want_hash else "_facts"] = known
        return known

    def stored_span(self, span: Span) -> Span:
        """Return the entries of `span`, a span of this slab, as the log has them. Only a slab with a converted view of
        the entries returns another span.
        """
        return span

    @property
    def kept_bytes(self) -> int:
        """The bytes of the buffers that are not freed while this slab exists."""
        return len(self.data)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"Slab({self.ledger_id}:{self.first_entry_id}..{self.last_entry_id}, {self.size_bytes} bytes)"


class Span(NamedTuple):
    """Entries ``start .. end - 1`` of a slab: the unit of a cursor's reads and a dispatcher's plans."""

    slab: Slab
    start: int
    end: int

    @property
    def entries(self) -> int:
        """How many entries (``count`` is a method of tuples)."""
        return self.end - self.start

    @property
    def first_position(self) -> Position:
        return Position(self.slab.ledger_id, self.slab.first_entry_id + self.start)

    @property
    def last_position(self) -> Position:
        return Position(self.slab.ledger_id, self.slab.first_entry_id + self.end - 1)

    @property
    def size_bytes(self) -> int:
        offsets = self.slab.offset_view
        size: int = offsets[self.end] - offsets[self.start]
        return size

    def body(self, index: int) -> memoryview:
        """The bytes of entry ``index`` of this span."""
        return self.slab.body(self.start + index)

    def cut(self, entries: int) -> tuple[Span, Span]:
        """(the first ``entries`` entries, the rest)."""
        middle = min(self.start + entries, self.end)
        return Span(self.slab, self.start, middle), Span(self.slab, middle, self.end)


def slab_of_run(
    run: EntryRun,
    start: int,
    end: int,
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    timestamp_ms: int,
    index_before: int,
) -> Slab:
    """Return the entries ``start .. end - 1`` of a run as log records, made by ``speed.stamp``.

    The function stamps a whole run whose gaps fit in place: the slab then owns the bytes of the run, which is possible
    once. Otherwise it copies the entries and sets ``run.wanted_gap`` to the gap that would have fitted the last entry.
    """
    gap = run.gap
    if gap and end - start == run.count and not run.are_records:
        checksum = speed.stamp_in_place(
            run.data,
            run.offsets,
            run.num_messages,
            gap,
            run.all_flags & _HAS != 0 and not run.any_flags & _BAD,
            ledger_id,
            first_entry_id,
            last_add_confirmed,
            timestamp_ms,
            index_before,
        )
        if checksum is not None:
            run.are_records = True
            return Slab(ledger_id, first_entry_id, run.data, run.offsets, checksum)
    data, offsets = speed.stamp(
        run.data,
        run.offsets,
        run.num_messages,
        start,
        end,
        ledger_id,
        first_entry_id,
        last_add_confirmed,
        timestamp_ms,
        index_before,
        gap,
    )
    if speed.COMPILED:
        at, stop = _PAIR.unpack_from(run.offsets, 8 * end - 8)
        record_at, record_stop = _PAIR.unpack_from(offsets, len(offsets) - 16)
        run.wanted_gap = record_stop - record_at - (stop - at - gap)
    return Slab(ledger_id, first_entry_id, data, offsets)
