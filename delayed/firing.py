"""The core of the index: entries come in, wait, and fire once. Plain functions on one loop, without await and timers.

Invariants after every call:

* a pending entry is in the mutable bucket, in the remaining part of a bucket, or is being read again from the log;
* an entry fires when its time has come, and only while its bit is set, so at most once;
* firing and the notification of each view are one step, without a read of a cursor in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.delayed.due_merge import take_due, take_due_unordered
from magnetar.delayed.index_stats import IndexCounters
from magnetar.delayed.mutable_bucket import MutableBucket
from magnetar.delayed.pending_entries import PendingEntries
from magnetar.delayed.sorted_run import AFTER_ALL, Columns
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from magnetar.delayed.bitmap_shelf import BitmapShelf
    from magnetar.delayed.bucket_view import BucketDelayView
    from magnetar.delayed.delay_settings import DelayPolicy
    from magnetar.delayed.due_merge import Source
    from magnetar.delayed.immutable_bucket import ImmutableBucket
    from magnetar.delayed.pending_entries import Rows
    from magnetar.protocol.runs import EntryRun

__all__ = ["Firing"]

_DELAYED = int(EntryFlag.HAS_DELIVER_AT)
_FASTER_UNORDERED = 4
"""Factor of the indexes that fire in one turn when the order does not matter."""


class Firing:
    """Everything that is pending on one topic."""

    def __init__(
        self, policy: DelayPolicy, now_ms: Callable[[], int], slice_indexes: int, shelf: BitmapShelf | None = None
    ) -> None:
        self.policy = policy
        self.pending = PendingEntries(shelf)
        self.cancelled = PendingEntries()
        self.mutable = MutableBucket()
        self.buckets: list[ImmutableBucket] = []
        self.views: dict[str, BucketDelayView] = {}
        self.counters = IndexCounters()
        self.recovering = False
        """Whether buckets are still coming into service: a cursor may read entries that the index does not have yet."""
        self.behind = False
        """Whether due entries have not fired: the next slice follows at once, or when its segment has been read."""
        self.passed_early = False
        """Whether entries may have passed before their times, because delays have been off since the load."""
        self._now_ms = now_ms
        self._slice_indexes = slice_indexes
        self.given_while_behind = max(slice_indexes // 8, 1)
        """Entries that a view returns per slice while due entries have not fired; neighbours of the entries that wait
        come with the next slices."""
        self._judged_until = -AFTER_ALL

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def early_ms(self) -> int:
        """How much before its time an entry may be delivered, in ms."""
        return 0 if self.policy.strict else self.policy.tick_ms

    def cutoff(self) -> int:
        """The time up to which entries are due now; the largest time when delays are switched off."""
        return self._now_ms() + self.early_ms if self.policy.active else AFTER_ALL

    def due_before(self) -> int:
        """The largest `cutoff` so far, for entries that are not pending: when the clock goes back, entries that have
        fired stay due and do not come twice.
        """
        if not self.policy.active:
            self.passed_early = True
            return AFTER_ALL
        self._judged_until = max(self._judged_until, self.cutoff())
        return self._judged_until

    # --- entries come in -----------------------------------------------------------------------------------------

    def published(self, run: EntryRun, pieces: Iterable[tuple[int, int, int, int]]) -> int:
        """Index the entries of a run that is on the disk; return the number of entries that wait from now on."""
        times = run.deliver_at_view()
        if times is None or not self.policy.active:
            return 0
        cutoff, held = self.cutoff(), 0
        every = run.all_flags & _DELAYED
        for ledger_id, first, start, end in pieces:
            window = times[start:end]
            if every and (min(window) > cutoff):
                self.mutable.extend(ledger_id, first, window)
                self.pending.add_range(ledger_id, first, first + end - start)
                held += end - start
                continue
            flags = run.flag_view()[start:end]
            for k, time in enumerate(window):
                if flags[k] & _DELAYED and time > cutoff:
                    self.mutable.add(time, ledger_id, first + k)
                    self.pending.add(ledger_id, first + k)
                    held += 1
        return held

    def hold_all(self, ledger_id: int, entries: Rows) -> list[int]:
        """Index entries that were read from the log and are not pending; return those that are not due. Due entries
        have no effect.
        """
        due_before = self.due_before()
        waiting = [(entry_id, time) for entry_id, time in entries if time > due_before]
        if not waiting:
            return []
        entry_ids = [entry_id for entry_id, _ in waiting]
        self.mutable.add_all(ledger_id, entry_ids, [time for _, time in waiting])
        self.pending.update(ledger_id, entry_ids)
        return entry_ids

    def found_all(self, ledger_id: int, entries: Rows, *, repair: bool) -> None:
        """Index entries that a scan of the log found. ``repair``: a pending entry may have lost its bucket."""
        if (cancelled := self.cancelled.of(ledger_id)) is not None:
            entries = [row for row in entries if row[0] not in cancelled]
        if (pending := self.pending.of(ledger_id)) is not None:
            again = [row for row in entries if row[0] in pending] if repair else []
            entries = [row for row in entries if row[0] not in pending]
            self.mutable.add_all(ledger_id, [entry_id for entry_id, _ in again], [time for _, time in again])
        self.hold_all(ledger_id, entries)

    # --- firing --------------------------------------------------------------------------------------------------

    def fire(self) -> bool:
        """Fire the next piece of the due entries in memory; returns whether entries fired."""
        cutoff = self.cutoff()
        self.due_before()
        batches = self._take(cutoff)
        for bucket in self.buckets:
            bucket.advance()
        self.behind = AFTER_ALL > self.next_time() <= cutoff or any(b.is_late(cutoff) for b in self.buckets)
        for due in batches:
            batch = self.pending.take(due)
            self.pending.keep_within()
            if batch.rows:
                self._tell(batch)
        return bool(batches)

    def _take(self, cutoff: int) -> list[Columns]:
        """Take due entries, in exact order as long as a view keeps that order."""
        sources = self._sources(cutoff)
        if not any(view.keeps_order for view in self.views.values()):
            return take_due_unordered(sources, cutoff, self._slice_indexes * _FASTER_UNORDERED)
        batch = take_due(sources, cutoff, self._slice_indexes)
        return [batch] if batch.rows else []

    def _sources(self, cutoff: int) -> Iterator[Source]:
        yield from self.mutable.sources(cutoff)
        yield from self.buckets

    def _tell(self, batch: Columns) -> None:
        if self.policy.active:
            self.counters.note_fired(batch.times, self._now_ms())
        for view in self.views.values():
            self.counters.spills += view.fired(batch)

    def next_time(self) -> int:
        """The time when the next index in memory is due; AFTER_ALL without such an index."""
        return min(
            self.mutable.next_time, min((b.next_time for b in self.buckets if not b.waits_for_load), default=AFTER_ALL)
        )

    # --- facts ---------------------------------------------------------------------------------------------------

    @property
    def earliest(self) -> int | None:
        """The earliest deliver_at that is waiting."""
        if not self.pending:
            return None
        earliest = min(self.mutable.next_time, min((b.next_time for b in self.buckets), default=AFTER_ALL))
        return None if earliest == AFTER_ALL else earliest

    @property
    def latest(self) -> int | None:
        if not self.pending:
            return None
        latest = max(self.mutable.last_time, max((b.record.max_time for b in self.buckets), default=-1))
        return None if latest < 0 else latest

    @property
    def memory_bytes(self) -> int:
        """Bitmaps, columns and untaken entries of the views; batches shared by views count once."""
        batches = {id(b): b.size_bytes for view in self.views.values() for b in view.batches()}
        return (
            self.pending.memory_bytes
            + self.cancelled.memory_bytes
            + self.mutable.memory_bytes
            + sum(b.memory_bytes for b in self.buckets)
            + sum(batches.values())
            + sum(view.memory_bytes for view in self.views.values())
        )

    @property
    def loaded(self) -> int:
        return len(self.mutable) + sum(b.loaded_indexes for b in self.buckets)
