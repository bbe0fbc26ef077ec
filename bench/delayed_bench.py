# ruff: noqa: SLF001, ASYNC110 - it looks inside the index it measures, and waits for it
"""The delayed index alone: memory, cost of adding, sealing, restarting and firing, on the embedded store in a temporary directory.

    python bench/delayed_bench.py [--messages 10000000] [--due 500000] [--subscriptions 1]

Published are entries of one log, 1000 a run, 50,000 a ledger; their delays are random within a day, all beyond the run of
the benchmark. Firing: the clock jumps until `--due` of them are due. Memory is that of the process (resident set) less what
it was before the index was opened, after a garbage collection: with what the allocator keeps of freed memory, and without.
"""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import os
import random
import shutil
import tempfile
import time
from array import array
from types import SimpleNamespace

from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.delayed.bucket_settings import BucketSettings
from magnetar.delayed.delay_ports import DelayEnvironment
from magnetar.delayed.delivery_time import DelayPolicy
from magnetar.delayed.index_thread import IndexThread
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.embedded import open_embedded
from magnetar.storage.engine_settings import EngineSettings
from magnetar.storage.position import EARLIEST, Position

RUN, LEDGER, DAY_MS = 1000, 50_000, 86_400_000
START_MS = 1_700_000_000_000


def rss_bytes(*, trimmed=True):
    """Resident memory; ``trimmed``: without what the allocator keeps of memory that was freed."""
    gc.collect()
    if trimmed:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Run:
    """What `published` looks at."""

    all_flags = any_flags = int(EntryFlag.HAS_DELIVER_AT)

    def __init__(self, times):
        self._view = memoryview(times)

    def deliver_at_view(self):
        return self._view


class Log:
    """Positions only; every ledger is full but the last."""

    last_confirmed = EARLIEST
    first_position = Position(0, 0)

    def entries_between(self, after, up_to):
        return (up_to.ledger_id - after.ledger_id) * LEDGER + up_to.entry_id - after.entry_id


class Cursor:
    """A subscription that has read all and acknowledged nothing."""

    mark_delete = EARLIEST

    def __init__(self, log):
        self._log = log

    @property
    def read_position(self):
        return self._log.last_confirmed.next()

    def deleted_in(self, _ledger_id):
        return None


class Bench:
    def __init__(self, options, storage):
        self.options, self.storage = options, storage
        self.now = START_MS
        self.log = Log()
        self.tasks = set()
        self.thread = IndexThread()
        self.views = []

    def spawn(self, work, name):
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def open(self):
        loop = asyncio.get_running_loop()
        environment = DelayEnvironment(
            ledgers=self.storage.ledgers,
            metadata=self.storage.metadata,
            now_ms=lambda: self.now,
            call_later=loop.call_later,
            spawn=self.spawn,
            off_loop=self.thread,
        )
        policy = DelayPolicy(tick_ms=1000, strict=True)
        self.index = BucketDelayIndex("bench", self.log, policy, BucketSettings(), environment)
        await self.index.open()
        self.views = []
        for k in range(self.options.subscriptions):
            view = self.index.view(f"sub-{k}", Cursor(self.log), lambda: None)
            view.pending(0)
            self.views.append(view)

    async def publish(self):
        """Seconds spent in `published`, the longest call, and the whole time."""
        chance = random.Random(7)
        spent = longest = 0.0
        started = time.perf_counter()
        for first in range(0, self.options.messages, RUN):
            base = self.now + DAY_MS // 24
            times = array("q", [base + int(chance.random() * DAY_MS) for _ in range(RUN)])
            ledger_id, entry_id = divmod(first, LEDGER)
            self.log.last_confirmed = Position(ledger_id, entry_id + RUN - 1)
            run = Run(times)
            begun = time.perf_counter()
            self.index.published(run, [(ledger_id, entry_id, 0, RUN)])
            took = time.perf_counter() - begun
            spent, longest = spent + took, max(longest, took)
            await asyncio.sleep(0)
        while self.index._worker is not None or self.index._firing.mutable.growing >= 50_000:
            await asyncio.sleep(0.01)
        return spent, longest, time.perf_counter() - started

    async def fire(self, due):
        """Jump to the time when so many more are due; how long it takes until the views have given them all."""
        first = self.now + DAY_MS // 24
        self.now = first - 30_000
        self.index._fire_soon()
        await asyncio.sleep(0.5)  # what is due within 30 seconds is in memory, as it would be by then
        before = self.index.stats().fired
        self.now = first + DAY_MS * due // self.options.messages
        started = time.perf_counter()
        self.index._fire_soon()
        taken = 0
        lateness = []
        last = time.perf_counter()
        while time.perf_counter() - last < 1.0:
            await asyncio.sleep(0)
            for view in self.views:
                got = len(view.take_due(10_000))
                if got and view is self.views[0]:
                    last = time.perf_counter()
                    taken += got
                    lateness.append((taken, last - started))
        fired = self.index.stats().fired - before
        return SimpleNamespace(fired=fired, taken=taken, seconds=last - started, lateness=lateness)


async def main(options, directory):
    storage = await open_embedded(directory, EngineSettings(cache_bytes=1 << 20))
    bench = Bench(options, storage)
    before = rss_bytes()
    await bench.open()
    spent, longest, whole = await bench.publish()
    stats = bench.index.stats()
    create, merge = stats.operations["create"], stats.operations["merge"]
    n = options.messages
    kept = (rss_bytes(trimmed=False) - before) / 1e6
    print(
        f"messages {n:,}, subscriptions {options.subscriptions}, buckets {stats.bucket_total - 1}, pending {stats.pending:,}"
    )
    print(
        f"memory          {kept:8.1f} MB, {(rss_bytes() - before) / 1e6:.1f} MB without what the allocator keeps, {stats.memory_bytes / 1e6:.1f} MB by its own count"
    )
    print(f"add             {spent / n * 1e9:8.0f} ns a message, longest call {longest * 1e3:.2f} ms (of {RUN})")
    print(
        f"whole run       {n / whole:8,.0f} messages/s with seals and merges ({create.all} creates, {merge.all} merges)"
    )
    print(f"disk            {stats.snapshot_size_bytes / max(n, 1):8.2f} bytes a message")
    started = time.perf_counter()
    await bench.index.close()
    print(f"close           {time.perf_counter() - started:8.2f} s")
    started = time.perf_counter()
    await bench.open()
    opened = time.perf_counter() - started
    await bench.index._recovered.wait()
    print(
        f"restart         {opened * 1e3:8.1f} ms until served, {time.perf_counter() - started:.2f} s until all buckets are in service"
    )
    fired = await bench.fire(options.due)
    at = [next((t for k, t in fired.lateness if k >= fired.taken * q), 0) * 1e3 for q in (0.5, 0.99, 0.999)]
    print(
        f"firing          {fired.fired / max(fired.seconds, 1e-9):8,.0f} messages/s ({fired.fired:,} in {fired.seconds:.2f} s)"
    )
    print(f"lateness        p50 {at[0]:.0f} ms, p99 {at[1]:.0f} ms, p999 {at[2]:.0f} ms")
    print(f"memory at end   {(rss_bytes() - before) / 1e6:8.1f} MB")
    await bench.index.close()
    await storage.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--due", type=int, default=500_000)
    parser.add_argument("--subscriptions", type=int, default=1)
    directory = tempfile.mkdtemp(prefix="delayed-bench-")
    try:
        asyncio.run(main(parser.parse_args(), directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
