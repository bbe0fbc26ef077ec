"""An immutable bucket in service. In memory: its directory, the current segment and at most the next. Pure."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from magnetar.delayed.sorted_run import AFTER_ALL, Key, SortedRun

if TYPE_CHECKING:
    from magnetar.delayed.catalogue import BucketRecord
    from magnetar.delayed.snapshot_format import Directory
    from magnetar.delayed.sorted_run import Columns

__all__ = ["ImmutableBucket"]


class ImmutableBucket:
    """A `Source`. The indexes before the current segment, and those already taken from it, are no longer needed."""

    def __init__(self, record: BucketRecord, directory: Directory, segment: int = 0) -> None:
        self.record = record
        self.directory = directory
        self.segment = segment
        """The current segment, in memory or not."""
        self.loading = -1
        """The number of the segment that the index reads; -1: no read is under way."""
        self.resting = False
        """Whether a read has failed; the index tries again later."""
        self.merging = False
        self.gone = False
        """Whether the bucket is out of service: reads for it that are under way are dropped."""
        self._current: SortedRun | None = None
        self._next: SortedRun | None = None
        self._rest = array("q", accumulate(reversed(directory.counts), initial=0))[::-1]
        """The number of indexes from each segment to the end."""

    @property
    def current(self) -> SortedRun | None:
        return self._current

    def bound(self) -> Key | None:
        if self._current is not None:
            return self._current.last_key if self.segment + 1 < self.directory.segments else None
        if self.segment < self.directory.segments:
            return self.directory.first_times[self.segment], -1, -1
        return None

    def advance(self) -> None:
        """Go to the next segment when the current segment is used up."""
        if self._current is not None and not len(self._current):
            self._current, self._next = self._next, None
            self.segment += 1

    def wanted_segment(self, horizon_ms: int) -> int:
        """Return the segment that should be in memory because it begins before the horizon; -1 when no segment is
        missing.
        """
        if self.loading >= 0 or self.gone:
            return -1
        wanted = self.segment
        if self._current is not None:
            if self._next is not None or len(self._current) * 2 > len(self._current.times):
                return -1
            wanted += 1
        if wanted >= self.directory.segments or self.directory.first_times[wanted] > horizon_ms:
            return -1
        return wanted

    def loaded(self, segment: int, columns: Columns) -> None:
        """Take a segment that was read, if it is the current or the next segment and not in memory."""
        if segment == self.segment and self._current is None:
            self._current = SortedRun(columns)
        elif segment == self.segment + 1 and self._current is not None and self._next is None:
            self._next = SortedRun(columns)

    def skip_before(self, time_ms: int) -> None:
        """Start at the first segment that reaches this time: earlier indexes are not needed."""
        while self.segment < self.directory.segments and self.directory.last_times[self.segment] < time_ms:
            self.segment += 1

    def exhaust(self) -> None:
        """Drop the rest: no index of the bucket is needed any more."""
        self.segment, self._current, self._next = self.directory.segments, None, None

    @property
    def exhausted(self) -> bool:
        return self.segment >= self.directory.segments

    @property
    def next_time(self) -> int:
        """The time when the earliest remaining index is due."""
        if self._current is not None:
            return self._current.head_time if len(self._current) else AFTER_ALL
        return AFTER_ALL if self.exhausted else self.directory.first_times[self.segment]

    @property
    def waits_for_load(self) -> bool:
        return self._current is None and not self.exhausted

    def is_late(self, cutoff_ms: int) -> bool:
        """Whether due entries still have to be read."""
        return self.waits_for_load and not self.resting and self.next_time <= cutoff_ms

    @property
    def remaining(self) -> int:
        """Indexes not yet taken."""
        current = self._current
        return self._rest[self.segment] if current is None else self._rest[self.segment + 1] + len(current)

    @property
    def loaded_indexes(self) -> int:
        return sum(len(run) for run in (self._current, self._next) if run is not None)

    @property
    def memory_bytes(self) -> int:
        segments = sum(r.columns.size_bytes for r in (self._current, self._next) if r is not None)
        return segments + 28 * self.directory.segments + 8 * len(self.directory.ledgers) + 500
