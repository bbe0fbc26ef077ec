# ruff: noqa: SLF001, ASYNC110 - it looks inside the index it measures, and waits for it
"""The delayed index alone, on the embedded store in a temporary directory; or the in-memory tracker, for comparison.

    python bench/delayed_bench.py [--messages 10000000] [--subscriptions 1] [--due 500000] [--tracker bucket|memory]
                                  [--index-count 50000] [--max-buckets -1] [--delays random|fixed]

Published are entries of one log, 1000 a run, 50,000 a ledger, with delays random within a day or all of a day, beyond
the run of the benchmark. The bucket index takes them up at publish, the in-memory tracker when each subscription reads
them. Then `--due` more are published that all fall due within one second, ten seconds later, and that second is waited
for: lateness is from the message's time to the moment a subscription is given it.

Memory is that of the process (resident set) less that before the index was opened, with freed memory that the allocator
keeps; and without. The peak is the largest resident set seen while publishing.
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

from magnetar.delayed.bitmap_shelf import BitmapShelf
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.delayed.delay_ports import DelayEnvironment
from magnetar.delayed.delay_settings import BucketSettings, DelayPolicy
from magnetar.delayed.index_thread import IndexThread
from magnetar.delayed.memory_tracker import MemoryDelayIndex
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.engine_settings import EngineSettings
from magnetar.storage.position import EARLIEST, Position

RUN, LEDGER, DAY_MS = 1000, 50_000, 86_400_000
START_MS = 1_700_000_000_000
POLICY = DelayPolicy(tick_ms=1000, strict=True)
LEAD_MS = 10_000


def rss_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def trimmed_rss_bytes():
    """Resident bytes without freed memory that the allocator keeps."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return rss_bytes()


def quantiles(values, unit=1.0):
    values = sorted(values)
    at = [values[min(int(len(values) * q), len(values) - 1)] * unit if values else 0 for q in (0.5, 0.99, 0.999)]
    return f"p50 {at[0]:.1f} p99 {at[1]:.1f} p999 {at[2]:.1f}"


class Run:
    """The part of an entry run that the index reads in `published`."""

    all_flags = any_flags = int(EntryFlag.HAS_DELIVER_AT)

    def __init__(self, times):
        self._view = memoryview(times)

    def deliver_at_view(self):
        return self._view


class Log:
    """Positions only; every ledger is full but the last."""

    last_confirmed = EARLIEST
    first_position = Position(0, 0)

    def __init__(self, records):
        self.records = records

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
        self.began = time.perf_counter()
        self.log = Log(storage.metadata)
        self.tasks = set()
        self.thread = IndexThread()
        self.shelf = BitmapShelf(64 << 20, tempfile.TemporaryFile)
        self.views = []
        self.published = 0
        self.calls = []
        self.peak = 0

    def now_ms(self):
        return START_MS + int((time.perf_counter() - self.began) * 1000)

    def spawn(self, work, name):
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def open(self):
        loop, options = asyncio.get_running_loop(), self.options
        if options.tracker == "memory":
            self.index = MemoryDelayIndex(POLICY, self.now_ms, loop.call_later)
        else:
            environment = DelayEnvironment(
                ledgers=self.storage.ledgers,
                now_ms=self.now_ms,
                call_later=loop.call_later,
                spawn=self.spawn,
                off_loop=self.thread,
                shelf=self.shelf,
            )
            settings = BucketSettings(min_index_count=options.index_count, max_buckets=options.max_buckets)
            self.index = BucketDelayIndex("bench", self.log, POLICY, settings, environment)
            await self.index.open()
        self.views = [self.index.view(f"sub-{k}", Cursor(self.log), lambda: None) for k in range(options.subscriptions)]
        for view in self.views:
            view.pending(0)

    async def publish(self, count, times_of):
        """Publish entries; returns the whole time in seconds. `calls` gets the time of each run."""
        started = time.perf_counter()
        for _ in range(0, count, RUN):
            times = times_of()
            ledger_id, entry_id = divmod(self.published, LEDGER)
            self.published += RUN
            self.log.last_confirmed = Position(ledger_id, entry_id + RUN - 1)
            run = Run(times)
            begun = time.perf_counter()
            self.index.published(run, [(ledger_id, entry_id, 0, RUN)])
            if self.options.tracker == "memory":
                for view in self.views:
                    view.offer(ledger_id, [(entry_id + k, at) for k, at in enumerate(times)])
            self.calls.append(time.perf_counter() - begun)
            if self.published % 100_000 == 0:
                self.peak = max(self.peak, rss_bytes())
            await asyncio.sleep(0)
        while self.options.tracker == "bucket" and self.is_busy():
            await asyncio.sleep(0.01)
        return time.perf_counter() - started

    def is_busy(self):
        return self.index._worker is not None or self.index._firing.mutable.growing >= self.options.index_count

    async def fire(self, due):
        """Publish `due` messages that fall due within a second. Returns for the first subscription: lateness of each
        message in ms, seconds from the first due time to the last hand-out, CPU in us.
        """
        chance = random.Random(11)
        first_number, first_ms = self.published, self.now_ms() + LEAD_MS
        times = array("q", (first_ms + chance.randrange(1000) for _ in range(due)))
        runs = iter(times[k : k + RUN] for k in range(0, due, RUN))
        await self.publish(due, lambda: next(runs))
        if self.now_ms() > first_ms:
            print("the machine was too slow: some were due before all were published")
        late, last_ms = [], first_ms
        await asyncio.sleep(max(first_ms - self.now_ms(), 0) / 1000)
        cpu = time.process_time()
        while len(late) < due and self.now_ms() < first_ms + 60_000:
            await asyncio.sleep(0)
            for view in self.views:
                got = view.take_due(1000)
                if got and view is self.views[0]:
                    last_ms = self.now_ms()
                    late += [last_ms - times[a * LEDGER + b - first_number] for a, b in got]
        return late, (last_ms - first_ms) / 1000, (time.process_time() - cpu) / due * 1e6


