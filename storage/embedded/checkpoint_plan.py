"""A checkpoint's content: which ledgers it takes, and the work of the checkpoint thread on their files.

The work of a plan: seal closed ledgers (index and footer), sync every touched ledger file and the folder, replace the
checkpoint file.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.storage.embedded.checkpoint_file import Checkpoint, write_checkpoint
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.embedded.ledger_format import encode_index
from magnetar.storage.errors import StorageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.ledger_index import LedgerIndex
    from magnetar.storage.embedded.ledger_state import LedgerState
    from magnetar.storage.interfaces import Clock

_MANY_FILES: Final = 64
_WORKERS_IN_HASTE: Final = 8
"""Syncs that wait at the same time share a commit of the file system: a file takes a tenth of the time."""

__all__ = ["CheckpointPlan", "CheckpointWriter", "Touched", "TouchedLedgers"]


class Touched(NamedTuple):
    """A ledger as the checkpoint records it: its entries and length at the time of the plan."""

    ledger: LedgerState
    entries: int
    length_bytes: int
    seal: LedgerIndex | None
    """The index to write with a footer, for a closed ledger; None for an open ledger."""
    written: bool
    """Entries were written into the file since the last plan, so the file has all of the ledger's bytes."""


class CheckpointPlan(NamedTuple):
    """The work of the checkpoint thread for one checkpoint."""

    sequence: int
    touched: list[Touched]
    checkpoint: Checkpoint
    in_haste: bool = False
    """A stop waits for the checkpoint: its files are synced several at a time."""


class TouchedLedgers:
    """The ledgers that the next checkpoint takes, and how far unsealed ledgers are synced by then. Loop only.

    ``metadata_sequence`` returns the sequence of the last durable change of the metadata.
    """

    def __init__(self, last: Checkpoint, metadata_sequence: Callable[[], int]) -> None:
        self.ledgers: dict[int, LedgerState] = {}
        """The touched ledgers by id: written to, closed, or with a new index, since the last plan."""
        self.written: set[int] = set()
        """The touched ledgers whose file got entries, by id."""
        self.free_generation = last.free_generation
        """Journal segments up to this generation hold no frame that is needed."""
        self._number = last.number
        self._synced = dict(last.synced)
        self._metadata_sequence = metadata_sequence

    def forget(self, ledger_id: int) -> None:
        """Drop a deleted ledger from this and all later plans."""
        self.ledgers.pop(ledger_id, None)
        self.written.discard(ledger_id)
        self._synced.pop(ledger_id, None)

    def plan(self, sequence: int) -> CheckpointPlan:
        """Plan a checkpoint of all touched ledgers and of the frames up to ``sequence``; later changes belong to the
        next plan.
        """
        touched, self.ledgers = self.ledgers, {}
        written, self.written = self.written, set()
        taken = [
            Touched(led, led.last_confirmed + 1, led.length_bytes, led.index if led.closed else None, number in written)
            for number, led in touched.items()
        ]
        for item in taken:
            if item.ledger.closed:
                self._synced.pop(item.ledger.ledger_id, None)
            else:
                self._synced[item.ledger.ledger_id] = (item.entries, item.length_bytes)
        self._number += 1
        checkpoint = Checkpoint(
            self._number,
            sequence + 1,
            self.free_generation,
            dict(self._synced),
            metadata_sequence=self._metadata_sequence(),
        )
        return CheckpointPlan(sequence, taken, checkpoint)

    def take_back(self, plan: CheckpointPlan) -> None:
        """Give the ledgers of a failed or dropped plan to the next plan. Deleted ledgers stay out."""
        for item in plan.touched:
            if not item.ledger.deleted:
                self.ledgers.setdefault(item.ledger.ledger_id, item.ledger)
                if item.written:
                    self.written.add(item.ledger.ledger_id)


class CheckpointWriter:
    """Writes the files of a checkpoint."""

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        store_id: bytes,
        ledger_files: LedgerFiles,
        clock: Clock,
        threads: Threads,
    ) -> None:
        self._files, self._layout, self._store_id = files, layout, store_id
        self._ledger_files, self._clock, self._threads = ledger_files, clock, threads

    def work(self, plans: list[CheckpointPlan]) -> None:
        """Write the checkpoint of each plan, in the checkpoint thread.

        Raises OSError (for lack of space or of a descriptor the caller tries again later), and StorageFailedError when
        a sync failed, or another program has removed, replaced or cut a ledger file.
        """
        for plan in plans:
            workers = _WORKERS_IN_HASTE if plan.in_haste and len(plan.touched) >= _MANY_FILES else 1
            self._threads.together(self._seal_and_sync, plan.touched, workers)
            try:
                self._ledger_files.sync_names()
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    raise
                raise StorageFailedError(f"fsync of the ledger folder: {error}") from error
            write_checkpoint(self._files, self._layout, self._store_id, plan.checkpoint, self._clock.now_ms())

    def _seal_and_sync(self, item: Touched) -> None:
        ledger_id = item.ledger.ledger_id
        if item.ledger.deleted or not item.entries:
            return
        if item.written:
            self._require_whole(item)
        if item.seal is not None:
            sealed = encode_index(ledger_id, item.entries, item.length_bytes, item.seal)
            # The ledger may have been deleted at this moment; the write must not create its file again.
            with contextlib.suppress(FileNotFoundError):
                offset = FILE_HEADER_BYTES + item.length_bytes
                self._ledger_files.write(ledger_id, [sealed], offset, create=False)
        try:
            self._ledger_files.sync(ledger_id)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise
            raise StorageFailedError(f"fsync of ledger {ledger_id}: {error}") from error

    def _require_whole(self, item: Touched) -> None:
        """Raise StorageFailedError when another program has removed, replaced or cut the ledger's file: without this
        checkpoint the journal keeps the entries, and the next start writes them again.
        """
        ledger_id = item.ledger.ledger_id
        whole = self._ledger_files.holds(ledger_id, FILE_HEADER_BYTES + item.length_bytes)
        if not whole and not item.ledger.deleted:
            detail = f"another program has removed, replaced or cut {self._layout.ledger(ledger_id)}"
            raise StorageFailedError(f"{detail}; the next start writes again what the journal has")
