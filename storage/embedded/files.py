"""The engine's only access to the disk: ``RealFiles`` here, the simulated disk in ``tests/twins/sim_files.py``.

Guarantees of an implementation:

* ``write`` returns after all bytes are written; with ``durable=True`` also after they are on stable storage, together
  with the file size they imply (fdatasync of that range).
* ``sync`` makes all earlier writes to the file, and its size, durable.
* A created, renamed or removed name of a file is durable only after ``sync_dir`` of its folder; names of folders are
  durable when ``make_dir`` returns.
* Errors are OSError with the system's errno.
"""

# ruff: noqa: PTH103, PTH104, PTH108, PTH112, PTH116, PTH120, PTH208 - the door to the disk speaks plain paths, like its simulated twin
from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import threading
from typing import TYPE_CHECKING, Protocol

from magnetar.storage.disk_sync import sync_all, sync_data
from magnetar.storage.embedded.direct_io import BLOCK_BYTES, Buffer, DirectWriter, copy, open_direct, resident
from magnetar.storage.errors import StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["NO_DESCRIPTOR", "Buffer", "File", "FileSystem", "Identity", "RealFile", "RealFiles"]

NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process or system without a free descriptor: file and folder are unchanged, and the caller may try again
every operation, also a sync.
"""

Identity = tuple[int, int]
"""Tells an existing file from all other files, whatever its names."""

_IOV_MAX = 1024
_FILE_MODE = 0o600  # messages and permissions: readable by the broker's user alone
_DIRECTORY_MODE = 0o700
_SYNC_FILE_RANGE_WRITE = 2
_ZEROS = bytes(1 << 16)
_CACHED_PART = 0.5
"""A range with so many of its pages in the system's cache is read from there."""
_opening = threading.Lock()
"""Held while a file gets its descriptor for direct reads and writes: threads that read and write may be the first."""