def delays(bench, kind):
    """A function that returns the delivery times of the next run; random delays are drawn once and used repeatedly."""
    chance = random.Random(7)
    drawn = [array("q", (chance.randrange(DAY_MS) for _ in range(RUN))) for _ in range(500 if kind == "random" else 0)]
    fixed = array("q", [DAY_MS]) * RUN

    def times_of():
        base = bench.now_ms() + DAY_MS // 24
        chosen = chance.choice(drawn) if drawn else fixed
        return array("q", [base + delay for delay in chosen])

    return times_of


async def restart(bench):
    started = time.perf_counter()
    await bench.index.close()
    print(f"close           {time.perf_counter() - started:8.2f} s")
    started = time.perf_counter()
    await bench.open()
    opened = time.perf_counter() - started
    await bench.index._recovered.wait()
    ready = time.perf_counter() - started
    print(f"restart         {opened * 1e3:8.1f} ms until served, {ready:.2f} s until all buckets are in service")


async def main(options, directory):
    storage = await open_embedded(directory, EngineSettings(cache_bytes=1 << 20))
    bench = Bench(options, storage)
    times_of = delays(bench, options.delays)
    before = trimmed_rss_bytes()
    await bench.open()
    cpu = time.process_time()
    whole, n = await bench.publish(options.messages, times_of), options.messages
    cpu = time.process_time() - cpu
    spent = sum(bench.calls)
    kept, bare = (rss_bytes() - before) / 1e6, (trimmed_rss_bytes() - before) / 1e6
    print(f"{options.tracker}, {n:,} messages, {options.delays} delays, {options.subscriptions} subscriptions")
    print(f"memory          {kept:8.1f} MB, peak {(bench.peak - before) / 1e6:.1f} MB, {bare:.1f} MB really in use")
    print(f"own count       {bench.index.memory_bytes / 1e6:8.1f} MB")
    print(f"add             {spent / n * 1e9:8.0f} ns a message; a run of {RUN}: {quantiles(bench.calls, 1e3)} ms")
    print(f"whole run       {n / whole:8,.0f} messages/s, {cpu / n * 1e6:.2f} us of CPU a message")
    if options.tracker == "bucket":
        stats = bench.index.stats()
        create, merge = stats.operations["create"], stats.operations["merge"]
        print(f"buckets         {stats.bucket_total - 1:8} after {create.all} seals and {merge.all} merges")
        print(f"disk            {stats.snapshot_size_bytes / n:8.2f} bytes a message")
        await restart(bench)
    late, seconds, cpu = await bench.fire(options.due)
    print(
        f"due in a second {len(late):8,} given in {seconds:.2f} s, lateness {quantiles(late)} ms, {cpu:.2f} us of CPU each"
    )
    print(f"memory at end   {(rss_bytes() - before) / 1e6:8.1f} MB")
    await bench.index.close()
    await storage.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--due", type=int, default=500_000)
    parser.add_argument("--subscriptions", type=int, default=1)
    parser.add_argument("--tracker", choices=("bucket", "memory"), default="bucket")
    parser.add_argument("--delays", choices=("random", "fixed"), default="random")
    parser.add_argument("--index-count", type=int, default=50_000)
    parser.add_argument("--max-buckets", type=int, default=-1)
    folder = tempfile.mkdtemp(prefix="delayed-bench-")
    try:
        asyncio.run(main(parser.parse_args(), folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
