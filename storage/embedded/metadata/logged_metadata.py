"""MetadataStore of the embedded engine: all nodes in memory, each change in a log that is synced before the answer.

Operations that are pending at the same time share one frame and one sync, and take effect together or not at all. From
time to time the store writes its state as a snapshot, so that a start reads little. Formats: ``log_format.py``,
``snapshot_format.py``; conditions of a start: ``load.py``; reasons against a database:
``docs/adr/0004-metadata-log.md``.
"""

from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from magnetar.storage.embedded.metadata.changes import encode_changes
from magnetar.storage.embedded.metadata.large_values import LargeValues
from magnetar.storage.embedded.metadata.log_writer import LogEnvironment, LogWriter
from magnetar.storage.embedded.metadata.snapshot_writer import SnapshotJob, SnapshotWriter
from magnetar.storage.embedded.writeback import SPACE_ERRORS
from magnetar.storage.errors import (
    GuardChangedError,
    MetadataError,
    StorageClosedError,
    StorageError,
    StorageFailedError,
    StorageFullError,
)
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.metadata_nodes import Watches, check_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.metadata.load import LoadedMetadata
    from magnetar.storage.embedded.metadata.node_tree import NodeTree
    from magnetar.storage.interfaces import Guard, Scheduler, Timer

__all__ = ["LoggedMetadataStore"]

T = TypeVar("T")

_CONFIRM_AFTER_S = 1.0
MOST_LARGE_BYTES = 512 << 20
MOST_GROUP_BYTES = 4 << 20
"""A frame takes no further operation once the values of its operations have this many bytes together."""
_OPERATION_BYTES = 64
"""Bytes that an operation counts beside its value."""
_SMALL_GROWTH_BYTES = 4 << 10
"""A node that exists may become larger by as much while space is left to deletions alone."""
_LEDGERS = "/ledgers/"
"""Ledgers are made also while space is short: consumers continue in them, and the old ledgers can go."""


def _no_growth(_tree: NodeTree) -> int:
    return 0


class _Operation(NamedTuple):
    """One call: the work of the thread and the future for the result."""

    run: Callable[[NodeTree], object]
    future: asyncio.Future[object]
    changes: str | None
    """The path that the operation changes when it succeeds; None: no watched path."""
    reads: bool = False
    """The operation changes nothing, so it succeeds even when the frame of its batch finds no space."""
    growth: Callable[[NodeTree], int] = _no_growth
    """The bytes that the operation adds; the last free space is not for growth. Notes of deletions, which are puts
    without a version, count as none.
    """


class _Confirm(NamedTuple):
    """The order to write a confirm frame behind the last frame of changes."""


class _Batch(NamedTuple):
    """The result of the thread for one batch."""

    results: list[object]
    snapshot: SnapshotJob | None


