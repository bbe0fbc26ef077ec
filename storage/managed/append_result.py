"""One run between its append and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.storage.interfaces import PromptDone

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.errors import StorageError
    from magnetar.storage.interfaces import EarlyAnswer

    RunNotice = Callable[["EntryRun", "AppendPiece"], EarlyAnswer]
    """Gets a run and its only piece while the run is written; returns the function to call when it is on the disk."""

__all__ = ["AppendBooks", "AppendPiece", "AppendResult", "PendingAppend", "RunNotice"]


class AppendPiece(NamedTuple):
    """Entries ``start .. end - 1`` of the run are the ledger's entries from ``first_entry_id`` on."""

    ledger_id: int
    first_entry_id: int
    start: int
    end: int


class AppendResult(NamedTuple):
    """The result of a run.

    ``error`` None: every entry is on disk; ``pieces`` cover the run in order (several pieces only at a rollover).
    Otherwise ``pieces`` are the pieces that were written before the failure: a prefix of the run, often empty.
    """

    run: EntryRun
    pieces: list[AppendPiece]
    error: StorageError | None


class AppendBooks(Protocol):
    """The part of the appender that records the outcome of each piece."""

    pending: deque[PendingAppend]
    """The runs without a result, in order."""

    def piece_confirmed(self, piece: AppendPiece, index: int) -> None:
        """Record that the piece is on disk. ``index``: broker index of its last entry."""
        ...

    def piece_failed(self, error: StorageError) -> None:
        """Record that the oldest pending piece failed."""
        ...


class PendingAppend(PromptDone):
    """A run between ``append`` and its callback. The ledger writer calls it as the ``done`` of each piece of the
    run.
    """

    __slots__ = ("confirmed", "done", "error", "indexes", "next", "owner", "pieces", "run", "run_notice")

    def __init__(
        self,
        owner: AppendBooks,
        run: EntryRun,
        done: Callable[[AppendResult], None],
        notice: RunNotice | None = None,
    ) -> None:
        self.owner = owner
        self.run = run
        self.done = done
        self.run_notice = notice
        self.pieces: list[AppendPiece] = []
        self.next = 0
        """The first entry of the run that is not pushed yet."""
        self.confirmed = 0
        """The number of pieces that the writer has reported as written."""
        self.indexes: list[int] = []
        """Broker index of the last entry of each piece."""
        self.error: StorageError | None = None

    @property
    def written(self) -> int:
        """The number of the run's entries that the writer has reported as written."""
        return self.pieces[self.confirmed - 1].end if self.confirmed else 0

    def result(self) -> AppendResult:
        return AppendResult(self.run, self.pieces, self.error)

    def notice(self) -> EarlyAnswer | None:
        """The early notice of a run in one piece, unless an earlier run has no result yet."""
        is_whole = self.next == self.run.count and len(self.pieces) == 1 and self.error is None
        if self.run_notice is not None and is_whole and self.owner.pending[0] is self:
            return self.run_notice(self.run, self.pieces[0])
        return None

    def __call__(self, error: StorageError | None) -> None:
        """Take the writer's report on the oldest piece without a report."""
        piece = self.pieces[self.confirmed]
        if error is None:
            self.confirmed += 1
            self.owner.piece_confirmed(piece, self.indexes[self.confirmed - 1])
        else:
            del self.pieces[self.confirmed], self.indexes[self.confirmed]
            self.error = self.error or error
            self.owner.piece_failed(error)
