"""A thread writes snapshots while the metadata thread appends to the log, and then removes older files.

Two snapshots and the logs since the older snapshot stay, so that damage of the newer snapshot costs nothing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.embedded.metadata.load import metadata_names
from magnetar.storage.embedded.metadata.node_tree import as_changes
from magnetar.storage.embedded.metadata.snapshot_format import encode_snapshot
from magnetar.storage.errors import StorageFailedError

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.metadata.node_tree import Node
    from magnetar.storage.interfaces import Clock

__all__ = ["SnapshotJob", "SnapshotWriter", "write_snapshot"]

_PIECE_BYTES = 1 << 20


class SnapshotJob(NamedTuple):
    """A snapshot to write: the state before the first frame of log ``number``."""

    store_id: bytes
    number: int
    next_sequence: int
    nodes: dict[str, Node]
    sequences: dict[str, int]


def write_snapshot(files: FileSystem, layout: Layout, job: SnapshotJob, now_ms: int) -> int:
    """Write the snapshot, durable with its name on return; returns its size in bytes.

    Raises OSError (no space: the function removes the unfinished file), and StorageFailedError when a sync failed.
    """
    path = layout.snapshot(job.number)
    try:
        size = _write(files, path, job, now_ms)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(path + ".new")
        raise
    files.rename(path + ".new", path)
    try:
        files.sync_dir(layout.metadata)
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise  # nothing was synced: the logs hold all changes, and the store writes a later snapshot
        raise StorageFailedError(f"fsync of {layout.metadata}: {error}") from error
    return size


def _write(files: FileSystem, path: str, job: SnapshotJob, now_ms: int) -> int:
    """Write and sync the file under its temporary name; returns its size in bytes."""
    changes = as_changes(job.nodes, job.sequences)
    pieces = encode_snapshot(job.store_id, job.number, job.next_sequence, changes, now_ms)
    file = files.open(path + ".new", create=True)
    try:
        file.truncate(0)
        at, gathered, size = 0, list[bytes](), 0
        for piece in pieces:
            gathered.append(piece)
            size += len(piece)
            if size >= _PIECE_BYTES:
                file.write(gathered, at)
                at, gathered, size = at + size, [], 0
        file.write(gathered, at)
        try:
            file.sync()
        except OSError as error:
            raise StorageFailedError(f"fsync of {path}: {error}") from error
    finally:
        file.close()
    return at + size


class SnapshotWriter:
    """Lane worker. ``base``: the number of the snapshot that the start used, 0 without a snapshot."""

    def __init__(self, files: FileSystem, layout: Layout, clock: Clock, base: int) -> None:
        self._files, self._layout, self._clock, self._newest = files, layout, clock, base

    def work(self, jobs: list[SnapshotJob]) -> int:
        """Write the snapshot of the last job and return its size in bytes; skip earlier jobs."""
        job = jobs[-1]
        size = write_snapshot(self._files, self._layout, job, self._clock.now_ms())
        self._remove_before(self._newest)
        self._newest = job.number
        return size

    def _remove_before(self, number: int) -> None:
        """Remove the logs and snapshots before ``number``, the snapshot before the newest; 0: every file stays."""
        names = metadata_names(self._files, self._layout)
        for old in names.logs:
            if old < number:
                self._files.remove(self._layout.metadata_log(old))
        for old in names.snapshots:
            if old < number:
                self._files.remove(self._layout.snapshot(old))