class LoggedMetadataStore:
    """``MetadataStore`` states the guarantees of each method. ``loaded``: the result of ``open_metadata``."""

    def __init__(
        self,
        world: LogEnvironment,
        loaded: LoadedMetadata,
        threads: Threads,
        scheduler: Scheduler,
        most_large_bytes: int = MOST_LARGE_BYTES,
    ) -> None:
        self._log = LogWriter(world, loaded)
        self._tree = loaded.tree
        self._large = LargeValues(most_large_bytes)
        self._large.count_all(self._tree.nodes)
        self._tree.on_sizes = self._large.changed
        self._root, self._scheduler = world.layout.metadata, scheduler
        self._lane = threads.lane("metadata", self._work, self._done, MOST_GROUP_BYTES)
        snapshots = SnapshotWriter(world.files, world.layout, world.clock, loaded.base)
        self._snapshot_lane = threads.lane("metadata-snapshot", snapshots.work, self._snapshot_done)
        self._snapshot_after_bytes = world.log_bytes * 3 // 4
        """A snapshot is due when the log has grown since the last snapshot by this many bytes, or by the size of the
        last snapshot if that is larger.
        """
        self._snapshot_bytes = loaded.snapshot_bytes
        self._snapshot_under_way = False
        # After damage the store writes a snapshot with its first batch.
        self._snapshot_wanted = bool(loaded.damage)
        self.found_damage = list(loaded.damage)
        """The findings and repairs of the start."""
        self._failure: StorageFailedError | None = None
        self._watches = Watches()
        self._unfinished = 0
        self._confirm_timer: Timer | None = None
        self._seen_sequence = -1
        self._told = False
        self._closed = False
        self.on_failure: Callable[[StorageFailedError], None] = lambda _error: None
        """The store calls this once, when a write or sync of the log or of a snapshot has failed."""
        self.transactions = self.operations = self.snapshots = 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest durable frame; it grows with every group of changes. Any thread may read it."""
        return self._log.last_sequence

    @property
    def store_id(self) -> bytes:
        return self._log.store_id

    def peek(self, path: str) -> tuple[bytes, int] | None:
        """Like ``get``, but at once. Precondition: no operation is under way."""
        if self._unfinished:
            raise AssertionError("operations are under way")
        return self._tree.get(path)

    async def get(self, path: str) -> tuple[bytes, int] | None:
        check_path(path)
        if not self._unfinished and not self._closed:
            return self._tree.get(path)  # the thread has nothing to do, so nothing changes meanwhile
        return await self._submit(lambda tree: tree.get(path), reads=True)

    async def put(
        self, path: str, value: bytes, expected_version: int | None = None, guard: Guard | None = None
    ) -> int:
        check_path(path)
        put = partial(_put, path, bytes(value), expected_version, False)
        grows = expected_version is not None and not path.startswith(_LEDGERS)
        growth = partial(_growth, path, len(value)) if grows else _no_growth
        return await self._submit(_guarded(put, guard), path, size=len(value), growth=growth)

    async def put_ephemeral(self, path: str, value: bytes) -> int:
        check_path(path)
        return await self._submit(partial(_put, path, bytes(value), None, True), path, size=len(value))

    async def delete(self, path: str, expected_version: int | None = None, guard: Guard | None = None) -> None:
        check_path(path)
        await self._submit(_guarded(lambda tree: tree.delete(path, expected_version), guard), path)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return await self._submit(lambda tree: tree.children(path), reads=True)

    def watch(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        return self._watches.add(check_path(prefix), callback)

    async def next_sequence(self, path: str, count: int = 1) -> int:
        check_path(path)
        return await self._submit(lambda tree: tree.next_sequence(path, count))

    async def close(self) -> None:
        """Finish all pending operations, then write a confirm frame if the last frame holds changes. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        self._unfinished += 1
        self._lane.submit(_Confirm())
        await self._lane.close()
        await self._snapshot_lane.close()
        self._log.close()

    async def _submit(
        self,
        run: Callable[[NodeTree], T],
        changes: str | None = None,
        *,
        reads: bool = False,
        size: int = 0,
        growth: Callable[[NodeTree], int] = _no_growth,
    ) -> T:
        if self._closed:
            raise StorageClosedError("the metadata store is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._unfinished += 1
        operation = _Operation(run, future, changes, reads, growth)  # type: ignore[arg-type]
        self._lane.submit(operation, _OPERATION_BYTES + size)
        return await future

    # -- in the thread ---

    def _work(self, batch: list[_Operation | _Confirm]) -> _Batch:
        """Carry out all operations of the batch, with one frame for their changes. A refused operation changes nothing.

        Raises StorageFailedError when the write failed. Without space all operations but reads get the error.
        """
        if self._failure is not None:
            raise self._failure
        job = self._begin_snapshot()
        self._tree.begin()
        shortage = self._shortage(batch)
        results = [shortage.get(index) or self._run(item) for index, item in enumerate(batch)]
        try:
            if self._tree.pending:
                self._log.append(encode_changes(self._tree.pending))
        except Exception as error:
            self._tree.rollback()
            if job is not None:
                self._snapshot_wanted, self._snapshot_under_way = True, False
            if not isinstance(error, OSError):
                raise
            translated = self._translate(error)
            if isinstance(translated, StorageFullError):
                return _Batch([self._without_space(item, translated) for item in batch], None)
            raise translated from error
        self._tree.begin()
        if any(isinstance(item, _Confirm) for item in batch):
            self._vouch()
        self._log.prepare_spare()
        return _Batch(results, job)

    def _shortage(self, batch: list[_Operation | _Confirm]) -> dict[int, StorageFullError]:
        """The errors of operations, by index, that would take space which deletions need to make room."""
        growth = {index: item.growth(self._tree) for index, item in enumerate(batch) if isinstance(item, _Operation)}
        growth = {index: size for index, size in growth.items() if size > 0}
        if growth and not self._log.has_room(sum(growth.values())):
            error = f"{self._root}: {os.strerror(errno.ENOSPC)}: the last free bytes are for deletions"
            return {index: StorageFullError(error) for index in growth}
        refused = {index: self._refused(batch[index], size) for index, size in growth.items()}
        return {index: each for index, each in refused.items() if each is not None}

    def _refused(self, item: _Operation | _Confirm, size: int) -> StorageFullError | None:
        """The error of an operation with a large value for which the memory has no room."""
        if not isinstance(item, _Operation) or item.changes is None or self._large.has_room(item.changes, size):
            return None
        return StorageFullError(
            "the large values of this tenant in the metadata take all the memory that they may take"
        )

    def _vouch(self) -> None:
        try:
            self._log.confirm()
        except OSError as error:
            self._translate(error)  # no space: the last change stays unconfirmed, and durable

    def _run(self, item: _Operation | _Confirm) -> object:
        if isinstance(item, _Confirm):
            return None
        try:
            return item.run(self._tree)
        except MetadataError as refused:
            return refused

    def _without_space(self, item: _Operation | _Confirm, error: StorageFullError) -> object:
        """The outcome of an operation after the rollback of a batch that found no space: the error, or for a read the
        result in the state before the batch, so that consumers continue while the disk is full.
        """
        return self._run(item) if isinstance(item, _Operation) and item.reads else error

    def _begin_snapshot(self) -> SnapshotJob | None:
        """When a snapshot is due, continue in a new log and take the state before that log."""
        due = max(self._snapshot_after_bytes, self._snapshot_bytes)
        if self._snapshot_under_way or not (self._snapshot_wanted or self._log.appended_bytes >= due):
            return None
        try:
            self._log.rotate()
        except OSError as error:
            translated = self._translate(error)
            if isinstance(translated, StorageFullError):
                return None  # the log in use may have room yet
            raise translated from error
        self._log.appended_bytes, self._snapshot_wanted, self._snapshot_under_way = 0, False, True
        nodes, sequences = self._tree.durable()
        return SnapshotJob(self.store_id, self._log.number, self._log.next_sequence, nodes, sequences)

    def _translate(self, error: OSError) -> StorageError:
        if error.errno in SPACE_ERRORS:
            return StorageFullError(f"{self._root}: {error}")
        self._failure = StorageFailedError(f"{self._root}: {error}")
        return self._failure

    # -- on the loop ---

    def _done(self, batch: list[_Operation | _Confirm], result: _Batch | None, error: BaseException | None) -> None:
        self.transactions += 1
        self.operations += len(batch)
        self._unfinished -= len(batch)
        if result is not None and result.snapshot is not None:
            self._snapshot_lane.submit(result.snapshot)
        self._tell_failure()
        for index, item in enumerate(batch):
            if isinstance(item, _Operation):
                self._answer(item, error if result is None else result.results[index])
        self._arm_confirm()

    def _tell_failure(self) -> None:
        if self._failure is not None and not self._told:
            self._told = True
            self.on_failure(self._failure)

    def _answer(self, operation: _Operation, outcome: object) -> None:
        future = operation.future
        if isinstance(outcome, BaseException):
            if not future.done():
                future.set_exception(outcome)
                future.exception()  # the caller may have been cancelled
            return
        if operation.changes is not None:
            self._watches.changed(operation.changes)
        if not future.done():
            future.set_result(outcome)

    def _snapshot_done(self, _jobs: list[SnapshotJob], size: int | None, error: BaseException | None) -> None:
        self._snapshot_under_way = False
        if size is not None:
            self._snapshot_bytes = size
            self.snapshots += 1
        elif not (isinstance(error, OSError) and error.errno in SPACE_ERRORS):
            failure = error if isinstance(error, StorageFailedError) else StorageFailedError(f"{self._root}: {error!r}")
            self._failure = failure
            self._tell_failure()
        # No space: the logs hold all changes; the next attempt follows after as many changes.

    def _arm_confirm(self) -> None:
        if self._confirm_timer is None and not self._closed and not self._log.confirmed:
            self._seen_sequence = self.last_sequence
            self._confirm_timer = self._scheduler.call_later(_CONFIRM_AFTER_S, self._confirm)

    def _confirm(self) -> None:
        """Order a confirm frame when no change came since the timer began; otherwise start the timer again."""
        self._confirm_timer = None
        if self._closed or self._failure is not None:
            return
        if self._unfinished or self.last_sequence != self._seen_sequence:
            self._arm_confirm()
        else:
            self._unfinished += 1
            self._lane.submit(_Confirm())


def _guarded(run: Callable[[NodeTree], T], guard: Guard | None) -> Callable[[NodeTree], T]:
    """The operation, refused unless the guard's node has its version."""
    if guard is None:
        return run

    def guarded(tree: NodeTree) -> T:
        found = tree.get(guard.path)
        if (MUST_NOT_EXIST if found is None else found[1]) != guard.version:
            raise GuardChangedError(guard.path)
        return run(tree)

    return guarded


def _growth(path: str, size: int, tree: NodeTree) -> int:
    """The bytes that a put adds; 0 for a little more in a node that exists."""
    found = tree.get(path)
    if found is None:
        return _OPERATION_BYTES + size
    more = size - len(found[0])
    return more if more > _SMALL_GROWTH_BYTES else 0


def _put(path: str, value: bytes, expected_version: int | None, ephemeral: bool, tree: NodeTree) -> int:
    return tree.put(path, value, expected_version, ephemeral=ephemeral)
