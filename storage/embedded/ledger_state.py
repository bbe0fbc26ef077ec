"""The engine's state of one ledger, and its slabs on the way to the ledger file. Only the loop changes them, except
``journaled`` and ``last_failure``, which the owner of the journal changes (``journal/writer.py``).

A slab is *parked* when only the journal has its bytes: then the slab takes no memory, and write-behind and readers read
it back from the segment. A segment keeps its frames until a checkpoint covers them, and a checkpoint covers only slabs
that are in their ledger files, so the bytes stay in place as long as the slab is unwritten (ADR 15).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_head import NO_PROOF
from magnetar.storage.empty_queue import NO_ITEMS
from magnetar.storage.interfaces import LedgerInfo
from magnetar.storage.position import Position
from magnetar.storage.records import Damage, walk

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from magnetar.storage.embedded.files import Buffer, File
    from magnetar.storage.embedded.ledger_index import LedgerIndex
    from magnetar.storage.errors import StorageError
    from magnetar.storage.slab import Slab

__all__ = ["LedgerState", "Place", "UnwrittenSlab"]

Place = tuple["File", int]
"""A journal segment, and the offset of a slab's first record in it."""

_FIRST = attrgetter("first_entry_id")
_MOST_PARKED_OF_A_READ = 256
"""The loop looks at each of them, and the read needs a system call for each."""


class UnwrittenSlab:
    """One slab on its way from the journal to its ledger file. The loop owns it; other threads read ``slab`` once."""

    __slots__ = ("checksum", "first_entry_id", "last_entry_id", "ledger", "offset", "place", "size_bytes", "slab")

    def __init__(self, ledger: LedgerState, slab: Slab, offset: int, place: Place) -> None:
        self.ledger = ledger
        self.first_entry_id, self.last_entry_id = slab.first_entry_id, slab.last_entry_id
        self.offset = offset
        """The slab's offset in the ledger file."""
        self.size_bytes = slab.size_bytes
        self.checksum = slab.checksum
        """CRC-32C of the records, -1: not known."""
        self.place = place
        self.slab: Slab | None = slab
        """None: the slab is parked, or it is written."""

    def lost(self, data: Buffer) -> list[Position]:
        """The entries whose records are damaged in ``data``, the bytes that the journal returned for this slab."""
        if self.checksum >= 0 and crc32c(data) == self.checksum:
            return []
        ledger = self.ledger
        found = walk(bytes(data), 0, len(data), ledger.ledger_id, self.first_entry_id, ledger.proof)
        lost = []
        for part in found:
            if isinstance(part, Damage):
                is_known = part.first_entry_id <= part.last_entry_id < self.last_entry_id
                last = part.last_entry_id if is_known else self.last_entry_id
                lost += [Position(ledger.ledger_id, entry) for entry in range(part.first_entry_id, last + 1)]
        return lost


class LedgerState:
    """One ledger, from its creation or loading until the store drops the state."""

    __slots__ = (
        "closed",
        "deleted",
        "fetching_index",
        "idle_waiters",
        "index",
        "journaled",
        "last_confirmed",
        "last_failure",
        "ledger_id",
        "length_bytes",
        "metadata_version",
        "overlapped_s",
        "pending",
        "proof",
        "properties",
        "pushed",
        "refusal",
        "sealing",
        "unwritten",
        "unwritten_bytes",
    )

    def __init__(
        self,
        ledger_id: int,
        properties: Mapping[str, str],
        last_entry_id: int = -1,
        length: int = 0,
        proof: int = NO_PROOF,
    ) -> None:
        self.ledger_id = ledger_id
        self.properties = dict(properties)
        self.proof = proof
        """The proof in each record of the ledger; NO_PROOF: an earlier version wrote the ledger."""
        self.last_confirmed = self.pushed = self.journaled = last_entry_id
        self.length_bytes = length
        self.index: LedgerIndex | None = None
        """None until the index is loaded from the file."""
        self.fetching_index: asyncio.Future[None] | None = None
        self.closed = False
        """Whether the ledger is closed in the metadata: then last entry and length are final."""
        self.sealing: asyncio.Future[None] | None = None
        self.deleted = False
        self.refusal: StorageError | None = None
        """The error of all further appends; None: the writer takes appends."""
        self.last_failure: StorageError | None = None
        self.pending = 0
        """Appends not yet answered."""
        self.overlapped_s = -1.0
        """The time at which an append last came while an earlier append was unanswered (``CommitLane``'s clock)."""
        self.idle_waiters: list[asyncio.Future[None]] = []
        self.unwritten: deque[UnwrittenSlab] = NO_ITEMS
        """Confirmed slabs that are not in the ledger file yet, ascending."""
        self.unwritten_bytes = 0
        self.metadata_version = 0

    @property
    def written_entry(self) -> int:
        """Highest entry in the ledger file."""
        return self.unwritten[0].first_entry_id - 1 if self.unwritten else self.last_confirmed

    @property
    def end_offset(self) -> int:
        """The offset of the next record in the ledger file."""
        return FILE_HEADER_BYTES + self.length_bytes

    @property
    def written_offset(self) -> int:
        """The end of the written records in the ledger file."""
        return self.end_offset - self.unwritten_bytes

    def confirm(self, slab: Slab, place: Place) -> UnwrittenSlab:
        """Add a slab that is on disk at ``place`` in the journal; returns its way to the ledger file."""
        offset = FILE_HEADER_BYTES + self.length_bytes
        if self.index is None:
            raise AssertionError("a ledger open for append has its index in memory")
        self.index.add_records(slab.first_entry_id, offset, slab.offset_view)
        size = slab.size_bytes
        unwritten = UnwrittenSlab(self, slab, offset, place)
        if self.unwritten is NO_ITEMS:
            self.unwritten = deque()
        self.unwritten.append(unwritten)
        self.unwritten_bytes += size
        self.last_confirmed = slab.last_entry_id
        self.length_bytes += size
        return unwritten

    def written(self) -> UnwrittenSlab:
        """Remove and return the oldest unwritten slab, which is now in the ledger file."""
        slab = self.unwritten.popleft()
        if not self.unwritten:
            self.unwritten = NO_ITEMS
        self.unwritten_bytes -= slab.size_bytes
        return slab

    def unwritten_slab(self, entry_id: int) -> Slab | None:
        """The slab with this entry, if the slab is in memory because the ledger file does not have it yet."""
        unwritten = self.unwritten
        if not unwritten or not unwritten[0].first_entry_id <= entry_id <= self.last_confirmed:
            return None
        return unwritten[bisect_right(unwritten, entry_id, key=_FIRST) - 1].slab

    def parked(self, entry_id: int, end_offset: int) -> list[UnwrittenSlab]:
        """The parked slab with this entry, and at most 255 parked slabs right behind it that begin before
        ``end_offset`` of the ledger file; empty when no parked slab has the entry.
        """
        unwritten = self.unwritten
        if not unwritten or not unwritten[0].first_entry_id <= entry_id <= self.last_confirmed:
            return []
        found: list[UnwrittenSlab] = []
        first = bisect_right(unwritten, entry_id, key=_FIRST) - 1
        for index in range(first, min(first + _MOST_PARKED_OF_A_READ, len(unwritten))):
            slab = unwritten[index]
            if slab.slab is not None or (found and slab.offset >= end_offset):
                break
            found.append(slab)
        return found

    def info(self) -> LedgerInfo:
        """The ledger's facts in the form of the interfaces."""
        return LedgerInfo(self.ledger_id, self.last_confirmed, self.length_bytes, self.properties)
