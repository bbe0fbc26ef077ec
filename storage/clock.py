"""The real clock (tests bring their own)."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """``Clock`` of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_s(self) -> float:
        return time.monotonic()
