"""The worker of write-behind, and its jobs: confirmed slabs go from memory into their ledger files.

The worker does the jobs in order; pending writes to the same ledger become one call. When there is no space, the worker
keeps the remaining jobs and begins the next batch with them. After any other error the store has failed.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.errors import StorageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.ledger_state import LedgerState
    from magnetar.storage.slab import Slab

__all__ = ["SPACE_ERRORS", "Barrier", "Job", "Remove", "WriteBack", "WriteBackResult", "WriteSlab"]

SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that pass by themselves: no space on the disk, no descriptor for a ledger file."""


class WriteSlab(NamedTuple):
    """Write one slab at its offset in the ledger file."""

    ledger: LedgerState
    slab: Slab
    offset: int


class Remove(NamedTuple):
    """Remove a deleted ledger's file. The job passes the same lane as the ledger's writes, so no write follows it."""

    ledger_id: int
    done: Callable[[OSError | None], None]


class Barrier(NamedTuple):
    """The loop calls ``done`` when every job submitted before the barrier is finished."""

    done: Callable[[], None]


Job = WriteSlab | Remove | Barrier


class WriteBackResult(NamedTuple):
    """The jobs that the worker completed, of this batch and of the rest of an earlier batch."""

    finished: list[Job]
    full: OSError | None
    """No space: the worker keeps the other jobs and begins the next batch with them."""
    remove_errors: dict[int, OSError]
    """The errors of removals by ledger id."""


class WriteBack:
    """Runs in the write-behind thread."""

    def __init__(self, files: LedgerFiles) -> None:
        self._files = files
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
        while start < len(jobs):
            job = jobs[start]
            end = start + 1
            try:
                if isinstance(job, WriteSlab):
                    end = self._write_group(jobs, start)
                elif isinstance(job, Remove) and (error := self._remove(job.ledger_id)):
                    errors[job.ledger_id] = error
            except OSError as error:
                if error.errno in SPACE_ERRORS:
                    finished = [*jobs[:start], *self._make_room(jobs[start:], errors)]
                    return WriteBackResult(finished, error, errors)
                self._failure = StorageFailedError(f"ledger file: {error}")
                raise self._failure from error
            start = end
        self._left = []
        return WriteBackResult(jobs, None, errors)

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

    def _write_group(self, batch: list[Job], start: int) -> int:
        """Write the slabs from job ``start`` up to the next job of another kind, one call per ledger; returns the index
        of that job. Slabs of deleted ledgers are skipped.
        """
        groups: dict[int, list[WriteSlab]] = {}
        end = start
        while end < len(batch) and isinstance(job := batch[end], WriteSlab):
            groups.setdefault(job.ledger.ledger_id, []).append(job)
            end += 1
        for ledger_id, jobs in groups.items():
            if not jobs[0].ledger.deleted:
                buffers = [
                    job.slab.data if job.slab.size_bytes == len(job.slab.data) else job.slab.record_view()
                    for job in jobs
                ]
                self._files.write(ledger_id, buffers, jobs[0].offset)
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
