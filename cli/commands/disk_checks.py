"""Checks of a disk: the rate of its writes, the time of a sync, and whether that time is credible.

A device with a volatile cache needs tens of microseconds to milliseconds to make a write durable. A sync that returns
sooner did not reach a device: memory, or a hypervisor or controller that ignores flushes, answered it.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.storage.disk_sync import sync_all, sync_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
NETWORK_FILE_SYSTEMS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
TOO_FAST_US: Final = 15.0
"""Median time of a sync; below it, no device has written the data."""
SLOW_MS: Final = 20.0
SYNCS: Final = 100
_BLOCK: Final = 4096
MEASURED_BYTES: Final = 64 * 1024 * 1024
"""Size of the temporary file of a measurement."""


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """Microseconds of a 4 KiB write with sync, and bytes per second of a long write with sync."""

    sync_median_us: float
    sync_p99_us: float
    bytes_per_s: float


def file_system_of(path: Path, mounts: str) -> tuple[str, str]:
    """Return mount point and type of the file system that contains the path; `mounts` is the text of /proc/mounts."""
    best = ("/", "unknown")
    text = str(path)
    for line in mounts.splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        point = parts[1].replace("\\040", " ")
        inside = text == point or text.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, parts[2])
    return best


def measure(directory: Path, clock: Callable[[], float] = time.perf_counter) -> DiskFigures:
    """Measure writes and syncs of a temporary file in the directory. Raises: OSError."""
    path = directory / f".magnetar-doctor-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        return _measured(descriptor, clock)
    finally:
        os.close(descriptor)
        path.unlink()


def _measured(descriptor: int, clock: Callable[[], float]) -> DiskFigures:
    os.pwrite(descriptor, bytes(SYNCS * _BLOCK), 0)
    sync_all(descriptor)
    took = []
    block = os.urandom(_BLOCK)
    for index in range(SYNCS):
        begun = clock()
        os.pwrite(descriptor, block, index * _BLOCK)
        sync_data(descriptor)
        took.append((clock() - begun) * 1e6)
    took.sort()
    buffer = mmap.mmap(-1, 1024 * 1024)
    buffer.write(os.urandom(4096) * 256)
    begun = clock()
    for at in range(0, MEASURED_BYTES, len(buffer)):
        os.pwrite(descriptor, buffer, at)
    sync_data(descriptor)
    rate = MEASURED_BYTES / max(clock() - begun, 1e-9)
    buffer.close()
    return DiskFigures(took[len(took) // 2], took[int(len(took) * 0.99)], rate)


def verdict(kind: str, figures: DiskFigures) -> tuple[str, str]:
    """Return `ok`, `warning` or `error`, and the reason, for a file system of this kind with these figures."""
    shown = f"{figures.sync_median_us:.0f} us median, {figures.sync_p99_us:.0f} us p99"
    if kind in MEMORY_FILE_SYSTEMS:
        return "error", f"{kind} is memory: everything is lost with the machine. Put dataDir on a disk"
    if kind in NETWORK_FILE_SYSTEMS:
        return "warning", f"{kind}: a network file system; durability is that of its server ({shown})"
    if figures.sync_median_us < TOO_FAST_US:
        return "warning", (
            f"{shown}: no disk is that fast. Something answers syncs unwritten: a virtual disk with cache=unsafe, "
            "eatmydata, nobarrier. A power failure may lose acknowledged messages"
        )
    if figures.sync_median_us > SLOW_MS * 1000:
        return "warning", f"{shown}: receipts take as long. A disk with a power-protected cache answers in 100 us"
    return "ok", shown
