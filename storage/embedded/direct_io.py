"""Writing past the system's cache (O_DIRECT).

A page that enters the cache is allocated, zeroed and copied into, and later written by the system at a time of its own.
For files that are written once and rarely read again this is most of the cost of a write, and the late writes stand in
the way of the journal's syncs. Past the cache a megabyte costs the device's time and one copy.

The device takes whole blocks from aligned memory, so the bytes before the first and behind the last block boundary
still go through the cache: two pages of each write. Blocks that were written past the cache are never written through
the cache at the same time, so both views of the file agree.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BLOCK_BYTES", "DirectWriter", "open_direct"]

BLOCK_BYTES = 4096
_BUFFER_BYTES = 1 << 20
_REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP})
"""What a file system without O_DIRECT, or a system without /proc or with rules about it, answers."""


def open_direct(fd: int) -> int | None:
    """A second descriptor of the same file, past the cache; None where that is not to be had."""
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _REFUSALS:
            return None
        raise


class DirectWriter:
    """Copies into one aligned buffer and writes from there. Usable from any thread, one write at a time."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._lock = threading.Lock()

    def write(self, fd: int, data: Sequence[memoryview], offset: int) -> int:
        """Write bytes whose offset and number are multiples of BLOCK_BYTES; returns how many were written.

        Fewer than all when the file system takes no more of them this way: the caller writes the rest in the ordinary
        way. Raises: OSError.
        """
        written = filled = 0
        with self._lock:
            if self._memory is None:
                self._memory = mmap.mmap(-1, _BUFFER_BYTES)
            with memoryview(self._memory) as buffer:
                for part in data:
                    start = 0
                    while start < len(part):
                        size = min(len(part) - start, _BUFFER_BYTES - filled)
                        buffer[filled : filled + size] = part[start : start + size]
                        filled, start = filled + size, start + size
                        if filled == _BUFFER_BYTES:
                            step = _write(fd, buffer, offset + written)
                            written += step
                            if step < filled:
                                return written
                            filled = 0
                if filled:
                    written += _write(fd, buffer[:filled], offset + written)
        return written


def _write(fd: int, block: memoryview, offset: int) -> int:
    """Bytes written, a multiple of BLOCK_BYTES; fewer than all when the file system takes no more. Raises: OSError."""
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
