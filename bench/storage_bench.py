"""The storage engine alone, beside the limit of the disk: python bench/storage_bench.py [DIR]

Appends runs of 64 entries of 1 KiB with a window in flight, one run in flight, then reads the backlog cold; raw
pwrite and fdatasync of the same bytes run interleaved with it. Prints one line per figure; ratios are of the same run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from array import array
from typing import TYPE_CHECKING

from magnetar.protocol import speed
from magnetar.storage.embedded.engine import EngineSettings, open_embedded
from magnetar.storage.slab import Slab

if TYPE_CHECKING:
    from magnetar.storage.interfaces import LedgerWriter

RUN_ENTRIES = 64
ENTRY_BYTES = 1024


def stamped(writer: LedgerWriter, first_entry_id: int, count: int = RUN_ENTRIES, size: int = ENTRY_BYTES) -> Slab:
    """A slab of ``count`` entries as the managed ledger makes it."""
    data = bytes(size) * count
    offsets = array("q", range(0, (count + 1) * size, size)).tobytes()
    messages = array("q", [1] * count).tobytes()
    slab, records = speed.stamp(
        data, offsets, messages, 0, count, writer.ledger_id, first_entry_id, writer.record_proof, -1, -2
    )
    return Slab(writer.ledger_id, first_entry_id, slab, records)


def raw_rate(folder: str, seconds: float, batch_bytes: int) -> float:
    """Bytes per second of pwrite + fdatasync over a preallocated file."""
    path = os.path.join(folder, "raw")
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    size = 128 << 20
    for offset in range(0, size, 1 << 20):
        os.pwrite(fd, bytes(1 << 20), offset)
    os.fsync(fd)
    block, at, done, started = os.urandom(batch_bytes), 0, 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        os.pwrite(fd, block, at)
        os.fdatasync(fd)
        at = (at + batch_bytes) % (size - batch_bytes)
        done += batch_bytes
    took = time.perf_counter() - started
    os.close(fd)
    os.unlink(path)
    return done / took


async def append_rate(storage, seconds: float, window: int, entries: int) -> tuple[float, list[float]]:
    """(entries per second, latencies) with ``window`` runs in flight."""
    writer = await storage.ledgers.create()
    finished = asyncio.get_running_loop().create_future()
    state = {"flying": 0, "done": 0, "stop": False}
    latencies: list[float] = []
    started = time.perf_counter()

    def push() -> None:
        while state["flying"] < window and not state["stop"]:
            slab = stamped(writer, writer.last_add_pushed + 1, entries)
            begun = time.perf_counter()
            state["flying"] += 1
            writer.append(slab, lambda error, begun=begun: done(error, begun))

    def done(error, begun: float) -> None:
        if error is not None:
            finished.set_exception(error)
            return
        now = time.perf_counter()
        latencies.append(now - begun)
        state["flying"] -= 1
        state["done"] += entries
        state["stop"] = now - started > seconds
        if state["stop"] and not state["flying"] and not finished.done():
            finished.set_result(None)
        push()

    push()
    await finished
    return state["done"] / (time.perf_counter() - started), latencies


async def read_rate(storage, ledger_id: int, last: int) -> float:
    """Entries per second of reading in order, as a cursor reads."""
    entry, started = 0, time.perf_counter()
    while entry <= last:
        slab = storage.ledgers.read_cached(ledger_id, entry, last, 1 << 20)
        if slab is None:
            slabs = await storage.ledgers.read(ledger_id, entry, last, 1 << 20)
            slab = slabs[-1]
        entry = slab.last_entry_id + 1
    return (last + 1) / (time.perf_counter() - started)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def main() -> None:
    folder = tempfile.mkdtemp(prefix="storage-bench-", dir=sys.argv[1] if len(sys.argv) > 1 else ".")
    try:
        print(f"compiled helper: {speed.COMPILED}")
        storage = await open_embedded(os.path.join(folder, "data"), EngineSettings())
        await append_rate(storage, 1.0, 64, RUN_ENTRIES)
        for _ in range(3):
            raw = raw_rate(folder, 1.0, 1 << 20)
            rate, _ = await append_rate(storage, 2.0, 64, RUN_ENTRIES)
            print(
                f"append 1 KiB x {RUN_ENTRIES}, 64 runs in flight: {rate:,.0f}/s; raw 1 MiB writes hold "
                f"{raw / (ENTRY_BYTES + 32):,.0f}/s; ratio {rate * (ENTRY_BYTES + 32) / raw:.2f}"
            )
            raw_small = raw_rate(folder, 0.5, 4096)
            _, latencies = await append_rate(storage, 1.0, 1, 1)
            half, most = percentile(latencies, 0.5) * 1e6, percentile(latencies, 0.99) * 1e6
            raw_us = 4096 / raw_small * 1e6
            print(f"one in flight: p50 {half:.0f} us, p99 {most:.0f} us; raw 4 KiB write and sync {raw_us:.0f} us")
        await storage.close()
        storage = await open_embedded(os.path.join(folder, "data"), EngineSettings())
        largest = max(
            [await storage.ledgers.open_recover(k) for k in await storage.ledgers.list_ledgers()],
            key=lambda i: i.entries,
        )
        last = min(largest.last_entry_id, 1_000_000)
        for _ in range(3):
            print(f"backlog read of {last + 1:,} entries: {await read_rate(storage, largest.ledger_id, last):,.0f}/s")
        print(storage.stats())
        await storage.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
