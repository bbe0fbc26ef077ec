"""Writing past the system's cache (O_DIRECT).

For a page that enters the cache, the system allocates and zeroes memory, copies the bytes, and writes the page to the
device later. For files that the engine writes once and rarely reads again, this work is most of the cost of a write,
and the late writes delay the journal's syncs. Past the cache a megabyte costs the device's time and one copy.

The device takes whole blocks from aligned memory, so the bytes before the first and behind the last block boundary
still go through the cache: at most two pages of each write. The engine never writes the same block past the cache and
through the cache at the same time, so both views of the file agree.

The buffer lies in one huge page where the system has huge pages: then a megabyte is one piece of memory to the device
instead of 256 pieces, which halves the time and the processor's work of a write. The memory is private to the process,
because most systems give no huge pages to shared memory, the default of ``mmap``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["BLOCK_BYTES", "Buffer", "DirectWriter", "aligned_memory", "copy", "open_direct", "resident"]

Buffer = bytes | bytearray | memoryview

BLOCK_BYTES = 4096
_BUFFER_BYTES = 2 << 20
"""The size of a huge page, so that a single huge page can hold the whole buffer."""
_HUGE_PAGE_BYTES = 2 << 20
_REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP})
"""Error numbers of a file system without O_DIRECT, or of a system that has no /proc or restricts access to it."""


def open_direct(fd: int) -> int | None:
    """Open a second descriptor of the same file, for reads and writes past the cache; None where the system refuses
    O_DIRECT.

    Raises OSError for any other error.
    """
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _REFUSALS:
            return None
        raise


class DirectWriter:
    """Copies into one aligned buffer and writes from there. Usable from any thread, one write at a time."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._start = 0
        self._lock = threading.Lock()

    def write(self, fd: int, data: Sequence[Buffer], start: int, size: int, offset: int) -> int:
        """Write ``size`` bytes of the joined ``data``, from byte ``start`` on, at ``offset``; returns how many.

        ``size`` and ``offset`` are multiples of BLOCK_BYTES. The result is less than ``size`` when the file system
        takes no more bytes past the cache; the caller writes the rest through the cache. Raises OSError.
        """
        written = 0
        with self._lock:
            if self._memory is None:
                self._memory, self._start = aligned_memory(_BUFFER_BYTES)
            with memoryview(self._memory) as memory, memory[self._start :] as buffer:
                while written < size:
                    with buffer[: min(size - written, _BUFFER_BYTES)] as block:
                        copy(block, data, start + written)
                        step = _write(fd, block, offset + written)
                        wanted = len(block)
                    written += step
                    if step < wanted:
                        break
        return written


def aligned_memory(size: int) -> tuple[mmap.mmap, int]:
    """(memory, offset of the first huge page boundary in the memory)."""
    memory = mmap.mmap(-1, size + _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    first = ctypes.c_char.from_buffer(memory)
    start = -ctypes.addressof(first) % _HUGE_PAGE_BYTES
    del first
    return memory, start


def _pure_copy(target: memoryview | bytearray, pieces: Sequence[Buffer], start: int) -> None:
    at, size = 0, len(target)
    for piece in pieces:
        if start >= len(piece):
            start -= len(piece)
            continue
        part = memoryview(piece)[start : start + size - at]
        target[at : at + len(part)] = part
        at += len(part)
        start = 0
    if at < size:
        raise ValueError("the pieces have fewer bytes than the target takes")


copy: Callable[[memoryview | bytearray, Sequence[Buffer], int], None] = _pure_copy
"""Fill the target with the bytes of the joined pieces, from byte ``start`` on. Raises ValueError for too few bytes."""


def _unknown(_fd: int, _offset: int, _size: int) -> float:
    return 0.0


resident: Callable[[int, int, int], float] = _unknown
"""The part of a range (descriptor, offset, size) that lies in the system's cache, from 0 to 1; 0 if that is not
known.
"""
if not os.environ.get("MAGNETAR_PURE"):
    with contextlib.suppress(ImportError):  # not built everywhere
        from magnetar.storage.embedded.journal._frame_writer import (  # copies without the interpreter lock
            copy,
            resident,
        )


def _write(fd: int, block: memoryview, offset: int) -> int:
    """Write the block; returns the bytes written, a multiple of BLOCK_BYTES, fewer than all when the file system takes
    no more past the cache. Raises OSError.
    """
    done = 0
    while done < len(block):
        try:
            step = os.pwrite(fd, block[done:], offset + done)
        except OSError as error:
            if error.errno == errno.EINVAL:
                break
            raise
        done += step - step % BLOCK_BYTES
        if step < BLOCK_BYTES:
            break
    return done
