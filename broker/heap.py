"""The memory of the C library's allocator: one arena for all threads, and free memory back to the system.

Entries are allocated by the loop, by the threads that read ledger files and by those that write them, and freed by the
loop. With an arena for each thread, free memory in the arena of a thread is of no use to the others. All but the
compiled helpers allocate under the interpreter lock, so a common arena costs no waiting.

The allocator keeps freed memory for the next allocation, which spares a busy broker fresh pages. An idle broker gives
that memory back: a look takes microseconds, giving back some 0.2 ms for each megabyte, once.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.process_load import process_cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LOOK_S", "Heap", "free_bytes", "give_back", "use_one_arena"]

log = structlog.get_logger(__name__)
LOOK_S: Final = 30.0
_IDLE_PART: Final = 0.05
"""The part of a core below which the broker counts as idle."""
_WORTH_BYTES: Final = 16 << 20
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


def free_bytes() -> int:
    """Memory that the allocator holds and the process does not use; 0 where the allocator does not say."""
    if (mallinfo := getattr(ctypes.CDLL(None), "mallinfo2", None)) is None:
        return 0
    mallinfo.restype = _MallocInfo
    return int(mallinfo().figures[_FREE])


def give_back() -> None:
    """Give free memory back to the system."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


class Heap:
    """Looks at the heap from time to time, and gives free memory back while the process is idle. Loop only."""

    def __init__(
        self,
        cpu_s: Callable[[], float] = process_cpu_s,
        free: Callable[[], int] = free_bytes,
        give: Callable[[], None] = give_back,
    ) -> None:
        self._cpu_s, self._free, self._give = cpu_s, free, give
        self._used_s = cpu_s()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._again)

    def stop(self) -> None:
        """Safe to call twice, and without `start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Give free memory back if the process was idle since the look before, and has much of it."""
        before, self._used_s = self._used_s, self._cpu_s()
        if self._used_s - before < _IDLE_PART * LOOK_S and (free := self._free()) >= _WORTH_BYTES:
            self._give()
            log.debug("heap.given_back", free_bytes=free)

    def _again(self) -> None:
        self.look()
        self.start()
