"""The load of this broker for its report and /metrics: CPU of the machine, memory of the process."""

from __future__ import annotations

import contextlib
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.broker.machine_cpu import find_cpu
from magnetar.broker.memory_limit import usable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.machine_cpu import Cpu

__all__ = ["ProcessLoad", "process_cpu_s", "resident_bytes"]

_SHORTEST_S: Final = 60.0
"""As Apache Pulsar's loadBalancerHostUsageCheckIntervalMinutes: the peak of a start overloads no broker."""
_STATM_RESIDENT: Final = 1
_STATM: Final = Path("/proc/self/statm")


def process_cpu_s() -> float:
    """CPU time of this process since it began, user and system, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int:
    """Resident memory of this process; where the system has no /proc (macOS), the most that it has had."""
    try:
        pages = _STATM.read_text(encoding="ascii").split()[_STATM_RESIDENT]
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes there, and not KiB as on Linux
    return int(pages) * resource.getpagesize()


class ProcessLoad:
    """CPU and memory in percent. The CPU figure covers at least a minute, and is 0 in the first minute. As in Apache
    Pulsar it counts all programs of the machine, or of the control group.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic, cpu: Cpu | None = None) -> None:
        self._now_s, self._cpu = now_s, cpu or find_cpu()
        self._at_s, self._used_s = now_s(), self._cpu.used_s()
        self._percent = 0.0
        self._usable = usable_bytes()

    def cores(self) -> float:
        """The processors of the machine, or the limit of the control group."""
        return self._cpu.cores()

    def cpu_percent(self) -> float:
        """Return the load in percent of the processors; the previous figure if the processor time is unreadable."""
        elapsed_s = self._now_s() - self._at_s
        if elapsed_s >= _SHORTEST_S:
            with contextlib.suppress(OSError, ValueError):
                used_s = self._cpu.used_s()
                self._percent = 100 * max(0.0, used_s - self._used_s) / (elapsed_s * self.cores())
                self._at_s, self._used_s = self._at_s + elapsed_s, used_s
        return round(self._percent, 2)

    def memory_percent(self) -> float:
        """Resident memory in percent of the limit of this process."""
        return round(100 * resident_bytes() / self._usable, 2)
