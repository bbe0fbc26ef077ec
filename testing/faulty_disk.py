"""A disk that is full, slow to sync or failing: the real file system with switches in front of it."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.storage.embedded.files import Buffer, File, FileSystem, Identity


class DiskSwitches:
    """The faults of the disk; read by the store's threads, written by the loop."""

    def __init__(self) -> None:
        self.full = False
        self.sync_fails = False
        self.sync_seconds = 0.0

    def reset(self) -> None:
        self.full, self.sync_fails, self.sync_seconds = False, False, 0.0

    def before_write(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device (fault kit)")

    def before_sync(self) -> None:
        if self.sync_seconds:
            time.sleep(self.sync_seconds)
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error (fault kit)")


class FaultyFile:
    """A `File` that applies the faults to another `File`."""

    def __init__(self, file: File, switches: DiskSwitches) -> None:
        self._file = file
        self._switches = switches

    def read(self, size: int, offset: int) -> bytes:
        return self._file.read(size, offset)

    def write(self, buffers: Sequence[Buffer], offset: int, *, durable: bool = False) -> None:
        self._switches.before_write()
        if durable:
            self._switches.before_sync()
        self._file.write(buffers, offset, durable=durable)

    def write_past_cache(self, buffers: Sequence[Buffer], offset: int) -> bool:
        self._switches.before_write()
        return self._file.write_past_cache(buffers, offset)

    def read_past_cache(self, target: memoryview, offset: int) -> int:
        return self._file.read_past_cache(target, offset)

    def sync(self) -> None:
        self._switches.before_sync()
        self._file.sync()

    def start_writeback(self, offset: int, size: int) -> None:
        self._file.start_writeback(offset, size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._switches.before_write()
        self._file.allocate(size)

    def size(self) -> int:
        return self._file.size()

    def identity(self) -> Identity:
        return self._file.identity()

    def close(self) -> None:
        self._file.close()


class FaultyFiles:
    """A `FileSystem` that applies the faults to another `FileSystem`."""

    def __init__(self, files: FileSystem, switches: DiskSwitches) -> None:
        self._files = files
        self._switches = switches

    def open(self, path: str, *, create: bool = False) -> File:
        return FaultyFile(self._files.open(path, create=create), self._switches)

    def open_read_only(self, path: str) -> File:
        return FaultyFile(self._files.open_read_only(path), self._switches)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def identity(self, path: str) -> Identity | None:
        return self._files.identity(path)

    def list_dir(self, path: str) -> list[str]:
        return self._files.list_dir(path)

    def make_dir(self, path: str) -> None:
        self._files.make_dir(path)

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)

    def remove(self, path: str) -> None:
        self._files.remove(path)

    def sync_dir(self, path: str) -> None:
        self._switches.before_sync()
        self._files.sync_dir(path)

    def free_bytes(self, path: str) -> int:
        return 0 if self._switches.full else self._files.free_bytes(path)

    def used_part(self, path: str) -> float:
        return 1.0 if self._switches.full else self._files.used_part(path)

    def lock(self, path: str, *, claim: bool = True) -> Callable[[], None]:
        return self._files.lock(path, claim=claim)