class File(Protocol):
    """An open file, addressed by offset. Usable from any thread."""

    def read(self, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def write(self, buffers: Sequence[Buffer], offset: int, *, durable: bool = False) -> None: ...

    def write_past_cache(self, buffers: Sequence[Buffer], offset: int) -> bool:
        """Like ``write``, for bytes that are not read again soon: most of them leave no page in the system's cache.

        Returns False when the system cannot write past the cache; the bytes are then written as by ``write``.
        """
        ...

    def read_past_cache(self, target: memoryview, offset: int) -> int:
        """Fill ``target`` with bytes that are not read again soon; returns how many bytes there were, fewer only at the
        end of the file.

        ``target`` is memory of ``aligned_memory``; its size and ``offset`` are multiples of BLOCK_BYTES.
        """
        ...

    def sync(self) -> None: ...

    def start_writeback(self, offset: int, size: int) -> None:
        """Ask the system to begin writing this range to the device; a hint without guarantee."""
        ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make the file at least this long, with space on the device. Unwritten bytes read as zeros."""
        ...

    def size(self) -> int: ...

    def identity(self) -> Identity: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Names are absolute paths."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``."""
        ...

    def open_read_only(self, path: str) -> File: ...

    def exists(self, path: str) -> bool:
        """Whether the name is there. Raises OSError when the caller may not look."""
        ...

    def identity(self, path: str) -> Identity | None:
        """Return the identity of the file that ``open`` finds under the name; None without a file."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Names in the folder, sorted."""
        ...

    def make_dir(self, path: str) -> None:
        """Create the folder, and the folders above it, unless they are there; their names are durable on return."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces ``new``."""
        ...

    def remove(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """Space left for this user on the file system of ``path``."""
        ...

    def used_part(self, path: str) -> float:
        """How much of the file system of ``path`` is used, relative to the part available to this user: 0 to 1."""
        ...

    def lock(self, path: str, *, claim: bool = True) -> Callable[[], None]:
        """Lock the folder of the lock file, and the file; returns the function that releases both. Raises
        StoreLockedError, which names the owner's pid.

        The lock of the folder holds even when the file is removed meanwhile. ``claim``: write the pid of this process
        into the file. Without ``claim`` the content of the file stays (but a missing file is created).
        """
        ...


class RealFile:
    """File over a descriptor. ``path`` is for the errors of reads."""

    __slots__ = ("_direct", "_direct_fd", "_fd", "_path")

    def __init__(self, fd: int, path: str, direct: DirectWriter | None = None) -> None:
        self._fd, self._path, self._direct = fd, path, direct
        self._direct_fd: int | None = None
        """Opened with the first write past the cache."""

    def read(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(self._fd, size - got, offset + got)):
                parts.append(data)
                got += len(data)
        except OSError as error:
            error.filename = self._path
            raise
        return b"".join(parts)

    def write(self, buffers: Sequence[Buffer], offset: int, *, durable: bool = False) -> None:
        # One call for write and sync: the writer thread gives up and takes back the interpreter lock once, not twice.
        flags = _RWF_DSYNC if durable else 0
        todo = buffers if len(buffers) <= _IOV_MAX else [b"".join(buffers)]
        total = sum(map(len, todo))
        written = os.pwritev(self._fd, todo, offset, flags)
        while written < total:
            rest = memoryview(b"".join(todo))[written:]
            step = os.pwritev(self._fd, [rest], offset + written, flags)
            if step == 0:
                raise OSError(errno.EIO, "write made no progress")
            written += step
        if durable and not _RWF_DSYNC:
            sync_data(self._fd)

    def fileno(self) -> int:
        return self._fd

    def direct_fileno(self) -> int:
        """A descriptor of the same file for writes past the cache, open as long as the file; -1 where the system
        refuses such writes.
        """
        if self._direct is not None and self._direct_fd is None:
            with _opening:
                if self._direct_fd is None and self._direct is not None:
                    self._direct_fd = open_direct(self._fd)
                    if self._direct_fd is None:
                        self._direct = None
        return -1 if self._direct_fd is None else self._direct_fd

    def _spare_direct_fileno(self) -> int:
        """Like ``direct_fileno``; -1 also while the process has no free descriptor."""
        try:
            return self.direct_fileno()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            return -1

    def write_past_cache(self, buffers: Sequence[Buffer], offset: int) -> bool:
        total = sum(map(len, buffers))
        head = -offset % BLOCK_BYTES
        middle = (total - head) // BLOCK_BYTES * BLOCK_BYTES
        direct_fd = self._spare_direct_fileno() if middle > 0 else -1
        if self._direct is None or direct_fd < 0:
            self.write(buffers, offset)
            return False
        if head:
            self.write([_part(buffers, 0, head)], offset)
        written = self._direct.write(direct_fd, buffers, head, middle, offset + head)
        if written < middle:
            self._direct = None
        if head + written < total:
            self.write([_part(buffers, head + written, total)], offset + head + written)
        return written > 0

    def read_past_cache(self, target: memoryview, offset: int) -> int:
        direct_fd = self._spare_direct_fileno()
        if direct_fd >= 0 and resident(self._fd, offset, len(target)) >= _CACHED_PART:
            direct_fd = -1  # the device would write dirty pages first, and read bytes that are in memory
        got = 0
        while got < len(target):
            # Only whole blocks can be read past the cache; a read that ends within a block goes on through the cache.
            fd = direct_fd if direct_fd >= 0 and got % BLOCK_BYTES == 0 else self._fd
            try:
                step = os.preadv(fd, [target[got:]], offset + got)
            except OSError as error:
                if fd != direct_fd or error.errno != errno.EINVAL:
                    raise
                direct_fd = -1
                continue
            if not step:
                break
            got += step
        return got

    def sync(self) -> None:
        sync_data(self._fd)

    def start_writeback(self, offset: int, size: int) -> None:
        if _SYNC_FILE_RANGE is not None:
            _SYNC_FILE_RANGE(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
            return
        for offset in range(self.size(), size, len(_ZEROS)):
            self.write([_ZEROS[: size - offset]], offset)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def identity(self) -> Identity:
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        direct_fd, self._direct_fd, self._direct = self._direct_fd, None, None
        for each in (fd, direct_fd):
            if each is not None and each >= 0:
                os.close(each)


def _part(buffers: Sequence[Buffer], start: int, end: int) -> bytearray:
    """Bytes start .. end - 1 of all buffers together."""
    part = bytearray(end - start)
    copy(part, buffers, start)
    return part


def _has_only(folder: str, names: list[str]) -> bool:
    try:
        return os.listdir(folder) == names
    except PermissionError:
        return False


class RealFiles:
    """The operating system's files. ``direct``: allow writing past the cache."""

    def __init__(self, *, direct: bool = True) -> None:
        self._direct = DirectWriter() if direct else None

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, _FILE_MODE), path, self._direct)

    def open_read_only(self, path: str) -> File:
        return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)

    def exists(self, path: str) -> bool:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def identity(self, path: str) -> Identity | None:
        try:
            found = os.stat(path)  # follows a link, as ``open`` does
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dir(self, path: str) -> None:
        folder = path.rstrip("/") or "/"
        missing, names, below = [], list[str](), list[str]()
        above = folder
        while not os.path.isdir(above):
            missing.append(above)
            above = os.path.dirname(above) or os.curdir
        os.makedirs(path, mode=_DIRECTORY_MODE, exist_ok=True)
        # An attempt that ended before the sync of a name left the folder without other content.
        while folder not in {"/", os.curdir} and (folder in missing or _has_only(folder, below)):
            names.append(folder)
            below = [folder.rpartition("/")[2]]
            folder = os.path.dirname(folder) or os.curdir
        for name in reversed(names):
            with contextlib.suppress(PermissionError):  # a folder above that this user may not read
                self.sync_dir(os.path.dirname(name) or os.curdir)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_all(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def used_part(self, path: str) -> float:
        found = os.statvfs(path)
        used = found.f_blocks - found.f_bfree
        return used / (used + found.f_bavail) if used + found.f_bavail > 0 else 0.0

    def lock(self, path: str, *, claim: bool = True) -> Callable[[], None]:
        folder_fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _flock(folder_fd, path, needed=False)
            fd = _open_lock(path, claim=claim)
            try:
                if fd >= 0:
                    _flock(fd, path, needed=claim)
                if claim:
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                if fd >= 0:
                    os.close(fd)
                raise
        except BaseException:
            os.close(folder_fd)
            raise

        def release() -> None:
            # The name stays: removing it would let two processes hold locks on two files of one name.
            for held in (fd, folder_fd) if fd >= 0 else (folder_fd,):
                with contextlib.suppress(OSError):
                    os.close(held)

        return release


def _open_lock(path: str, *, claim: bool) -> int:
    """Open the lock file, and create a missing file. Without ``claim``, on a read-only folder: open the existing file
    for reading, or return -1 when that fails.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    except OSError as error:
        if claim or error.errno not in {errno.EROFS, errno.EACCES, errno.EPERM}:
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _flock(fd: int, lock_path: str, *, needed: bool) -> None:
    """Lock the descriptor. Raises StoreLockedError when another process holds the lock; with ``needed`` also OSError
    when the system cannot lock the file at all (some network file systems lock no folders).
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            raise StoreLockedError(os.path.dirname(lock_path), _owner_of(lock_path)) from error
        if needed:
            raise


def _owner_of(lock_path: str) -> int | None:
    """The pid in the lock file; None when the file is missing or contains no pid."""
    try:
        with open(lock_path, "rb") as file:  # noqa: PTH123 - plain paths everywhere in this module
            words = file.read(32).split()
    except OSError:
        return None
    return int(words[0]) if words and words[0].isdigit() else None


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return ``sync_file_range``, which only Linux has; elsewhere the checkpoint's sync does all the work."""
    try:
        function = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function.restype = ctypes.c_int
    found: Callable[[int, int, int, int], int] = function
    return found


_RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_SYNC_FILE_RANGE = _find_sync_file_range()
