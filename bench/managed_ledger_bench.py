"""The cost of the managed ledger on top of the store: run it with ``python bench/managed_ledger_bench.py [name ...]``.

append  microseconds per run in the managed ledger alone (stamping and the in-memory store measured apart)
topics  10,000 topics with a subscription each: open, close, reopen; seconds and memory
acks    acknowledgements per second: in order, random (with holes), and one flush with a million holes
seek    seek by time on ten million entries in 200 ledgers: entries read
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sys
import tempfile
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import structlog

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import speed
from magnetar.protocol.runs import EntryRun
from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import AppendResult, ManagedLedger, ManagedLedgerConfig
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.slab import Slab
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

NAME = "public/default/persistent/bench"
KEEP = ManagedLedgerConfig(retention_time_ms=-1, retention_size_bytes=-1)


def run_of(body: bytes, count: int) -> EntryRun:
    offsets = array("q", (k * len(body) for k in range(count + 1))).tobytes()
    ones = array("q", [1] * count).tobytes()
    zeros = array("q", [0] * count).tobytes()
    sequences = array("q", range(count)).tobytes()
    flags = array("I", [0] * count).tobytes()
    return EntryRun(
        1, count, body * count, offsets, sequences, zeros, ones, None, flags, 0, 0, count, True, len(body) * count
    )


def message(publish_time: int) -> bytes:
    head = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_time).SerializeToString()
    return len(head).to_bytes(4, "big") + head + b"payload"


def factory(ledgers: MemoryLedgerStore, metadata: MemoryMetadataStore) -> ManagedLedgerFactory:
    return ManagedLedgerFactory(ledgers, metadata, SystemClock(), asyncio.get_running_loop())


async def bench_append() -> None:
    for count in (1, 16, 64):
        run = run_of(b"x" * 100, count)
        ledgers, metadata = MemoryLedgerStore(), MemoryMetadataStore()
        ledger = await factory(ledgers, metadata).open(NAME, KEEP)
        rounds, done = 20_000, 0

        def on_done(_result: object) -> None:
            nonlocal done
            done += 1

        ledger.append(run, on_done)
        await asyncio.sleep(0.01)
        start = time.perf_counter()
        for _ in range(rounds // 100):
            for _ in range(100):
                ledger.append(run, on_done)
            await asyncio.sleep(0)
        while done < rounds:  # noqa: ASYNC110 - the loop is measured
            await asyncio.sleep(0)
        whole = (time.perf_counter() - start) / rounds
        alone = await bare_store(run, rounds)
        print(
            f"append  run of {count:3}: {whole * 1e6:6.1f} us per run, stamp and store alone {alone * 1e6:6.1f} us,"
            f" managed ledger {(whole - alone) * 1e6:5.1f} us"
        )


async def bare_store(run: EntryRun, rounds: int) -> float:
    """Seconds per run of stamping and appending without a managed ledger."""
    writer = await MemoryLedgerStore().create()
    clock = SystemClock()
    start = time.perf_counter()
    for k in range(rounds):
        first = k * run.count
        data, offsets = speed.stamp(
            run.data, run.offsets, run.num_messages, 0, run.count, 0, first, -1, clock.now_ms(), first - 1
        )
        writer.append(Slab(0, first, data, offsets), lambda _error: None)
        if k % 100 == 99:
            await asyncio.sleep(0)
    return (time.perf_counter() - start) / rounds


def rss_mb() -> float:
    """Resident memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


