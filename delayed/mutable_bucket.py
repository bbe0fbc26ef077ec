"""The mutable bucket: entries published since the last seal, in memory only. Pure.

The indexes are in chunks of 4096, of which at first only the smallest time is known. A chunk is sorted when an index in
it is due, or by the seal, outside of the event loop. The next due time is the smallest of the chunks' head times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.delayed.sorted_run import AFTER_ALL, Columns, Key, SortedRun
from magnetar.delayed.sorting import merge, sort

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CHUNK_INDEXES", "Chunk", "MutableBucket"]

CHUNK_INDEXES = 4096
_MAX_CHUNKS = 32
_SMALL_CHUNK = 2048


class Chunk:
    """A `Source` that is wholly in memory; it is sorted when indexes are first taken from it."""

    __slots__ = ("_columns", "_last_time", "_min_time", "_run")

    def __init__(self, columns: Columns, min_time: int) -> None:
        self._columns, self._min_time = columns, min_time
        self._last_time = -1
        self._run: SortedRun | None = None

    @classmethod
    def of_sorted(cls, columns: Columns) -> Chunk:
        chunk = cls(columns, columns.times[0] if columns.rows else AFTER_ALL)
        chunk._run = SortedRun(columns)
        return chunk

    @property
    def run(self) -> SortedRun:
        if self._run is None:
            self._run = SortedRun(sort(self._columns))
            self._columns = self._run.columns
        return self._run

    @property
    def current(self) -> SortedRun | None:
        return self.run if len(self.run) else None

    def bound(self) -> Key | None:
        return None

    def __len__(self) -> int:
        return self._columns.rows if self._run is None else len(self._run)

    @property
    def head_time(self) -> int:
        """The time of the earliest remaining index; AFTER_ALL for an empty chunk."""
        if self._run is None:
            return self._min_time
        return self._run.head_time if len(self._run) else AFTER_ALL

    @property
    def last_time(self) -> int:
        """The time of the latest remaining index; -1 for an empty chunk."""
        if not len(self):
            return -1
        if self._last_time < 0:
            self._last_time = max(self._columns.times)
        return self._last_time

    @property
    def size_bytes(self) -> int:
        return self._columns.size_bytes

    def copy(self) -> Chunk:
        """Return a chunk of the remaining indexes, for use in another thread."""
        if self._run is None:
            return Chunk(self._columns, self._min_time)
        return Chunk.of_sorted(self._run.rest())


_NO_INDEXES: Final = Columns.empty()
"""The open chunk before its first index; never changed. Most topics have no delayed entries."""


class MutableBucket:
    """Chunks in service: open, closed, and those frozen while a seal is under way."""

    def __init__(self) -> None:
        self._open = _NO_INDEXES
        self._open_min = AFTER_ALL
        self._closed: Sequence[Chunk] = ()
        self._frozen: Sequence[Chunk] = ()
        self._chunks_min: int | None = AFTER_ALL
        """The smallest time of closed and frozen chunks; None: not known, because indexes may have left a chunk."""

    def __len__(self) -> int:
        """Indexes not yet taken, including frozen indexes."""
        return self._open.rows + sum(map(len, self._closed)) + sum(map(len, self._frozen))

    @property
    def growing(self) -> int:
        """The number of indexes that are not frozen; the next seal freezes some or all of them."""
        return self._open.rows + sum(map(len, self._closed))

    @property
    def memory_bytes(self) -> int:
        return self._open.size_bytes + sum(c.size_bytes for c in (*self._closed, *self._frozen))

    def extend(self, ledger_id: int, first_entry_id: int, times: Sequence[int]) -> None:
        """Add consecutive entries, all of them delayed."""
        self.add_all(ledger_id, range(first_entry_id, first_entry_id + len(times)), times)

    def add_all(self, ledger_id: int, entry_ids: Sequence[int], times: Sequence[int]) -> None:
        """Add entries of one ledger."""
        start, count = 0, len(times)
        while start < count:
            open_ = self._opened()
            end = min(count, start + CHUNK_INDEXES - open_.rows)
            window = times[start:end]
            earliest = min(window)
            self._open_min = min(self._open_min, earliest)
            open_.times.extend(window)
            open_.ledgers.extend([ledger_id] * (end - start))
            open_.entries.extend(entry_ids[start:end])
            start = end
            if open_.rows >= CHUNK_INDEXES:
                self._close_open()

    def add(self, time: int, ledger_id: int, entry_id: int) -> None:
        columns = self._opened()
        self._open_min = min(self._open_min, time)
        columns.times.append(time)
        columns.ledgers.append(ledger_id)
        columns.entries.append(entry_id)
        if columns.rows >= CHUNK_INDEXES:
            self._close_open()

    def _opened(self) -> Columns:
        if self._open is _NO_INDEXES:
            self._open = Columns.empty()
        return self._open

    def _close_open(self) -> None:
        if self._open.rows:
            self._closed = [*self._closed, Chunk(self._open, self._open_min)]
            if self._chunks_min is not None:
                self._chunks_min = min(self._chunks_min, self._open_min)
        self._open, self._open_min = _NO_INDEXES, AFTER_ALL

    # --- serving -------------------------------------------------------------------------------------------------

    @property
    def next_time(self) -> int:
        """The time when the earliest index is due; AFTER_ALL for an empty bucket."""
        if self._chunks_min is None:
            self._chunks_min = min((c.head_time for c in (*self._closed, *self._frozen)), default=AFTER_ALL)
        return min(self._open_min, self._chunks_min)

    @property
    def last_time(self) -> int:
        """The farthest time; -1 for an empty bucket."""
        latest = max((c.last_time for c in (*self._closed, *self._frozen)), default=-1)
        return max(max(self._open.times, default=-1), latest)

    def sources(self, cutoff_ms: int) -> Iterator[Chunk]:
        """The chunks with due indexes."""
        self._chunks_min = None
        if self._open_min <= cutoff_ms:
            self._close_open()
        self._closed = [c for c in self._closed if len(c)]
        if len(self._closed) > _MAX_CHUNKS:
            self._join_small()
        yield from (c for c in (*self._closed, *self._frozen) if c.head_time <= cutoff_ms)

    def _join_small(self) -> None:
        """Join many remainders of chunks, left by short delays among long delays, into one chunk."""
        small = [c for c in self._closed if len(c) < _SMALL_CHUNK]
        if len(small) < _MAX_CHUNKS // 2:
            return
        joined = merge([c.run.rest() for c in small])
        self._closed = [*(c for c in self._closed if len(c) >= _SMALL_CHUNK), Chunk.of_sorted(joined)]

    # --- sealing -------------------------------------------------------------------------------------------------

    def freeze(self, at_least: int) -> list[Chunk]:
        """Freeze the oldest chunks, until they hold at least `at_least` indexes, and return copies for a seal. The
        frozen chunks stay in service until `sealed` or `thaw`.

        More chunks are not frozen, because sorting indexes delays all other work of this process.
        """
        assert not self._frozen
        self._close_open()
        count = 0
        for k, chunk in enumerate(self._closed):
            count += len(chunk)
            if count >= at_least:
                self._frozen, self._closed = self._closed[: k + 1], self._closed[k + 1 :]
                break
        else:
            self._frozen, self._closed = self._closed, ()
        self._frozen = [c for c in self._frozen if len(c)]
        return [c.copy() for c in self._frozen]

    def frozen_time(self) -> int:
        """The time of the earliest frozen index; AFTER_ALL without frozen indexes."""
        return min((c.head_time for c in self._frozen), default=AFTER_ALL)

    def sealed(self) -> None:
        self._frozen = ()
        self._chunks_min = None

    def thaw(self) -> None:
        self._closed = [*self._frozen, *self._closed]
        self._frozen = ()

    def clear(self) -> None:
        """Remove all indexes."""
        self.__init__()  # type: ignore[misc]
