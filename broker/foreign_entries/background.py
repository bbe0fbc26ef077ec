"""Letting the broker go first: what a worker process tells the scheduler about itself.

Three things, as none is enough by itself:

- a niceness, so that it gets a small share of a busy processor, but never none (`SCHED_IDLE` may starve it until its
  conversions take longer than they may);
- `SCHED_BATCH`: a waiting conversion interrupts no other process;
- a long time slice (Linux 6.12 and later). There a process keeps the processor until its slice is over, or until one
  with a shorter slice wakes up. With equal slices a broker woken up waits for the next tick, up to 4 ms, whatever the
  niceness is.

The niceness counts among processes of one session (sched_autogroup_enabled): a worker has a process group of its own,
but the session of its broker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from typing import Final

NICENESS: Final = 10
SLICE_NS: Final = 50_000_000
"""The default is about 3 ms and less; 100 ms are the most."""
_SET_ATTRIBUTES: Final = {"x86_64": 314, "aarch64": 274}
"""Number of the system call sched_setattr(2)."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period."""


def go_behind() -> None:
    """Take these three on; what the system does not know or allow is left out."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    number = _SET_ATTRIBUTES.get(platform.machine())
    if number is not None:
        wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_BATCH, 0, os.nice(0), 0, SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_int(0), wanted, ctypes.c_uint(0))
