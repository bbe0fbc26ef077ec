"""The mutable bucket: what was published since the last seal, in memory only. Pure.

Sorted chunks and one open chunk of which only the smallest time is known; sorting happens 4096 at a time, so no publish
pays for more than its share, and the next due time is the smallest of the chunks' heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.delayed.sorted_run import AFTER_ALL, Columns, Key, SortedRun, concatenate, sort

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CHUNK_INDEXES", "Chunk", "MutableBucket"]

CHUNK_INDEXES = 4096
_MAX_CHUNKS = 32
_SMALL_CHUNK = 2048


class Chunk:
    """A sorted run, all of it in memory: a `Source`."""

    __slots__ = ("run",)

    def __init__(self, run: SortedRun) -> None:
        self.run = run

    @property
    def current(self) -> SortedRun | None:
        return self.run if len(self.run) else None

    def bound(self) -> Key | None:
        return None


class MutableBucket:
    """Chunks in service: open, sorted, and those frozen while a seal is under way."""

    def __init__(self) -> None:
        self._open = Columns.empty()
        self._open_min = AFTER_ALL
        self._ascending = True
        self._last = (-1, -1)
        self._sorted: list[Chunk] = []
        self._frozen: list[Chunk] = []

    def __len__(self) -> int:
        """Indexes not yet taken, frozen ones too."""
        return self._open.rows + sum(len(c.run) for c in self._sorted) + sum(len(c.run) for c in self._frozen)

    @property
    def growing(self) -> int:
        """Indexes that the next seal would freeze."""
        return self._open.rows + sum(len(c.run) for c in self._sorted)

    @property
    def memory_bytes(self) -> int:
        return self._open.size_bytes + sum(c.run.columns.size_bytes for c in (*self._sorted, *self._frozen))

    def extend(self, ledger_id: int, first_entry_id: int, times: Sequence[int]) -> None:
        """Consecutive entries, all delayed."""
        start, count = 0, len(times)
        while start < count:
            open_ = self._open
            end = min(count, start + CHUNK_INDEXES - open_.rows)
            window = times[start:end]
            self._note(ledger_id, first_entry_id + start, first_entry_id + end - 1, min(window))
            open_.times.extend(window)
            open_.ledgers.extend([ledger_id] * (end - start))
            open_.entries.extend(range(first_entry_id + start, first_entry_id + end))
            start = end
            if open_.rows >= CHUNK_INDEXES:
                self._close_open()

    def add(self, time: int, ledger_id: int, entry_id: int) -> None:
        self._note(ledger_id, entry_id, entry_id, time)
        columns = self._open
        columns.times.append(time)
        columns.ledgers.append(ledger_id)
        columns.entries.append(entry_id)
        if columns.rows >= CHUNK_INDEXES:
            self._close_open()

    def _note(self, ledger_id: int, first: int, last: int, time: int) -> None:
        if (ledger_id, first) <= self._last:
            self._ascending = False
        self._last = (ledger_id, last)
        self._open_min = min(self._open_min, time)

    def _close_open(self) -> None:
        if self._open.rows:
            self._sorted.append(Chunk(SortedRun(sort(self._open, by_position=self._ascending))))
        self._open, self._open_min = Columns.empty(), AFTER_ALL
        self._ascending, self._last = True, (-1, -1)

    # --- serving -------------------------------------------------------------------------------------------------

    @property
    def next_time(self) -> int:
        """When the earliest index is due; AFTER_ALL when there is none."""
        times = [c.run.head_time for c in (*self._sorted, *self._frozen) if len(c.run)]
        return min(self._open_min, min(times, default=AFTER_ALL))

    @property
    def last_time(self) -> int:
        """The farthest time; -1 when there is none."""
        times = [c.run.times[-1] for c in (*self._sorted, *self._frozen) if len(c.run)]
        return max(max(self._open.times, default=-1), max(times, default=-1))

    def sources(self, cutoff_ms: int) -> Iterator[Chunk]:
        """The chunks to take from; what is due in the open one is sorted first."""
        if self._open_min <= cutoff_ms:
            self._close_open()
        self._sorted = [c for c in self._sorted if len(c.run)]
        if len(self._sorted) > _MAX_CHUNKS:
            self._join_small()
        yield from self._sorted
        yield from self._frozen

    def _join_small(self) -> None:
        """Many remainders of chunks, left by short delays among long ones, become one chunk."""
        small = [c for c in self._sorted if len(c.run) < _SMALL_CHUNK]
        if len(small) < _MAX_CHUNKS // 2:
            return
        joined = sort(concatenate(c.run.rest() for c in small), by_position=False)
        self._sorted = [c for c in self._sorted if len(c.run) >= _SMALL_CHUNK]
        self._sorted.append(Chunk(SortedRun(joined)))

    # --- sealing -------------------------------------------------------------------------------------------------

    def freeze(self, at_least: int) -> list[Columns]:
        """What a seal is to store: the oldest chunks, so many indexes or all. In service until `sealed` or `thaw`.

        Not more, for sorting them holds up everything else in this process.
        """
        assert not self._frozen
        self._close_open()
        count = 0
        for k, chunk in enumerate(self._sorted):
            count += len(chunk.run)
            if count >= at_least:
                self._frozen, self._sorted = self._sorted[: k + 1], self._sorted[k + 1 :]
                break
        else:
            self._frozen, self._sorted = self._sorted, []
        self._frozen = [c for c in self._frozen if len(c.run)]
        return [c.run.rest() for c in self._frozen]

    def frozen_time(self) -> int:
        """No index before this time is left in what was frozen."""
        return min((c.run.head_time for c in self._frozen if len(c.run)), default=AFTER_ALL)

    def sealed(self) -> None:
        self._frozen = []

    def thaw(self) -> None:
        self._sorted = self._frozen + self._sorted
        self._frozen = []

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]
