"""The memory of the C library's allocator: one arena for all threads, and free memory back to the system.

The loop, the threads that read ledger files and the threads that write them allocate entries; the loop frees them. With
an arena per thread, no other thread could use the free memory of a thread's arena. All code except the compiled helpers
allocates under the interpreter lock, so threads do not wait for the common arena.

The allocator keeps freed memory for the next allocation, which saves a busy broker new pages. An idle broker gives this
memory back to the system: a check takes microseconds (5 ms beside 200,000 free blocks), giving back about 0.2 ms per
megabyte, once. A broker with a little work does the same where much is free, for example behind a backlog that was
read: no steady load leaves so much.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.process_load import process_cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LOOK_S", "Heap", "free_bytes", "give_back", "use_one_arena"]

log = structlog.get_logger(__name__)
LOOK_S: Final = 2.0
_LOOKS: Final = 15
"""The broker is idle after this many looks without work, and gives memory back at most once in as many looks."""
_IDLE_PART: Final = 0.05
"""The part of a core below which the broker counts as idle."""
_WORTH_BYTES: Final = 16 << 20
_CALM_PART: Final = 0.25
"""The part of a core below which the broker gives back MUCH_BYTES."""
MUCH_BYTES: Final = 48 << 20
_M_ARENA_MAX: Final = -8
_FREE: Final = 8


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = (("figures", ctypes.c_size_t * 10),)


def use_one_arena() -> None:
    """Let all threads allocate from one arena. Call before the first thread starts; without effect where the operator
    has chosen the number of arenas, and with an allocator other than glibc's.
    """
    if "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, 1)


@functools.cache
def _allocator() -> ctypes.CDLL:
    return ctypes.CDLL(None)  # each library makes a type, which the garbage collector alone frees


def free_bytes() -> int:
    """Return the bytes that the allocator holds and the process does not use; 0 for an allocator without this
    figure.
    """
    if (mallinfo := getattr(_allocator(), "mallinfo2", None)) is None:
        return 0
    mallinfo.restype = _MallocInfo
    return int(mallinfo().figures[_FREE])


def give_back() -> None:
    """Give free memory back to the system."""
    if (trim := getattr(_allocator(), "malloc_trim", None)) is not None:
        trim(0)


class Heap:
    """Checks the heap every LOOK_S seconds, and gives free memory back while the process is idle. Loop only."""

    def __init__(
        self,
        cpu_s: Callable[[], float] = process_cpu_s,
        free: Callable[[], int] = free_bytes,
        give: Callable[[], None] = give_back,
    ) -> None:
        self._cpu_s, self._free, self._give = cpu_s, free, give
        self._used_s = cpu_s()
        self._idle_looks = 0
        self._since_given = _LOOKS
        self._kept_bytes = 0
        """Free memory between blocks in use, which counts as free also when its pages were given back."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._again)

    def stop(self) -> None:
        """Safe to call twice, and without `start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Give free memory back if the process has been idle for some checks, or calm since the last check, and holds
        enough free memory.
        """
        before, self._used_s = self._used_s, self._cpu_s()
        used_s = self._used_s - before
        self._idle_looks = self._idle_looks + 1 if used_s < _IDLE_PART * LOOK_S else 0
        self._since_given += 1
        if used_s >= _CALM_PART * LOOK_S or self._since_given < _LOOKS:
            return
        free = self._free()
        self._kept_bytes = min(self._kept_bytes, free)
        if free - self._kept_bytes >= (_WORTH_BYTES if self._idle_looks >= _LOOKS else MUCH_BYTES):
            self._give()
            self._since_given = 0
            self._kept_bytes = self._free()
            log.debug("heap.given_back", free_bytes=free, kept_bytes=self._kept_bytes)

    def _again(self) -> None:
        self.look()
        self.start()