async def bench_topics(count: int = 10_000) -> None:
    """Over the embedded engine in a temporary directory."""
    names = [f"public/default/persistent/t{k}" for k in range(count)]
    body = message(1)
    with tempfile.TemporaryDirectory() as folder:
        for phase in ("create", "reopen"):
            storage = await open_embedded(folder)
            making = ManagedLedgerFactory(storage.ledgers, storage.metadata, SystemClock(), asyncio.get_running_loop())
            before, start = rss_mb(), time.perf_counter()
            opened = []
            for first in range(0, count, 100):
                opened += await asyncio.gather(*(making.open(name, KEEP) for name in names[first : first + 100]))
                await asyncio.gather(*(ledger.open_cursor("s", "earliest") for ledger in opened[first:]))
            took = time.perf_counter() - start
            print(f"topics  {phase} {count} with a subscription each: {took:.2f} s, {rss_mb() - before:.0f} MB more")
            await one_message_each(opened[: count // 10], body)
            start = time.perf_counter()
            await making.close()
            print(f"topics  close: {time.perf_counter() - start:.2f} s")
            await storage.close()


async def one_message_each(opened: list[ManagedLedger], body: bytes) -> None:
    """A message and a durable acknowledgement on every topic."""
    start = time.perf_counter()
    for first in range(0, len(opened), 100):
        part = opened[first : first + 100]
        left = len(part)

        def on_done(result: AppendResult) -> None:
            nonlocal left
            left -= result.error is None

        for ledger in part:
            ledger.append(EntryRun.single(body), on_done)
        while left:  # noqa: ASYNC110 - the loop is measured
            await asyncio.sleep(0.001)
        for ledger in part:
            ledger.cursors["s"].ack(ledger.last_confirmed)
        await asyncio.gather(*(ledger.cursors["s"].flush() for ledger in part))
    took = time.perf_counter() - start
    print(f"topics  one message and one durable ack on {len(opened)} of them: {took:.2f} s")


async def filled(entries: int, per_ledger: int, body: bytes = b"x") -> tuple[ManagedLedger, MemoryLedgerStore]:
    ledgers, metadata = MemoryLedgerStore(), MemoryMetadataStore()
    config = ManagedLedgerConfig(
        max_entries_per_ledger=per_ledger, min_rollover_ms=0, retention_time_ms=-1, retention_size_bytes=-1
    )
    ledger = await factory(ledgers, metadata).open(NAME, config)
    run = run_of(body, 1000)
    for _ in range(entries // 1000):
        ledger.append(run, lambda _result: None)
        await asyncio.sleep(0)
    while ledger.entries < entries:  # noqa: ASYNC110 - the loop is measured
        await asyncio.sleep(0)
    return ledger, ledgers


async def bench_acks(entries: int = 1_000_000) -> None:
    ledger, _ = await filled(entries, 50_000)
    positions = [Position(slot.ledger_id, k) for slot in ledger.ledgers for k in range(slot.entries)]
    shuffled = positions[:]
    random.Random(1).shuffle(shuffled)
    for what, order in (("in order", positions), ("random order", shuffled)):
        cursor = ledger.new_read_cursor(EARLIEST)
        start = time.perf_counter()
        for k in range(0, entries, 100):
            cursor.ack_many(order[k : k + 100])
        took = time.perf_counter() - start
        print(f"acks    {what}: {entries / took / 1e3:.0f} thousand/s, backlog left {cursor.backlog_entries}")
    cursor = await ledger.open_cursor("holes", "earliest")
    cursor.ack_many(positions[1::2])
    start = time.perf_counter()
    await cursor.flush()
    first = time.perf_counter() - start
    cursor.ack_many(positions[2:2002:20])
    start = time.perf_counter()
    await cursor.flush()
    print(
        f"acks    flush of {cursor.individually_deleted_entries} acks behind mark-delete: {first * 1e3:.1f} ms,"
        f" the next (increment) {(time.perf_counter() - start) * 1e3:.2f} ms"
    )


async def bench_seek(entries: int = int(os.environ.get("ENTRIES", "10_000_000"))) -> None:
    """Broker timestamps of a clock that moves with the entries; the producers' own times are random."""

    class Clock:
        ms = 1_000_000

        def now_ms(self) -> int:
            return self.ms

        def now_s(self) -> float:
            return self.ms / 1000

    clock = Clock()
    ledgers, metadata = MemoryLedgerStore(), MemoryMetadataStore()
    making = ManagedLedgerFactory(ledgers, metadata, clock, asyncio.get_running_loop())
    config = ManagedLedgerConfig(
        max_entries_per_ledger=50_000,
        min_rollover_ms=0,
        max_rollover_ms=0,
        retention_time_ms=-1,
        retention_size_bytes=-1,
    )
    ledger = await making.open(NAME, config)
    chance = random.Random(2)
    runs = [run_of(message(chance.randrange(1, 10**13)), 5000) for _ in range(20)]
    for _ in range(entries // 5000):
        ledger.append(chance.choice(runs), lambda _result: None)
        clock.ms += 10
        await asyncio.sleep(0)
    while ledger.entries < entries:  # noqa: ASYNC110 - the loop is measured
        await asyncio.sleep(0)
    probes, took, right = 0, 0.0, 0
    for _ in range(50):
        target = chance.randrange(1_000_000, clock.ms)
        before = ledger.stats().entries_read_by_search
        start = time.perf_counter()
        position = await ledger.position_for_time(target)
        took += time.perf_counter() - start
        probes = max(probes, ledger.stats().entries_read_by_search - before)
        right += ledger.entries_between(EARLIEST, position.previous()) == -(-(target - 1_000_000) // 10) * 5000
    print(
        f"seek    {entries} entries in {len(ledger.ledgers)} ledgers: at most {probes} entries read,"
        f" {took / 50 * 1e3:.2f} ms each, {right}/50 exact"
    )


BENCHES = {"append": bench_append, "topics": bench_topics, "acks": bench_acks, "seek": bench_seek}


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    print(f"compiled helper: {speed.COMPILED}")
    for name in sys.argv[1:] or BENCHES:
        asyncio.run(BENCHES[name]())


if __name__ == "__main__":
    main()
