"""A disk for tests that behaves as badly as a real one may: ``FileSystem`` in memory, deterministic.

* Every operation has a number; ``crash_at`` stops the world at that operation (SimulatedCrash, from then on for every
  operation).
* ``after_crash`` is the disk that the next process finds: all synced bytes, and of the others none, all, or a seeded
  choice per sector of 512 bytes, with sectors torn in the middle. Names not followed by ``sync_dir`` may be missing.
* ``full_at`` makes the write with that number run out of space half-way, ``capacity_bytes`` does so by size;
  ``no_descriptors`` lets no file be opened;
  ``fail_sync_at`` makes that sync fail and forget the pages, as Linux does; ``flip_bit`` damages stored bytes,
  ``bad_writes`` loses writes or makes them at a wrong place.
"""

from __future__ import annotations

import errno
import itertools
import posixpath
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from magnetar.storage.errors import StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.storage.embedded.files import Buffer, File, Identity

__all__ = ["SECTOR_BYTES", "SimDisk", "SimulatedCrash"]

SECTOR_BYTES = 512

_numbers = itertools.count(1)

_folder_of = lru_cache(maxsize=4096)(posixpath.dirname)


class SimulatedCrash(BaseException):
    """The process has ended. No subclass of Exception, so that no code of the process handles it."""


class BadWrites(Protocol):
    """A device that loses writes, or makes them elsewhere."""

    def on_write(self, disk: SimDisk, path: str, data: bytes, offset: int) -> Callable[[], None]:
        """Called before each write; the returned function is called when the write is done."""
        ...


def _nothing() -> None:
    """The usual write."""


class _Inode:
    """A file's bytes: as the running process sees them, as they are on stable storage, and the writes in between."""

    __slots__ = ("data", "durable", "number", "unsynced")

    def __init__(self, data: bytes = b"") -> None:
        self.number = next(_numbers)
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.unsynced: list[tuple[int, bytes | None]] = []
        """(offset, bytes), or (size, None) for a truncate."""


class _Name:
    """One change of a folder that is not synced yet."""

    __slots__ = ("affects", "folder", "gone", "inode", "path")

    def __init__(self, path: str, inode: _Inode | None, gone: str | None = None) -> None:
        self.path, self.inode, self.gone = path, inode, gone
        """``inode`` None: the name is removed. ``gone``: the old name of a rename, removed in the same step."""
        self.folder = _folder_of(path)
        self.affects = {self.folder, _folder_of(gone or path)}


class _SimFile:
    """An open file."""

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk, self._inode = disk, inode

    def read(self, size: int, offset: int) -> bytes:
        self._disk.check_alive()
        return bytes(self._inode.data[offset : offset + size])

    def write(self, buffers: Sequence[Buffer], offset: int, *, durable: bool = False) -> None:
        data = b"".join(buffers)
        fits = self._disk.room_for(self._inode, offset, len(data))
        go_bad = self._disk.before_write(self._inode, data[:fits], offset)
        self._put(data[:fits], offset)
        go_bad()
        self._disk.step("write")
        if fits < len(data):
            self._disk.failures += 1
            raise OSError(errno.ENOSPC, "No space left on device (simulated)")
        if durable:
            self.sync()

    def sync(self) -> None:
        if self._disk.sync_fails():
            self._inode.unsynced.clear()
            raise OSError(errno.EIO, "Input/output error (simulated)")
        self._disk.step("sync")
        self._inode.durable = bytes(self._inode.data)
        self._inode.unsynced.clear()

    def write_past_cache(self, buffers: Sequence[Buffer], offset: int) -> bool:
        """Several writes, as of a real file: any of them may be the last before a crash, or the only one kept."""
        whole = b"".join(buffers)
        cut = min(-offset % 4096, len(whole))
        for start, end in ((0, cut), (cut, len(whole))):
            if start < end:
                self.write([whole[start:end]], offset + start)
        return True

    def read_past_cache(self, target: memoryview, offset: int) -> int:
        data = self.read(len(target), offset)
        target[: len(data)] = data
        return len(data)

    def start_writeback(self, offset: int, size: int) -> None:
        """Do nothing: the call promises nothing."""

    def truncate(self, size: int) -> None:
        data = self._inode.data
        del data[size:]
        data.extend(bytes(size - len(data)))
        self._inode.unsynced.append((size, None))
        self._disk.step("truncate")

    def allocate(self, size: int) -> None:
        data = self._inode.data
        fits = self._disk.room_for(self._inode, len(data), max(0, size - len(data)))
        if fits < size - len(data):
            self._disk.step("allocate")
            self._disk.failures += 1
            raise OSError(errno.ENOSPC, "No space left on device (simulated)")
        if len(data) < size:
            data.extend(bytes(size - len(data)))
            self._inode.unsynced.append((size, None))
        self._disk.step("allocate")

    def size(self) -> int:
        self._disk.check_alive()
        return len(self._inode.data)

    def identity(self) -> Identity:
        return 0, self._inode.number

    def close(self) -> None:
        """Says nothing about durability."""

    def _put(self, data: bytes, offset: int) -> None:
        if data:
            held = self._inode.data
            held.extend(bytes(max(0, offset - len(held))))
            held[offset : offset + len(data)] = data
            self._inode.unsynced.append((offset, data))


