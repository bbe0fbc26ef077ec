"""Keeps entries that a replica may still need, and the callers that wait for confirmation. Loop only, no I/O."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from magnetar.bookkeeper.ledgers.quorum import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.bookkeeper.errors import BookKeeperError
    from magnetar.bookkeeper.wire.entries import EntryRun

    AddDone = Callable[[BookKeeperError | None], None]

__all__ = ["AddQueue", "PendingAdd"]


class PendingAdd(NamedTuple):
    """A run of entries whose caller waits for the confirmation."""

    first: int
    last: int
    done: AddDone
    length: int
    """Payload bytes of the ledger up to and with ``last``."""
    size_bytes: int
    pushed_s: float


class AddQueue:
    """Runs in the order of their entries. A run stays in the queue until it is confirmed and the writer has sent it to
    every connected replica.
    """

    def __init__(self, ensemble_size: int, write_quorum: int) -> None:
        self._ensemble_size, self._write_quorum = ensemble_size, write_quorum
        self._runs: deque[EntryRun] = deque()
        self._pending: deque[PendingAdd] = deque()
        self.kept_bytes = 0
        self.pending_bytes = 0

    @property
    def oldest(self) -> PendingAdd | None:
        return self._pending[0] if self._pending else None

    def push(self, run: EntryRun, done: AddDone, now_s: float) -> None:
        self._runs.append(run)
        self._pending.append(PendingAdd(run.first, run.last, done, run.length, len(run.frames), now_s))
        self.kept_bytes += len(run.frames)
        self.pending_bytes += len(run.frames)

    def frames(self, place: int, after: int) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yield (last entry, frames for this place) of each run, with the entries after entry `after`."""
        runs = []
        for run in reversed(self._runs):  # backwards, because the wanted runs are the newest
            if run.last <= after:
                break
            runs.append(run)
        for run in reversed(runs):
            yield run.last, self._part(run, max(run.first, after + 1), place)

    def resolve(self, confirmed: int) -> list[PendingAdd]:
        """Remove and return the adds whose entries are all confirmed, in order."""
        found = []
        while self._pending and self._pending[0].last <= confirmed:
            found.append(self._pending.popleft())
            self.pending_bytes -= found[-1].size_bytes
        return found

    def fail(self) -> list[PendingAdd]:
        """Return all waiting adds in order, and empty the queue."""
        found = list(self._pending)
        self._pending.clear()
        self._runs.clear()
        self.kept_bytes = self.pending_bytes = 0
        return found

    def release(self, confirmed: int, sent: int) -> None:
        """Drop the runs that are confirmed and do not go beyond `sent`, the last entry sent to the slowest replica."""
        limit = min(confirmed, sent)
        while self._runs and self._runs[0].last <= limit:
            self.kept_bytes -= len(self._runs.popleft().frames)

    def length_at(self, entry_id: int) -> int | None:
        """Return the payload bytes of the ledger up to and with this entry, from the entry's header; None when the
        queue has dropped the entry.
        """
        for run in self._runs:
            if run.first <= entry_id <= run.last:
                return run.length_at(entry_id)
        return None

    def _part(self, run: EntryRun, first: int, place: int) -> bytes | memoryview:
        if self._ensemble_size == self._write_quorum:
            return run.frames if first == run.first else run.part(first, run.last)
        return b"".join(
            run.part(entry_id, entry_id)
            for entry_id in range(first, run.last + 1)
            if holds(place, entry_id, self._ensemble_size, self._write_quorum)
        )
