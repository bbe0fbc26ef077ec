"""The speed of compaction, its memory for any number of keys, and its effect on other tasks.

    python -m bench.compaction_bench [--messages 500000] [--size 1024] [--keys 1000 --keys 200000] [--batch 1]
    python -m bench.compaction_bench --table 3000000      # the key table against SQLite in a temporary file

One topic on the embedded engine in a temporary directory. ``stall`` is the longest time another task on the event loop
had to wait for its turn meanwhile; ``memory`` is how much the process grew.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import sqlite3
import tempfile
import time

from magnetar.broker.compaction.examine import digest_of
from magnetar.broker.compaction.key_table import KEYS_IN_MEMORY, KeyTable
from magnetar.broker.compaction.topic_compaction import CompactionSettings, TopicCompaction
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.embedded.engine import EngineSettings, open_embedded
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import ManagedLedgerConfig
from tests.storage.managed_for_tests import run_of

NAME = TopicName.parse("persistent://public/default/bench")


def rss_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def entries(first: int, count: int, keys: int, size: int, batch: int) -> list[bytes]:
    payload = os.urandom(size)
    made = []
    for i in range(first, first + count):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=i, publish_time=1)
        if batch == 1:
            metadata.partition_key = f"key {i * 7919 % keys}"
            made.append(encode_entry(metadata, payload))
        else:
            metadata.num_messages_in_batch = batch
            singles = [
                (pb.SingleMessageMetadata(partition_key=f"key {(i * batch + k) * 7919 % keys}"), payload)
                for k in range(batch)
            ]
            made.append(encode_entry(metadata, encode_batch(singles)))
    return made


async def stalls(worst: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        worst[0] = max(worst[0], time.perf_counter() - before - 0.001)


async def compaction(messages: int, keys: int, size: int, batch: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        storage = await open_embedded(directory, EngineSettings(cache_bytes=32 << 20))
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, clock, loop)
        log = await factory.open(
            NAME.persistence_name, ManagedLedgerConfig(retention_time_ms=-1, retention_size_bytes=-1)
        )
        for first in range(0, messages // batch, 1000):
            done = loop.create_future()
            log.append(run_of(entries(first, min(1000, messages // batch - first), keys, size, batch)), done.set_result)
            await done
        settings = CompactionSettings(asyncio.Semaphore(1), clock.now_ms, KEYS_IN_MEMORY, directory)
        topic = TopicCompaction(NAME, log, storage.ledgers, settings)
        worst, before = [0.0], rss_bytes()
        watch = asyncio.create_task(stalls(worst))
        start = time.perf_counter()
        topic.start()
        most = before
        while topic.is_running:
            await asyncio.sleep(0.02)
            most = max(most, rss_bytes())
        seconds = time.perf_counter() - start
        watch.cancel()
        assert topic.status().status == "SUCCESS", topic.status()
        total = log.size_bytes
        print(
            f"{messages} messages of {size} B, batches of {batch}, {keys} keys: {seconds:.2f} s, "
            f"{messages / seconds:,.0f} messages/s, {total / seconds / 1e6:.0f} MB/s, "
            f"stall {worst[0] * 1000:.1f} ms, memory +{(most - before) / 1e6:.0f} MB, "
            f"{topic.ledger_json()['entries']} entries left"
        )
        await factory.close()
        await storage.close()


def table(keys: int) -> None:
    """Put every key twice, in both tables."""
    with tempfile.TemporaryDirectory() as directory:
        before, start = rss_bytes(), time.perf_counter()
        own = KeyTable(KEYS_IN_MEMORY, directory)
        for place in range(2 * keys):
            own.put(digest_of(str(place % keys)), place)
            if own.is_full:
                own.spill()
        count, most = 0, rss_bytes()
        for places in own.newest():
            count += len(places)
            most = max(most, rss_bytes())
        own.close()
        print(f"own table: {keys} keys, {time.perf_counter() - start:.1f} s, memory +{(most - before) / 1e6:.0f} MB")
        assert count == keys
        before, start = rss_bytes(), time.perf_counter()
        base = sqlite3.connect(f"{directory}/keys.sqlite", isolation_level=None)
        base.execute("PRAGMA journal_mode=OFF")
        base.execute("PRAGMA synchronous=OFF")
        base.execute("PRAGMA cache_size=-32768")
        base.execute("CREATE TABLE newest (digest BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID")
        base.execute("BEGIN")
        rows = ((digest_of(str(place % keys)), place) for place in range(2 * keys))
        base.executemany("INSERT OR REPLACE INTO newest VALUES (?, ?)", rows)
        base.execute("COMMIT")
        count = sum(1 for _ in base.execute("SELECT place FROM newest"))
        assert count == keys
        base.close()
        grown = (rss_bytes() - before) / 1e6
        print(f"SQLite:    {keys} keys, {time.perf_counter() - start:.1f} s, memory +{grown:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--keys", type=int, action="append")
    parser.add_argument("--table", type=int, default=0)
    options = parser.parse_args()
    if options.table:
        table(options.table)
        return
    for keys in options.keys or [1000, 200_000]:
        asyncio.run(compaction(options.messages, keys, options.size, options.batch))


if __name__ == "__main__":
    main()
