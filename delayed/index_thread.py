"""One thread for the long work of all indexes of a broker: sorting, encoding, merging, decoding of bitmaps.

A single thread, because the allocator keeps memory for each thread: six sealing threads held ten times as much memory.
The work also holds the interpreter lock, so two threads at once would only slow down the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["IndexThread"]

T = TypeVar("T")
_TRIM_EVERY_S = 5.0


class IndexThread:
    """An `OffLoop`. The thread starts with the first work and ends with this object."""

    def __init__(
        self, trim: Callable[[], object] | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim, self._monotonic = trim, monotonic
        self._trimmed_s = monotonic()
        self._executor = ThreadPoolExecutor(1, "magnetar-delayed")

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, self._run, work)

    def _run(self, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        """Return freed memory to the system: a seal takes megabytes for some milliseconds."""
        if self._monotonic() - self._trimmed_s >= _TRIM_EVERY_S:
            if self._trim is None:
                self._trim = _malloc_trim()
            self._trim()
            self._trimmed_s = self._monotonic()

    def close(self) -> None:
        """Close the thread; work that has not begun is dropped."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _malloc_trim() -> Callable[[], object]:
    """Return glibc's malloc_trim; elsewhere a function without effect."""
    import ctypes  # noqa: PLC0415 - not before a broker seals a bucket

    with contextlib.suppress(OSError, AttributeError):
        trim = ctypes.CDLL(None).malloc_trim
        return lambda: trim(0)
    return lambda: None
