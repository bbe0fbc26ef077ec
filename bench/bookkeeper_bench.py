"""The BookKeeper client beside BookKeeper's own Java client, in turn on the same three real bookies (E3 W3 A2, fsync).

``python -m bench.bookkeeper_bench [ROUNDS]``; needs Java 17 and Maven. Entries per second, and the processor time of this
process per entry. Three shapes: one entry per call with 1,000 under way, runs of 100 entries, and runs of 100 entries
in one buffer, as the broker's engine adds them.
"""

from __future__ import annotations

import asyncio
import pathlib
import statistics
import sys
import tempfile
import time
from array import array

import structlog
import uvloop

from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.options import LedgerOptions
from tests.cluster.real_cluster import RealCluster, missing

LOAD = str(pathlib.Path(__file__).resolve().parents[1] / "tests/cluster/LedgerLoad.java")
WINDOW = 1000


async def ours(zookeeper, entries, size, run, *, packed=False):
    """(entries per second, microseconds of processor time per entry)."""
    async with await BookKeeper.connect(f"zk+hierarchical://{zookeeper}/ledgers") as client:
        await one_ledger(client, entries // 5, size, run, packed=packed)
        began, cpu = time.perf_counter(), time.process_time()
        await one_ledger(client, entries, size, run, packed=packed)
        return entries / (time.perf_counter() - began), (time.process_time() - cpu) / entries * 1e6


async def one_ledger(client, entries, size, run, *, packed):
    writer = await client.create(LedgerOptions(3, 3, 2))
    payloads = [bytes(size)] * run
    buffer, offsets = bytes(size * run), array("q", range(0, size * run + 1, size)).tobytes()
    finished = asyncio.get_running_loop().create_future()
    left, waiting = entries // run, entries // run

    def append():
        if packed:
            writer.append_packed_nowait(buffer, offsets, 0, done)
        else:
            writer.append_nowait(payloads, done)

    def done(error):
        nonlocal left, waiting
        if error is not None:
            finished.set_exception(error)
            return
        left -= 1
        if waiting:
            waiting -= 1
            append()
        elif not left:
            finished.set_result(None)

    for _ in range(min(WINDOW // run, waiting)):
        waiting -= 1
        append()
    await finished
    await writer.close()


def theirs(cluster, entries, size):
    output = cluster.java(LOAD, cluster.zookeeper, str(entries), str(size), str(WINDOW))
    return entries / next(float(line.split()[1]) for line in output.splitlines() if line.startswith("RESULT"))


def main(rounds=3):
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if (reason := missing()) is not None:
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as directory:
        cluster = RealCluster(pathlib.Path(directory))
        try:
            cluster.up(
                3, BK_STORAGE="db", BK_JVM="-Xms64m -Xmx192m -XX:MaxDirectMemorySize=192m -XX:TieredStopAtLevel=4"
            )
            for size, entries in ((1024, 60_000), (100, 60_000), (65_536, 3_000)):
                java, single, runs, slabs = [], [], [], []
                for _ in range(rounds):
                    java.append(theirs(cluster, entries, size))
                    for figures, run, packed in ((single, 1, False), (runs, 100, False), (slabs, 100, True)):
                        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                            figures.append(runner.run(ours(cluster.zookeeper, entries, size, run, packed=packed)))
                base = statistics.median(java)
                print(f"{size} bytes: Java client {base:,.0f}/s")
                for name, figures in (("one by one", single), ("runs of 100", runs), ("slabs of 100", slabs)):
                    rate, cpu = (statistics.median(values) for values in zip(*figures, strict=True))
                    print(f"  here, {name}: {rate:,.0f}/s = {rate / base:.0%}, {cpu:.1f} us an entry")
        finally:
            cluster.down()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
