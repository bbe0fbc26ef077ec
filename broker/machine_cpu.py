"""The processor time of the machine, or of the control group that bounds this process, as Apache Pulsar reports it.

The load of a broker that shares its machine with other programs is the load of the machine; in a container, the load of
the container. Without control groups the figures come from the first line of /proc/stat, and without that file (macOS)
from this process alone:

    cpu  user nice system idle iowait irq softirq steal guest guest_nice
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.broker.control_groups import GROUPS, VERSION_2, group_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cpu", "find_cpu"]

_IDLE: Final = (4, 5)
"""Indexes of the words idle and iowait in the line."""
_MICROSECONDS: Final = 1e6
_NANOSECONDS: Final = 1e9
_UNLIMITED: Final = "max"


class Cpu(Protocol):
    """The figures, read at each call. A call raises OSError or ValueError when the files are no longer readable."""

    def used_s(self) -> float:
        """Return the processor time used until now."""
        ...

    def cores(self) -> float:
        """Return the processor time available in a second."""
        ...


def find_cpu(root: Path = Path("/")) -> Cpu:
    """Return the control group of this process, of version 1 or 2, if its time is readable; else the machine."""
    for group in _groups(root):
        try:
            group.used_s()
        except (OSError, ValueError, StopIteration):
            continue
        return group
    machine = root / "proc/stat"
    return _Machine(machine) if machine.exists() else _Process()


class _Machine:
    """The processors of the machine."""

    def __init__(self, stat: Path) -> None:
        self._stat = stat

    def used_s(self) -> float:
        with self._stat.open(encoding="ascii") as lines:
            words = lines.readline().split()
        ticks = sum(map(int, words[1:])) - sum(int(words[each]) for each in _IDLE)
        return ticks / os.sysconf("SC_CLK_TCK")

    def cores(self) -> float:
        return float(os.cpu_count() or 1)


class _Process:
    """This process alone, on a system that has no /proc/stat."""

    def used_s(self) -> float:
        return time.process_time()

    def cores(self) -> float:
        return float(os.cpu_count() or 1)


class _Group:
    """A control group of version 2: cpu.stat and cpu.max."""

    def __init__(self, directory: Path) -> None:
        self._stat, self._limit = directory / "cpu.stat", directory / "cpu.max"

    def used_s(self) -> float:
        lines = self._stat.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / _MICROSECONDS

    def cores(self) -> float:
        try:
            quota, period = self._limit.read_text(encoding="ascii").split()
        except (OSError, ValueError):  # the root group has no such file
            return _usable_cores()
        return _usable_cores() if quota == _UNLIMITED else int(quota) / int(period)


class _OldGroup:
    """A control group of version 1: of the controllers cpuacct and cpu."""

    def __init__(self, time: Path, limit: Path) -> None:
        self._usage = time / "cpuacct.usage"
        self._quota, self._period = limit / "cpu.cfs_quota_us", limit / "cpu.cfs_period_us"

    def used_s(self) -> float:
        return int(self._usage.read_text(encoding="ascii")) / _NANOSECONDS

    def cores(self) -> float:
        try:
            quota, period = (int(each.read_text(encoding="ascii")) for each in (self._quota, self._period))
        except (OSError, ValueError):
            return _usable_cores()
        return quota / period if quota > 0 else _usable_cores()


def _groups(root: Path) -> Iterator[Cpu]:
    paths, mounted = group_paths(root), root / GROUPS
    if "cpuacct" in paths:
        for below in dict.fromkeys((paths["cpuacct"], "")):
            yield _OldGroup(mounted / "cpuacct" / below, mounted / "cpu" / paths.get("cpu", below))
    if VERSION_2 in paths:
        for below in dict.fromkeys((paths[VERSION_2], "")):
            yield _Group(mounted / below)


def _usable_cores() -> float:
    return float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
