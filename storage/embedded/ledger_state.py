"""The engine's state of one ledger. Only the loop changes it, except ``journaled`` and ``last_failure``, which the
owner of the journal changes (``journal/writer.py``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_head import NO_PROOF
from magnetar.storage.interfaces import LedgerInfo

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from magnetar.storage.embedded.ledger_index import LedgerIndex
    from magnetar.storage.errors import StorageError
    from magnetar.storage.slab import Slab

__all__ = ["LedgerState"]

_FIRST = attrgetter("first_entry_id")


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
        self.unwritten: deque[Slab] = deque()
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

    def confirm(self, slab: Slab) -> int:
        """Add a slab that is on disk in the journal; returns the slab's offset in the ledger file."""
        offset = FILE_HEADER_BYTES + self.length_bytes
        if self.index is None:
            raise AssertionError("a ledger open for append has its index in memory")
        self.index.add_records(slab.first_entry_id, offset, slab.offset_view)
        size = slab.size_bytes
        self.unwritten.append(slab)
        self.unwritten_bytes += size
        self.last_confirmed = slab.last_entry_id
        self.length_bytes += size
        return offset

    def written(self) -> Slab:
        """Remove and return the oldest unwritten slab, which is now in the ledger file."""
        slab = self.unwritten.popleft()
        self.unwritten_bytes -= slab.size_bytes
        return slab

    def unwritten_slab(self, entry_id: int) -> Slab | None:
        """The slab with this entry, if the ledger file does not have it yet."""
        unwritten = self.unwritten
        if not unwritten or not unwritten[0].first_entry_id <= entry_id <= self.last_confirmed:
            return None
        return unwritten[bisect_right(unwritten, entry_id, key=_FIRST) - 1]

    def info(self) -> LedgerInfo:
        """The ledger's facts in the form of the interfaces."""
        return LedgerInfo(self.ledger_id, self.last_confirmed, self.length_bytes, self.properties)