class SimDisk:
    """One simulated disk and the process on it."""

    def __init__(self) -> None:
        self.operations = 0
        """How many have begun."""
        self.log: list[str] = []
        """The kinds of the operations, in their order."""
        self.crash_at = -1
        self.full_at = -1
        self.fail_sync_at = -1
        self.capacity_bytes: int | None = None
        self.no_descriptors = False
        self.failures = 0
        """How many operations have failed."""
        self.crashed = False
        self.on_crash: Callable[[], None] = lambda: None
        self.before_step: Callable[[str], None] = lambda _kind: None
        """Called before an operation takes effect, or is counted (``interleaving.py``)."""
        self.bad_writes: BadWrites | None = None
        """The faults of the device's writes."""
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._changes: list[_Name] = []
        self._folders: set[str] = {"/"}
        self._locked: set[str] = set()

    def step(self, kind: str) -> None:
        """Count an operation; operation ``crash_at`` has had its unsynced effect when it crashes."""
        self.before_step(kind)
        self.check_alive()
        number = self.operations
        self.operations += 1
        self.log.append(kind)
        if number == self.crash_at:
            self.crashed = True
            self.on_crash()
            raise SimulatedCrash(f"at operation {number}: {kind}")

    def check_alive(self) -> None:
        if self.crashed:
            raise SimulatedCrash("the process is gone")

    def room_for(self, inode: _Inode, offset: int, size: int) -> int:
        """How many bytes of a write fit."""
        self.check_alive()
        if self.operations == self.full_at:
            return size // 2
        if self.capacity_bytes is None:
            return size
        growth = max(0, offset + size - len(inode.data))
        return size - max(0, min(growth, self._used_bytes() + growth - self.capacity_bytes))

    def before_write(self, inode: _Inode, data: bytes, offset: int) -> Callable[[], None]:
        """The action that follows the write."""
        if self.bad_writes is None or not data:
            return _nothing
        return self.bad_writes.on_write(self, self.path_of(inode), data, offset)

    def sync_fails(self) -> bool:
        """Whether the next sync is the sync to fail."""
        self.check_alive()
        if self.operations != self.fail_sync_at:
            return False
        self.failures += 1
        self.step("failed sync")
        return True

    # --- FileSystem

    def open(self, path: str, *, create: bool = False) -> File:
        self.check_alive()
        if self.no_descriptors:
            raise OSError(errno.EMFILE, "Too many open files (simulated)", path)
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file (simulated)", path)
            if _folder_of(path) not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "No such folder (simulated)", path)
            inode = self._names[path] = _Inode()
            self._changes.append(_Name(path, inode))
            self.step("create")
        return _SimFile(self, inode)

    def open_read_only(self, path: str) -> File:
        return self.open(path)

    def exists(self, path: str) -> bool:
        self.check_alive()
        return path in self._names or path in self._folders

    def identity(self, path: str) -> Identity | None:
        self.check_alive()
        inode = self._names.get(path)
        return None if inode is None else (0, inode.number)

    def list_dir(self, path: str) -> list[str]:
        self.check_alive()
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such folder (simulated)", path)
        begin = len(path) + 1
        return sorted(name[begin:] for name in self._names if _folder_of(name) == path)

    def make_dir(self, path: str) -> None:
        """Folders are durable at once: the engine makes them only before anything is acknowledged."""
        self.check_alive()
        while path not in self._folders:
            self._folders.add(path)
            path = posixpath.dirname(path)

    def rename(self, old: str, new: str) -> None:
        self.check_alive()
        self._names[new] = self._names.pop(old)
        self._changes.append(_Name(new, self._names[new], gone=old))
        self.step("rename")

    def remove(self, path: str) -> None:
        self.check_alive()
        del self._names[path]
        self._changes.append(_Name(path, None))
        self.step("remove")

    def sync_dir(self, path: str) -> None:
        if self.no_descriptors:  # a folder is opened to be synced
            raise OSError(errno.EMFILE, "Too many open files (simulated)", path)
        if self.sync_fails():
            raise OSError(errno.EIO, "Input/output error (simulated)")
        self.step("sync_dir")
        for change in self._changes:
            if path in change.affects:
                _apply(self._durable_names, change)
        self._changes = [change for change in self._changes if path not in change.affects]

    def free_bytes(self, path: str) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        return max(0, self.capacity_bytes - self._used_bytes())

    def used_part(self, path: str) -> float:
        return 0.0 if self.capacity_bytes is None else 1 - self.free_bytes(path) / self.capacity_bytes

    def _used_bytes(self) -> int:
        return sum(len(found.data) for found in self._names.values())

    def lock(self, path: str, *, claim: bool = True) -> Callable[[], None]:
        self.check_alive()
        if path in self._locked:
            raise StoreLockedError(posixpath.dirname(path), 1)
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    # --- controls of tests

    def after_crash(self, mode: str, seed: int = 0) -> SimDisk:
        """The disk as the next process finds it. ``mode``: "nothing", "everything" or "some" of the unsynced bytes."""
        chance = random.Random(seed)
        names = dict(self._durable_names)
        by_folder: dict[str, list[_Name]] = {}
        for change in self._changes:
            by_folder.setdefault(change.folder, []).append(change)
        for changes in by_folder.values():
            count = {"nothing": 0, "everything": len(changes)}.get(mode, chance.randint(0, len(changes)))
            for change in changes[:count]:
                _apply(names, change)
        disk = SimDisk()
        disk._folders = set(self._folders)
        for path, inode in names.items():
            fresh = _Inode(_survivor(inode, mode, chance))
            disk._names[path] = disk._durable_names[path] = fresh
        return disk

    def after_kill(self) -> SimDisk:
        """The disk as the next process finds it on a machine that still runs: unsynced writes are kept, still unsynced.
        All names are durable.
        """
        disk = self.copy()
        for path, inode in self._names.items():
            disk._names[path].durable = inode.durable
            disk._names[path].unsynced = list(inode.unsynced)
        return disk

    def copy(self) -> SimDisk:
        """An independent disk with the same bytes, all synced."""
        return self.after_crash("everything")

    def paths(self) -> list[str]:
        """All files."""
        return sorted(self._names)

    def content(self, path: str) -> bytes:
        """A file's bytes."""
        return bytes(self._names[path].data)

    def put(self, path: str, data: bytes) -> None:
        """Make or replace a file with these bytes, synced."""
        self._names[path] = self._durable_names[path] = _Inode(data)

    def path_of(self, inode: _Inode) -> str:
        """A name of an open file; "" when it was removed."""
        return next((path for path, found in self._names.items() if found is inode), "")

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage one stored bit."""
        inode = self._names[path]
        inode.data[bit // 8] ^= 1 << (bit % 8)
        inode.durable = bytes(inode.data)

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """The device stores these bytes at an offset of the file, on stable storage too."""
        inode = self._names[path]
        inode.data[offset : offset + len(data)] = data
        inode.unsynced.append((offset, data))
        durable = bytearray(inode.durable)
        _overlay(durable, offset, data[: max(0, len(durable) - offset)])
        inode.durable = bytes(durable)


def _apply(names: dict[str, _Inode], change: _Name) -> None:
    if change.gone is not None:
        names.pop(change.gone, None)
    if change.inode is None:
        names.pop(change.path, None)
    else:
        names[change.path] = change.inode


def _survivor(inode: _Inode, mode: str, chance: random.Random) -> bytes:
    """A file's bytes after the crash."""
    if mode == "everything":
        return bytes(inode.data)
    data = bytearray(inode.durable)
    if mode == "nothing":
        return bytes(data)
    for offset, piece in inode.unsynced:
        if piece is None:
            if chance.random() < 0.5:
                del data[offset:]
                data.extend(bytes(offset - len(data)))
            continue
        at = offset
        while at < offset + len(piece):
            end = min((at // SECTOR_BYTES + 1) * SECTOR_BYTES, offset + len(piece))
            fate = chance.random()
            if fate < 0.1:
                end_kept = at + chance.randint(0, end - at)
                _overlay(data, at, piece[at - offset : end_kept - offset])
            elif fate < 0.55:
                _overlay(data, at, piece[at - offset : end - offset])
            at = end
    return bytes(data)


def _overlay(data: bytearray, offset: int, piece: bytes) -> None:
    if piece:
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + len(piece)] = piece
