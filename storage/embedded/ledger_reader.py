"""Reads pieces of one ledger file, in the read pool. A reader keeps no state between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.storage.embedded.direct_reader import Wanted
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_format import FOOTER_BYTES, parse_footer, parse_index
from magnetar.storage.embedded.ledger_index import INDEX_INTERVAL_BYTES, LedgerIndex
from magnetar.storage.records import Damage, Run, is_placeholder, peek_record, walk
from magnetar.storage.slab import RECORD_HEADER_BYTES, Slab

if TYPE_CHECKING:
    from magnetar.storage.embedded.direct_reader import ReadRecords

__all__ = ["LedgerBytes", "LedgerReader", "Piece"]

_SCAN_BYTES = 4 << 20
_DOUBT_BYTES = 64 << 10
"""The number of bytes behind damage in which the reader looks for the ledger's next records."""


class LedgerBytes(Protocol):
    """The bytes of ledger files by ledger id."""

    def read(self, ledger_id: int, size: int, offset: int, /) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end of the file. Raises FileNotFoundError."""
        ...

    def size(self, ledger_id: int, /) -> int:
        """Bytes of the file, 0 for a missing file."""
        ...


class Piece(NamedTuple):
    """The result of one read of a ledger file."""

    slab: Slab | None
    """Intact entries around the requested entry; None if that entry is damaged or missing."""
    next_offset: int | None
    """File offset behind the slab."""
    reason: str
    bytes_read: int


class LedgerReader:
    """One ledger's file."""

    def __init__(self, files: LedgerBytes, ledger_id: int, max_record_bytes: int, proof: int) -> None:
        self._files, self.ledger_id, self._max_record_bytes = files, ledger_id, max_record_bytes
        self._proof = proof

    def piece(self, point: tuple[int, int], entry_id: int, end: int, last_entry_id: int, size: int) -> Piece:
        """Read about ``size`` bytes from ``point`` (entry id, file offset) on, and more where entry ``entry_id`` needs
        more. Records lie before offset ``end``; the file holds entries up to ``last_entry_id``.

        A damaged neighbour of the entry ends the slab. When the entry itself is damaged or missing, the result has no
        slab but the reason.
        """
        first, offset = point
        size = self._first_size(point, entry_id, size)
        total = 0
        while True:
            data = self._read(offset, min(size, end - offset))
            total += len(data)
            complete = offset + len(data) >= end or len(data) < size
            found = walk(data, 0, len(data), self.ledger_id, first, self._proof)
            doubt = -1
            for part in found:
                if isinstance(part, Run) and part.first_entry_id <= entry_id < part.first_entry_id + part.entries:
                    slab = self._cut(data, part, entry_id)
                    return Piece(slab, offset + part.end, "", total)
                if isinstance(part, Damage) and part.first_entry_id <= entry_id <= part.last_entry_id:
                    if complete or len(data) - part.start > _DOUBT_BYTES:
                        return Piece(None, None, self._reason(data, part), total)
                    doubt = part.start
            if doubt >= 0:
                size = max(size * 2, doubt + _DOUBT_BYTES + 1)
                continue
            if complete or entry_id > last_entry_id:
                tail = found[-1] if found else None
                reason = self._reason(data, tail) if isinstance(tail, Damage) else "ledger file ends before it"
                return Piece(None, None, reason, total)
            size = self._enough(data, found, size)

    def window(self, point: tuple[int, int], entry_id: int, end: int, size: int) -> tuple[int, int]:
        """(size, offset) of the first read of ``piece`` with these arguments."""
        offset = point[1]
        return min(self._first_size(point, entry_id, size), end - offset), offset

    def wanted(self) -> Wanted:
        return Wanted(self.ledger_id, self._proof)

    def intact_piece(self, found: ReadRecords, point: tuple[int, int], entry_id: int) -> Piece | None:
        """Return the result of ``piece`` for a first read with these bytes, if no record up to entry ``entry_id`` is
        damaged and the bytes suffice; else None.
        """
        data = found.data
        first, offset = point
        header = peek_record(data, 0)
        if header is None or header.entry_id != first:
            return None
        run = Run(self.ledger_id, first, found.offsets)
        if not first <= entry_id < first + run.entries:
            return None
        return Piece(self._cut(data, run, entry_id), offset + run.end, "", len(data))

    @staticmethod
    def _first_size(point: tuple[int, int], entry_id: int, size: int) -> int:
        return size + (INDEX_INTERVAL_BYTES if point[0] < entry_id else 0)

    def index(self, entries: int, length: int) -> tuple[LedgerIndex, bool]:
        """(index, whether the index was made again from the records because the stored index is missing or damaged)."""
        size = self._files.size(self.ledger_id)
        if size >= FILE_HEADER_BYTES + FOOTER_BYTES:
            footer = parse_footer(self._files.read(self.ledger_id, FOOTER_BYTES, size - FOOTER_BYTES))
            if footer is not None and (footer.ledger_id, footer.entries, footer.length_bytes) == (
                self.ledger_id,
                entries,
                length,
            ):
                index = parse_index(footer, self._files.read(self.ledger_id, footer.index_bytes, footer.index_offset))
                if index is not None:
                    return index, False
        return self.scan(0, FILE_HEADER_BYTES, FILE_HEADER_BYTES + length).index, True

    def scan(self, entry_id: int, offset: int, end: int) -> LedgerScan:
        """Walk all records from ``entry_id`` at ``offset`` on up to ``end`` or the end of the file."""
        result = LedgerScan(entry_id, offset)
        want = _SCAN_BYTES
        while offset < end:
            data = self._read(offset, min(want, end - offset))
            last = offset + len(data) >= end or len(data) < want
            if not data:
                break
            found = walk(data, 0, len(data), self.ledger_id, result.entries, self._proof)
            used = len(data)
            tail = found[-1]
            if isinstance(tail, Damage) and tail.last_entry_id < tail.first_entry_id and not last:
                # The window cuts off this record, or the record is damaged: read it again with more bytes behind it.
                if tail.start == 0 and want > self._max_record_bytes * 2 + _SCAN_BYTES:
                    result.damage.append(_shifted(tail, offset))
                    break
                want = want * 2 if tail.start == 0 else _SCAN_BYTES
                used = tail.start
            for part in found:
                if isinstance(part, Run):
                    result.index.add_records(
                        part.first_entry_id, offset + part.start, memoryview(part.offsets).cast("q")
                    )
                    result.entries = part.first_entry_id + part.entries
                    result.end_offset = offset + part.end
                elif part.start < used:
                    result.damage.append(_shifted(part, offset))
                    result.entries = max(result.entries, part.last_entry_id + 1)
            offset += used
        return result

    def _read(self, offset: int, size: int) -> bytes:
        try:
            return self._files.read(self.ledger_id, size, offset) if size > 0 else b""
        except FileNotFoundError:
            return b""

    def _enough(self, data: bytes, found: list[Run | Damage], size: int) -> int:
        """The bytes to read next when ``data`` lacks the entry: as many as the header of the cut-off record demands,
        else twice as many as before.
        """
        tail = found[-1] if found else None
        if isinstance(tail, Damage) and (header := peek_record(data, tail.start)) is not None:
            needed = tail.start + RECORD_HEADER_BYTES + header.body_bytes
            if size < needed <= tail.start + self._max_record_bytes:
                return needed
        return size * 2

    def _cut(self, data: bytes, run: Run, entry_id: int) -> Slab:
        """The run as a slab, without the entries before ``entry_id``."""
        slab = Slab(self.ledger_id, run.first_entry_id, data, run.offsets)
        skip = entry_id - run.first_entry_id
        return slab.part(skip, slab.count) if skip else slab

    @staticmethod
    def _reason(data: bytes, damage: Damage) -> str:
        if is_placeholder(data, damage.start):
            return "its bytes were lost with a damaged journal frame"
        return f"record fails its check ({damage.reason})"


class LedgerScan:
    """Result of a walk through a ledger file."""

    __slots__ = ("damage", "end_offset", "entries", "index")

    def __init__(self, entries: int, offset: int) -> None:
        self.index = LedgerIndex()
        self.entries = entries
        """The number of the last entry seen, plus one."""
        self.end_offset = offset
        """The offset behind the last intact record."""
        self.damage: list[Damage] = []
        """The damage found, with offsets in the file."""


def _shifted(damage: Damage, offset: int) -> Damage:
    return damage._replace(start=damage.start + offset, end=damage.end + offset)
