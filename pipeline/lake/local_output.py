"""A new local file, written in order by a thread, past the system's cache (O_DIRECT) where the file system allows that.

A page that enters the cache costs the allocation of memory, a copy, and a later write by the system; the files of a
table are not read again soon. So the bytes are collected in two aligned blocks: the thread writes a block while the
caller fills the other. Without O_DIRECT the thread writes through the cache and syncs now and then, so that the sync at
the end has little left to write.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from magnetar.storage.disk_sync import sync_data

if TYPE_CHECKING:
    from collections.abc import Callable

ALIGNMENT: Final = 4096
_HUGE_PAGE_BYTES: Final = 2 << 20
BLOCK_BYTES: Final = _HUGE_PAGE_BYTES // 2
SYNC_BYTES: Final = 32 << 20
"""Without O_DIRECT: bytes between two syncs."""
_REFUSALS: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""Error numbers of a file system without O_DIRECT."""


class LocalOutput:
    """The file object behind a `pyarrow.PythonFile`. Not synced when closed. For one caller.

    Raises: OSError of the thread, in the next call; every later call raises it again.
    """

    def __init__(self, path: str, *, direct: bool = True) -> None:
        self.closed = False
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._disk = _Disk(self._file, _open_direct(path) if direct else None)
        self._block = bytearray()
        self._offset = 0
        self._writing: _BlockWriter | None = None

    def write(self, data: Any) -> int:
        """Take all of `data`; returns its number of bytes. The caller may change `data` afterwards."""
        with memoryview(data).cast("B") as taken:
            self._take(taken)
            return len(taken)

    def _take(self, data: memoryview) -> None:
        if self._writing is None:
            if len(self._block) + len(data) < BLOCK_BYTES:
                self._block += data
                return
            self._writing = _BlockWriter(self._disk.write)
            self._writing.take(self._block)
            self._offset, self._block = len(self._block), bytearray()
        self._writing.take(data)
        self._offset += len(data)

    def tell(self) -> int:
        return self._offset + len(self._block)

    def flush(self) -> None:
        """Without effect: the thread writes whole blocks."""

    def close(self) -> None:
        """Write the rest. Idempotent; after an error the file is closed too."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._writing is None:
                self._disk.write(memoryview(self._block), 0)
            else:
                self._writing.end()
        finally:
            self._disk.close()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _BlockWriter:
    """Two blocks in one huge page: the caller fills one of them, a thread writes the other."""

    def __init__(self, write: Callable[[memoryview, int], None]) -> None:
        self._write = write
        self._memory, start = _aligned_memory()
        whole = memoryview(self._memory)[start:]
        self._blocks = (whole[:BLOCK_BYTES], whole[BLOCK_BYTES : 2 * BLOCK_BYTES])
        self._turn, self._filled, self._offset = 0, 0, 0
        self._full = threading.Semaphore(0)
        self._free = threading.Semaphore(1)
        self._ending = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self, data: memoryview | bytearray) -> None:
        """Copy `data` into the blocks; wait while both blocks are full. Raises: OSError of an earlier write."""
        at = 0
        while at < len(data):
            step = min(len(data) - at, BLOCK_BYTES - self._filled)
            self._blocks[self._turn][self._filled : self._filled + step] = data[at : at + step]
            at += step
            self._filled += step
            if self._filled == BLOCK_BYTES:
                self._hand_over()

    def end(self) -> None:
        """Write the rest and end the thread. Raises: OSError."""
        self._free.acquire()
        self._ending = True
        self._full.release()
        self._thread.join()
        self._raise()
        self._write(self._blocks[self._turn][: self._filled], self._offset)

    def _hand_over(self) -> None:
        self._free.acquire()  # the thread has written the other block
        if self._error is not None:
            self._free.release()
            self._raise()
        self._turn, self._filled = 1 - self._turn, 0
        self._offset += BLOCK_BYTES
        self._full.release()

    def _run(self) -> None:
        turn, offset = 0, 0
        while True:
            self._full.acquire()
            if self._ending:
                return
            try:
                self._write(self._blocks[turn], offset)
            except OSError as error:
                self._error = error
            turn, offset = 1 - turn, offset + BLOCK_BYTES
            self._free.release()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


class _Disk:
    """The two descriptors of the file: one through the cache, and one past the cache (None without O_DIRECT)."""

    def __init__(self, file: int, direct: int | None) -> None:
        self._file, self._direct = file, direct
        self._unsynced = 0

    def write(self, data: memoryview, offset: int) -> None:
        """Write all of `data`. Raises: OSError."""
        done = self._write_direct(data, offset) if len(data) == BLOCK_BYTES else 0
        while done < len(data):
            step = os.pwrite(self._file, data[done:], offset + done)
            done += step
            self._unsynced += step
        if self._unsynced >= SYNC_BYTES:
            sync_data(self._file)
            self._unsynced = 0

    def _write_direct(self, data: memoryview, offset: int) -> int:
        """How many bytes were written: fewer than all where the file system takes no more of them this way."""
        done = 0
        while self._direct is not None and done < len(data):
            try:
                step = os.pwrite(self._direct, data[done:], offset + done)
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                self._close_direct()
                break
            done += step - step % ALIGNMENT
            if step % ALIGNMENT or not step:
                break
        return done

    def close(self) -> None:
        self._close_direct()
        os.close(self._file)

    def _close_direct(self) -> None:
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None


def _open_direct(path: str) -> int | None:
    """A second descriptor of the file, past the cache; None where the system has none."""
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None


def _aligned_memory() -> tuple[mmap.mmap, int]:
    """Memory, and the offset in it at which a huge page begins."""
    memory = mmap.mmap(-1, 2 * _HUGE_PAGE_BYTES)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    first = ctypes.c_char.from_buffer(memory)
    start = -ctypes.addressof(first) % _HUGE_PAGE_BYTES
    del first
    return memory, start
