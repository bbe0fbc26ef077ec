"""The worker of write-behind, and its jobs: confirmed slabs go from memory, or from the journal, into their ledger
files.

The worker does the jobs in order; pending writes to the same ledger become one call. When there is no space, the worker
keeps the remaining jobs and begins the next batch with them. After any other error the store has failed.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.embedded.ledger_state import UnwrittenSlab
from magnetar.storage.embedded.read_back import ReadBack
from magnetar.storage.errors import StorageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import Buffer
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.position import Position

__all__ = ["SPACE_ERRORS", "Barrier", "Job", "Remove", "WriteBack", "WriteBackResult"]

SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that pass by themselves: no space on the disk, no descriptor for a ledger file."""


class Remove(NamedTuple):
    """Remove a deleted ledger's file. The job passes the same lane as the ledger's writes, so no write follows it."""

    ledger_id: int
    done: Callable[[OSError | None], None]


class Barrier(NamedTuple):
    """The loop calls ``done`` when every job submitted before the barrier is finished."""

    done: Callable[[], None]


Job = UnwrittenSlab | Remove | Barrier
"""A slab is the job to write it at its offset in the ledger file."""


class WriteBackResult(NamedTuple):
    """The jobs that the worker completed, of this batch and of the rest of an earlier batch."""

    finished: list[Job]
    full: OSError | None
    """No space: the worker keeps the other jobs and begins the next batch with them."""
    remove_errors: dict[int, OSError]
    """The errors of removals by ledger id."""
    lost: list[Position]
    """Entries of parked slabs that the journal did not return intact. Their bytes are in the ledger file as they are,
    so a read of them fails.
    """


class WriteBack:
    """Runs in the write-behind thread."""

    def __init__(self, files: LedgerFiles, measure: Callable[[], None]) -> None:
        """``measure``: called behind all work, which changes the free space of the file system."""
        self._files, self._measure = files, measure
        self._back = ReadBack()
        self._left: list[Job] = []
        self._failure: StorageFailedError | None = None

    def work(self, pieces: list[list[Job | None]]) -> WriteBackResult:
        """Do the jobs left from earlier batches, then the jobs of these pieces. Raises StorageFailedError.

        None in a piece is no job; it only makes the worker try the jobs again that found no space.
        """
        if self._failure is not None:
            raise self._failure
        jobs = [*self._left, *(job for piece in pieces for job in piece if job is not None)]
        start = 0
        errors: dict[int, OSError] = {}
        lost: list[Position] = []
        while start < len(jobs):
            job = jobs[start]
            end = start + 1
            try:
                if isinstance(job, UnwrittenSlab):
                    end = self._write_group(jobs, start, lost)
                elif isinstance(job, Remove) and (error := self._remove(job.ledger_id)):
                    errors[job.ledger_id] = error
            except OSError as error:
                if error.errno in SPACE_ERRORS:
                    finished = [*jobs[:start], *self._make_room(jobs[start:], errors)]
                    self._measure()
                    return WriteBackResult(finished, error, errors, lost)
                self._failure = StorageFailedError(f"ledger file: {error}")
                raise self._failure from error
            start = end
        self._left = []
        self._measure()
        return WriteBackResult(jobs, None, errors, lost)

    def _make_room(self, jobs: list[Job], errors: dict[int, OSError]) -> list[Job]:
        """On a full disk, do the removals among the jobs, because they free space, and keep the other jobs. Returns the
        removals.
        """
        removals = [job for job in jobs if isinstance(job, Remove)]
        for job in removals:
            if error := self._remove(job.ledger_id):
                errors[job.ledger_id] = error
        self._left = [job for job in jobs if not isinstance(job, Remove)]
        return list(removals)

    def _write_group(self, batch: list[Job], start: int, lost: list[Position]) -> int:
        """Write the slabs from job ``start`` up to the next job of another kind, or as many as the buffer for parked
        slabs holds, one call per ledger; returns the index behind them. Slabs of deleted ledgers are skipped.
        """
        groups: dict[int, list[tuple[int, Buffer]]] = {}
        back = self._back
        if back.used_bytes:
            back.clear()
        elif back.holds_memory:
            back.rest()
        end = start
        while end < len(batch) and isinstance(job := batch[end], UnwrittenSlab):
            slab = job.slab
            if not job.ledger.deleted:
                if slab is not None:
                    data: Buffer = slab.data if slab.size_bytes == len(slab.data) else slab.record_view()
                elif (found := back.read(batch, end)) is not None:
                    data = found
                    lost += job.lost(data)
                else:
                    break  # the next group begins with this slab
                groups.setdefault(job.ledger.ledger_id, []).append((job.offset, data))
            end += 1
        for ledger_id, parts in groups.items():
            self._files.write(ledger_id, [data for _, data in parts], parts[0][0])
        return end

    def _remove(self, ledger_id: int) -> OSError | None:
        """Remove the ledger's file. Returns the error of a failed removal: the file stays, and the next start tries
        again. Raises StorageFailedError when the sync of the folder failed.
        """
        try:
            self._files.remove(ledger_id)
        except OSError as error:
            return error
        try:
            self._files.sync_names()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                return error  # the next start finishes the deletion
            self._failure = StorageFailedError(f"fsync of the ledger folder: {error}")
            raise self._failure from error
        return None
