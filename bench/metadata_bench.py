"""Metadata writes: the log against SQLite (WAL, synchronous=FULL) in the same run on the same disk, and the tree in memory.

    python bench/metadata_bench.py [--folder DIR] [--writes N] [--topics N]

Prints writes per second, one after the other and 64 at a time, then the cost of a tree of so many topics in memory, as
a snapshot on the disk, and at a start.
"""

import argparse
import asyncio
import gc
import os
import resource
import sqlite3
import tempfile
import time
from pathlib import Path

from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.lanes import RealThreads
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.metadata.load import load_metadata
from magnetar.storage.embedded.metadata.log_writer import LogEnvironment
from magnetar.storage.embedded.metadata.logged_metadata import LoggedMetadataStore
from magnetar.storage.embedded.metadata.node_tree import NodeTree
from magnetar.storage.embedded.metadata.opening import open_metadata, write_fresh
from magnetar.storage.interfaces import SystemClock

TOGETHER = 64
VALUE = b"v" * 150


def world_of(folder: Path) -> LogEnvironment:
    return LogEnvironment(RealFiles(), Layout(str(folder)), SystemClock(), os.urandom, 1 << 20)


async def log_rates(folder: Path, writes: int) -> tuple[float, float]:
    """Writes per second: (one after the other, 64 at a time)."""
    world = world_of(folder)
    store = LoggedMetadataStore(
        world, open_metadata(world, lambda _: NodeTree()), RealThreads(), asyncio.get_running_loop()
    )
    started = time.perf_counter()
    for number in range(writes):
        await store.put(f"/one/{number}", VALUE)
    alone = writes / (time.perf_counter() - started)
    started = time.perf_counter()
    for begin in range(0, writes * 8, TOGETHER):
        await asyncio.gather(*(store.put(f"/many/{begin + k}", VALUE) for k in range(TOGETHER)))
    together = writes * 8 / (time.perf_counter() - started)
    await store.close()
    return alone, together


def sqlite_rates(path: Path, writes: int) -> tuple[float, float]:
    """The same with SQLite, without threads in between."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE node (path TEXT PRIMARY KEY, value BLOB, version INTEGER) WITHOUT ROWID")

    def put(name: str) -> None:
        database.execute("INSERT OR REPLACE INTO node VALUES (?, ?, 0)", (name, VALUE))

    started = time.perf_counter()
    for number in range(writes):
        put(f"/one/{number}")
    alone = writes / (time.perf_counter() - started)
    started = time.perf_counter()
    for begin in range(0, writes * 8, TOGETHER):
        database.execute("BEGIN")
        for k in range(TOGETHER):
            put(f"/many/{begin + k}")
        database.execute("COMMIT")
    together = writes * 8 / (time.perf_counter() - started)
    database.close()
    return alone, together


def tree_of(topics: int) -> NodeTree:
    """Four nodes per topic, as a broker has them."""
    tree = NodeTree()
    tree.begin()
    for number in range(topics):
        name = f"public/default/persistent/topic-{number:09d}"
        tree.put(f"/managed-ledgers/{name}", b"l" * 60, None)
        tree.put(f"/managed-ledgers/{name}/subscription", b"c" * 40, None)
        properties = b'{"state": "open", "properties": {"application": "pulsar", "component": "managed-ledger"}}'
        tree.put(f"/ledgers/{number:019d}", properties + name.encode(), None)
        tree.put(f"/admin/topic-policies/{name}", b"p" * 40, None)
        tree.begin()
    return tree


def memory_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--folder", default=None)
    parser.add_argument("--writes", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "rates").mkdir()
        ours = asyncio.run(log_rates(folder / "rates", options.writes))
        theirs = sqlite_rates(folder / "reference.sqlite", options.writes)
        for what, log, reference in zip(("one by one", f"{TOGETHER} at a time"), ours, theirs, strict=True):
            print(f"{what:>14}: {log:8.0f}/s, SQLite {reference:8.0f}/s, {log / reference:.2f}x")
        before = memory_kb()
        tree = tree_of(options.topics)
        print(f"{options.topics} topics: {len(tree.nodes)} nodes, {(memory_kb() - before) / 1024:.0f} MiB in memory")
        store = folder / "tree"
        (store / "metadata").mkdir(parents=True)
        started = time.perf_counter()
        write_fresh(world_of(store), b"s" * 16, tree, 1, 1)
        size = (store / "metadata" / "00000002.snapshot").stat().st_size
        print(f"snapshot: {size / 2**20:.0f} MiB, two of them written in {time.perf_counter() - started:.2f} s")
        gc.disable()  # as a broker does while it starts
        started = time.perf_counter()
        load_metadata(RealFiles(), Layout(str(store)))
        print(f"read at a start: {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
