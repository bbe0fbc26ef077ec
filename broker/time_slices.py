"""The time slice that a thread asks the scheduler of the system for.

A thread that wakes up while another thread computes on its processor waits until the time slice of that thread is over,
unless its own slice is shorter (Linux 6.12 and later). The loop and the journal's threads work for some tens of
microseconds between two waits, and a client waits for each of them. So the broker asks for short slices, and processes
that compute on its behalf ask for long slices. The share of the processor does not depend on the slice.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from typing import Final

__all__ = ["SHORT_NS", "set_slice", "take_short_slices"]

SHORT_NS: Final = 100_000
"""The shortest slice that the kernel grants. The kernel's default is 3 ms or less, its longest slice 100 ms."""
_SET_ATTRIBUTES: Final = {"x86_64": 314, "aarch64": 274}
"""Number of the system call sched_setattr(2)."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period."""


def take_short_slices() -> None:
    """Ask for short slices for this thread and the threads that it starts later. A process that has another policy than
    the usual keeps its policy and slice.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                set_slice(SHORT_NS, os.SCHED_OTHER)


def set_slice(nanoseconds: int, policy: int) -> None:
    """Set the policy (SCHED_OTHER or SCHED_BATCH) and the slice of this thread; the niceness stays. Without effect
    where the system has no such call, forbids the call, or grants no slices. Linux only.
    """
    number = _SET_ATTRIBUTES.get(platform.machine())
    if number is not None:
        wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, os.nice(0), 0, nanoseconds, 0, 0)
        ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_int(0), wanted, ctypes.c_uint(0))
