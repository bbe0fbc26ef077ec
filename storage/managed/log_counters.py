"""Counts of one managed ledger since its opening: reads from the store, failures, saves of cursors, new ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.slab import Span

__all__ = ["LogCounters", "LogCounts"]


class LogCounts(NamedTuple):
    """The counts at a moment, or their differences between two moments."""

    read_entries: int = 0
    """Entries that a read took from the store because the cache lacked them."""
    read_bytes: int = 0
    """The bytes of these entries, without the headers of their records."""
    failed_reads: int = 0
    failed_appends: int = 0
    """Entries whose append failed."""
    mark_deletes: int = 0
    """Saves of the acknowledgements of a cursor that began."""

    def since(self, earlier: LogCounts) -> LogCounts:
        """Return the differences to the counts of an earlier moment."""
        return LogCounts(*(now - then for now, then in zip(self, earlier, strict=True)))


_MOST_SWITCHES = 1000


class LogCounters:
    """Counted by the parts of the managed ledger."""

    __slots__ = (
        "_creation_s",
        "_has_listed",
        "failed_appends",
        "failed_reads",
        "mark_deletes",
        "read_bytes",
        "read_entries",
        "switches_ms",
    )

    def __init__(self) -> None:
        self.read_entries = self.read_bytes = self.failed_reads = self.failed_appends = self.mark_deletes = 0
        self.switches_ms: tuple[float, ...] = ()
        """For each new ledger but the first since the opening the time that its creation and the save of the list took,
        since the reader of the counts emptied this; at most 1,000.
        """
        self._creation_s = 0.0
        self._has_listed = False

    def read(self, spans: Sequence[Span]) -> None:
        """Count entries that came from the store."""
        for slab, start, end in spans:
            self.read_entries += end - start
            offsets = slab.offset_view
            self.read_bytes += offsets[end] - offsets[start] - (end - start) * RECORD_HEADER_BYTES

    def ledger_created(self, seconds: float) -> None:
        """Note how long the creation of the next ledger took."""
        self._creation_s = seconds

    def ledger_listed(self, seconds: float) -> None:
        """Note that the stored list names the ledger, after a save of that time."""
        if self._has_listed and len(self.switches_ms) < _MOST_SWITCHES:
            self.switches_ms += ((self._creation_s + seconds) * 1000,)
        self._has_listed = True

    def counts(self) -> LogCounts:
        return LogCounts(self.read_entries, self.read_bytes, self.failed_reads, self.failed_appends, self.mark_deletes)
