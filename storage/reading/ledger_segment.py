"""One ledger's file, open for reading beside the broker that owns it.

The footer of a sealed file states the number of entries and has a sparse index. In any other file the segment walks
over the records once, from the end of the last walk; the walk makes the same index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from magnetar.protocol import speed
from magnetar.protocol.metadata import parse_entry_metadata
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_format import FOOTER_BYTES, parse_footer, parse_index
from magnetar.storage.embedded.ledger_head import NO_PROOF
from magnetar.storage.embedded.ledger_index import LedgerIndex
from magnetar.storage.embedded.ledger_reader import LedgerReader
from magnetar.storage.errors import CorruptEntryError, NoSuchEntryError
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from magnetar.storage.slab import Slab

__all__ = ["PIECE_BYTES", "LedgerSegment", "Walked"]

PIECE_BYTES = 2 << 20
"""The size of one read of a sequential pass."""
_MAX_RECORD_BYTES = 1 << 31
_PROBE_BYTES = 16 << 10
_MOST_PROBES = 64
"""The most entries that a reader examines to find an entry with a broker index."""


class RecordFile(Protocol):
    """The part of a file that is read."""

    def read(self, size: int, offset: int) -> bytes: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Walked(NamedTuple):
    """Part of a ledger file that was walked through before, from a record to the end of the file at that time."""

    entry_id: int
    """The entry of the first record."""
    offset: int
    """The offset of the first record in the file."""
    entries: int
    """The id of the last entry, plus one."""
    length_bytes: int
    """Bytes of the records of entries ``0 .. entries - 1``."""


class LedgerSegment:
    """The entries ``first_entry_id .. entries - 1`` of a ledger, as far as its file holds them.

    Not for several threads at once.
    """

    def __init__(
        self, file: RecordFile, path: str, ledger_id: int, walked: Walked | None = None, proof: int = NO_PROOF
    ) -> None:
        self.path = path
        self.ledger_id = ledger_id
        self.first_entry_id = walked.entry_id if walked else 0
        """0, unless the ledger was opened with a part of an earlier walk."""
        self.entries = walked.entries if walked else 0
        """The id of the last readable entry, plus one; all readable entries are confirmed."""
        self.length_bytes = walked.length_bytes if walked else 0
        """Bytes of the records of entries ``0 .. entries - 1``."""
        self.sealed = False
        """Whether the file has a footer: the ledger gets no more entries."""
        self._file = file
        self._index = LedgerIndex()
        self._reader = LedgerReader(_OneFile(file), ledger_id, _MAX_RECORD_BYTES, proof)
        if walked is None:
            self.refresh()
        else:
            self._index.add(walked.entry_id, walked.offset)

    def refresh(self) -> None:
        """Look for new records at the end of the file; a sealed file is not read again."""
        if self.sealed or self._load_footer():
            return
        scan = self._reader.scan(self.entries, FILE_HEADER_BYTES + self.length_bytes, self._file.size())
        if scan.damage:
            # No entry behind damage counts, because the damage may be the end of a write in progress.
            damage = scan.damage[0]
            scan = self._reader.scan(self.entries, FILE_HEADER_BYTES + self.length_bytes, damage.start)
        for entry_id, offset in zip(scan.index.entries, scan.index.offsets, strict=True):
            self._index.add(entry_id, offset)
        self.entries = scan.entries
        self.length_bytes = scan.end_offset - FILE_HEADER_BYTES

    def _load_footer(self) -> bool:
        size = self._file.size()
        if size < FILE_HEADER_BYTES + FOOTER_BYTES:
            return False
        footer = parse_footer(self._file.read(FOOTER_BYTES, size - FOOTER_BYTES))
        if footer is None or footer.ledger_id != self.ledger_id:
            return False
        if footer.index_offset + footer.index_bytes + FOOTER_BYTES != size:
            return False
        index = parse_index(footer, self._file.read(footer.index_bytes, footer.index_offset))
        if index is None:
            return False
        self._index, self.sealed, self.first_entry_id = index, True, 0
        self.entries, self.length_bytes = footer.entries, footer.length_bytes
        return True

    # --- entries ----------------------------------------------------------------------------------------------------

    def read(self, entry_id: int, max_bytes: int = PIECE_BYTES) -> Slab:
        """Return the entries from ``entry_id`` on, about ``max_bytes``, at least one entry.

        Raises NoSuchEntryError when the entry is not in the file (yet), CorruptEntryError when this entry is damaged:
        reading may continue behind it.
        """
        return self._piece(entry_id, None, max_bytes)[0]

    def slabs(self, first: int, end: int, max_bytes: int = PIECE_BYTES) -> Iterator[Slab]:
        """The entries ``first .. end - 1`` in order, in slabs of about ``max_bytes``. Errors as of ``read``."""
        offset: int | None = None
        while first < end:
            slab, offset = self._piece(first, offset, max_bytes)
            if slab.last_entry_id >= end:
                slab = slab.part(0, end - slab.first_entry_id)
            yield slab
            first = slab.last_entry_id + 1

    def _piece(self, entry_id: int, offset: int | None, max_bytes: int) -> tuple[Slab, int | None]:
        if not self.first_entry_id <= entry_id < self.entries:
            raise NoSuchEntryError(self.ledger_id, entry_id)
        point = (entry_id, offset) if offset is not None else self._index.point_for(entry_id)
        end = FILE_HEADER_BYTES + self.length_bytes
        piece = self._reader.piece(point, entry_id, end, self.entries - 1, max_bytes)
        slab = piece.slab
        if slab is None or not slab.first_entry_id <= entry_id <= slab.last_entry_id:
            raise CorruptEntryError(Position(self.ledger_id, entry_id), piece.reason or "not found in its ledger file")
        return slab, piece.next_offset

    # --- broker index -----------------------------------------------------------------------------------------------

    def index_range(self) -> tuple[int, int] | None:
        """Return the half-open range of the broker index over the readable entries; None when no entry has an index.

        Entries that cannot be read at either end are left out.
        """
        first = self._indexed(range(self.first_entry_id, self.entries))
        last = self._indexed(range(self.entries - 1, self.first_entry_id - 1, -1))
        return None if first is None or last is None else (first[1], last[2] + 1)

    def entry_of_index(self, index: int) -> int:
        """The first entry whose last message has this or a higher broker index; ``entries`` when there is no such
        entry.

        An entry's index is that of its last message. Damaged entries, and entries without an index, count with the
        following entries. Reads about log2 of the index points, then one stretch of 64 KiB.
        """
        points = self._index.entries
        low, high = 0, len(points)
        while low < high:
            middle = (low + high) // 2
            stop = points[middle + 1] if middle + 1 < len(points) else self.entries
            found = self._indexed(range(points[middle], stop))
            if found is not None and found[2] < index:
                low = middle + 1
            else:
                high = middle
        begin = points[low - 1] if low else self.first_entry_id
        return self._first_from(begin, index)

    def walked(self, entry_id: int) -> Walked:
        """Return the argument of ``DataDirectory.open_ledger`` with which a further reader begins at an entry without a
        walk.
        """
        return Walked(*self._index.point_for(entry_id), self.entries, self.length_bytes)

    def _first_from(self, entry_id: int, index: int) -> int:
        while entry_id < self.entries:
            try:
                slab = self.read(entry_id, _PROBE_BYTES)
            except CorruptEntryError:
                entry_id += 1
                continue
            for k in range(entry_id - slab.first_entry_id, slab.count):
                metadata = parse_entry_metadata(slab.body(k))
                if metadata is not None and metadata.HasField("index") and metadata.index >= index:
                    return slab.first_entry_id + k
            entry_id = slab.last_entry_id + 1
        return self.entries

    def _indexed(self, entries: range) -> tuple[int, int, int] | None:
        """(entry, index of its first message, index of its last message) of the first of these entries that has a
        broker index; only the first ``_MOST_PROBES`` entries are read.
        """
        for entry_id in entries[:_MOST_PROBES]:
            try:
                slab = self.read(entry_id, _PROBE_BYTES)
            except CorruptEntryError:
                continue
            place = entry_id - slab.first_entry_id
            metadata = parse_entry_metadata(slab.body(place))
            if metadata is not None and metadata.HasField("index"):
                facts = speed.entry_facts(slab.data, slab.offsets, place, place + 1, False)
                return entry_id, metadata.index - max(facts.total_messages, 1) + 1, metadata.index
        return None

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _OneFile:
    """The ledger files of a LedgerReader: here a single open file."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file

    def read(self, _ledger_id: int, size: int, offset: int) -> bytes:
        return self._file.read(size, offset)

    def size(self, _ledger_id: int) -> int:
        return self._file.size()
