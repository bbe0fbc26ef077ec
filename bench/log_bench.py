"""The log end to end: python bench/log_bench.py [publish] [reopen] [seek] [topics]

publish  the cost of entry metadata and deduplication per message, features off and on in turn
reopen   a log of GIGABYTES (10) in TOPICS (1,000) topics: opened after a clean stop and after a kill -9
seek     seek by time over ENTRIES (10 million) in hundreds of ledgers on disk, producers' clocks in disorder
topics   10,000 topics with a subscription each: created, closed, loaded again by a broker over one connection

Everything is made in a temporary directory (BENCH_DIR names another place) and removed.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":  # run as a file: the project's packages are in the parent directory
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import structlog

from bench import load, scenarios, servers
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.runs import EntryRun
from magnetar.storage.embedded.engine import EngineSettings, open_embedded
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import ManagedLedger, ManagedLedgerConfig

if TYPE_CHECKING:
    from magnetar.storage.position import Position

KEEP = ManagedLedgerConfig(
    max_entries_per_ledger=50_000, min_rollover_ms=0, retention_time_ms=-1, retention_size_bytes=-1
)
KEPT = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
NAME = "public/default/persistent/t-%d"


def folder() -> str:
    return tempfile.mkdtemp(prefix="magnetar-bench-", dir=os.environ.get("BENCH_DIR"))


def run_of(bodies: list[bytes]) -> EntryRun:
    count, offsets = len(bodies), array("q", [0])
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    ones, zeros = array("q", [1] * count).tobytes(), array("q", [0] * count).tobytes()
    sequences, flags = array("q", range(count)).tobytes(), array("I", [0] * count).tobytes()
    data = b"".join(bodies)
    return EntryRun(
        1, count, data, offsets.tobytes(), sequences, zeros, ones, None, flags, 0, 0, count, True, len(data)
    )


def message(publish_time: int, payload: bytes) -> bytes:
    head = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_time).SerializeToString()
    return len(head).to_bytes(4, "big") + head + payload


# --- publish ----------------------------------------------------------------------------------------------------


def publish(count: int = 100_000, rounds: int = 7) -> None:
    """Compare the CPU time of the broker per message: the rate on a shared machine has little meaning."""
    kinds = {
        "nothing": {"brokerEntryMetadataInterceptors": ""},
        "entry metadata": {},
        "and deduplication": {"brokerDeduplicationEnabled": "true"},
    }
    for size, batch, window in ((1024, 1, 1000), (100, 1, 1000), (1024, 100, 64)):
        figures: dict[str, dict[str, list[float]]] = {name: {} for name in kinds}
        for k in range(rounds):
            order = list(kinds) if k % 2 else list(reversed(kinds))
            for name in order:
                sends = count if batch == 1 else count // 25
                found = scenarios.publish(
                    lambda name=name: servers.broker(settings=kinds[name]), 1.0, sends, size, window, batch
                )
                for figure, value in found.items():
                    figures[name].setdefault(figure, []).append(value)
        base = statistics.median(figures["nothing"]["server µs CPU/msg"])
        for name, found in figures.items():
            cpu, rate = statistics.median(found["server µs CPU/msg"]), statistics.median(found["msg/s"])
            print(
                f"{size} B x {batch:3}  {name:18} {cpu:6.3f} µs CPU/msg ({cpu / base:.3f})  {rate:10,.0f}/s", flush=True
            )


# --- reopen -----------------------------------------------------------------------------------------------------


async def fill(path: str, topics: int, total_bytes: int, clean: bool) -> None:
    storage = await open_embedded(path, EngineSettings(cache_bytes=64 << 20))
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, SystemClock(), asyncio.get_running_loop())
    ledgers = [await factory.open(NAME % k, KEEP) for k in range(topics)]
    run = run_of([message(1, os.urandom(1000))] * 128)
    each = total_bytes // topics // run.size_bytes
    for _ in range(max(each, 1)):
        await asyncio.gather(*(appended(ledger, run) for ledger in ledgers))
    if not clean:
        os.kill(os.getpid(), signal.SIGKILL)
    await factory.close()
    await storage.close()


async def appended(ledger: ManagedLedger, run: EntryRun) -> None:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    ledger.append(run, future.set_result)
    await future


async def opened(path: str, topics: int) -> str:
    started = time.perf_counter()
    storage = await open_embedded(path, EngineSettings())
    engine = time.perf_counter() - started
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, SystemClock(), asyncio.get_running_loop())
    ledgers = await asyncio.gather(*(factory.open(NAME % k, KEEP) for k in range(topics)))
    all_topics = time.perf_counter() - started
    size = sum(ledger.size_bytes for ledger in ledgers)
    replayed = storage.recovery.entries
    await factory.close()
    await storage.close()
    return (
        f"{size / 1e9:.1f} GB, {replayed:,} entries replayed: store {engine:.2f} s, with all topics {all_topics:.2f} s"
    )


def reopen() -> None:
    topics, gigabytes = int(os.environ.get("TOPICS", "1000")), float(os.environ.get("GIGABYTES", "10"))
    place = folder()
    try:
        for clean in (True, False):  # the second round adds a little to the data of the first round
            child = os.fork()
            if not child:
                asyncio.run(fill(place, topics, int(gigabytes * 1e9) if clean else topics * 300_000, clean))
                os._exit(0)
            started = time.perf_counter()
            os.waitpid(child, 0)
            print(f"filled in {time.perf_counter() - started:.0f} s", flush=True)
            what = "after a clean stop" if clean else "after kill -9"
            print(f"{what}: {asyncio.run(opened(place, topics))}", flush=True)
        with servers.broker(folder=place, settings=KEPT) as server:
            server.wait_ready()
            print(f"broker: ready {time.perf_counter() - server.started:.2f} s after its start", flush=True)
            started = time.perf_counter()
            each_topic(load.Connection(server.port), producer_of, topics)
            print(
                f"        a producer on each of {topics} topics {time.perf_counter() - started:.2f} s more", flush=True
            )
    finally:
        shutil.rmtree(place, ignore_errors=True)


# --- seek -------------------------------------------------------------------------------------------------------


class Ticking:
    """A clock that moves with the entries."""

    ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def now_s(self) -> float:
        return self.ms / 1000


async def fill_for_seek(path: str, entries: int, clock: Ticking) -> None:
    storage = await open_embedded(path, EngineSettings(cache_bytes=16 << 20))
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, clock, asyncio.get_running_loop())
    ledger = await factory.open(NAME % 0, KEEP)
    chance = random.Random(2)
    runs = [run_of([message(chance.randrange(1, 10**13), b"payload") for _ in range(1000)]) for _ in range(20)]
    waiting: list[asyncio.Future[object]] = []
    for _ in range(entries // 1000):
        waiting.append(asyncio.get_running_loop().create_future())
        ledger.append(chance.choice(runs), waiting[-1].set_result)
        clock.ms += 10
        if len(waiting) == 50:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)
    await factory.close()
    await storage.close()


async def seek_in_store(path: str, start_ms: int, clock: Ticking) -> str:
    storage = await open_embedded(path, EngineSettings())
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, clock, asyncio.get_running_loop())
    ledger = await factory.open(NAME % 0, KEEP)
    chance, most, right, took = random.Random(3), 0, 0, []
    for _ in range(50):
        wanted = chance.randrange(start_ms, clock.ms)
        read, started = ledger.stats().entries_read_by_search, time.perf_counter()
        position = await ledger.position_for_time(wanted)
        took.append(time.perf_counter() - started)
        most = max(most, ledger.stats().entries_read_by_search - read)
        before, at = [await stamp_of(ledger, each) for each in (ledger.previous(position), position)]
        right += before < wanted <= at
    result = (
        f"{ledger.entries:,} entries, {ledger.size_bytes / 1e9:.2f} GB, {len(ledger.ledgers)} ledgers: at most {most}"
        f" entries read, {right}/50 exact, p50 {statistics.median(took) * 1e3:.1f} ms, most {max(took) * 1e3:.1f} ms"
    )
    await factory.close()
    await storage.close()
    return result


async def stamp_of(ledger: ManagedLedger, position: Position) -> int:
    """Broker timestamp of an entry; 0 before the first entry, and a time in the far future behind the last entry."""
    if not ledger.is_valid(position):
        return 0 if position < ledger.last_confirmed else 1 << 62
    span = await ledger.read_entry(position)
    return memoryview(span.slab.facts().broker_timestamp).cast("q")[span.start]


def seek() -> None:
    place, clock, start_ms = folder(), Ticking(), Ticking.ms
    try:
        started = time.perf_counter()
        asyncio.run(fill_for_seek(place, int(os.environ.get("ENTRIES", "10000000")), clock))
        print(f"filled in {time.perf_counter() - started:.0f} s", flush=True)
        print("store, cold:", asyncio.run(seek_in_store(place, start_ms, clock)), flush=True)
        with servers.broker(folder=place, settings=KEPT) as server:
            server.wait_ready()
            chance, took = random.Random(4), []
            consumer = load.Connection(server.port)
            topic = "persistent://public/default/t-0"
            for request in range(1, 31):
                consumer.request(subscribe_to(topic, request), pb.BaseCommand.SUCCESS)
                wanted = chance.randrange(start_ms, clock.ms)
                body = pb.CommandSeek(consumer_id=1, request_id=1000 + request, message_publish_time=wanted)
                started = time.perf_counter()
                consumer.send(pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=body))
                await_command(consumer, pb.BaseCommand.SUCCESS)
                took.append(time.perf_counter() - started)
            print(
                f"broker, SEEK to its answer: p50 {statistics.median(took) * 1e3:.1f} ms, most {max(took) * 1e3:.1f} ms"
            )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def await_command(connection: load.Connection, kind: int) -> None:
    """Read until a command of type `kind` has come; drops other commands (a seek closes its consumer)."""
    seen = False
    while not seen:
        for start, _ in connection.receive():
            size = int.from_bytes(connection.buffer[start : start + 4], "big")
            seen |= pb.BaseCommand.FromString(bytes(connection.buffer[start + 4 : start + 4 + size])).type == kind
        connection.drop()


# --- topics -----------------------------------------------------------------------------------------------------


def subscribe_to(topic: str, request: int, consumer_id: int = 1) -> pb.BaseCommand:
    body = pb.CommandSubscribe(
        topic=topic, subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=consumer_id, request_id=request
    )
    return pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=body)


def subscription_of(k: int) -> tuple[pb.BaseCommand, int]:
    return subscribe_to(f"persistent://public/default/t-{k}", k, k), pb.BaseCommand.SUCCESS


def producer_of(k: int) -> tuple[pb.BaseCommand, int]:
    body = pb.CommandProducer(topic=f"persistent://public/default/t-{k}", producer_id=k, request_id=k)
    return pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body), pb.BaseCommand.PRODUCER_SUCCESS


def each_topic(connection: load.Connection, command_of, count: int, together: int = 100) -> None:
    """Send the command for each topic, a hundred under way at a time."""
    answered = sent = 0
    while answered < count:
        while sent < count and sent - answered < together:
            command, kind = command_of(sent)
            connection.send(command)
            sent += 1
        for start, _ in connection.receive():
            size = int.from_bytes(connection.buffer[start : start + 4], "big")
            got = pb.BaseCommand.FromString(bytes(connection.buffer[start + 4 : start + 4 + size]))
            if got.type == kind:
                answered += 1
            elif got.type == pb.BaseCommand.ERROR:
                raise RuntimeError(str(got))
        connection.drop()


def topics(count: int = 10_000) -> None:
    place = folder()
    try:
        for what in ("created", "loaded"):
            server = servers.broker(folder=place).wait_ready()
            ready, before = time.perf_counter() - server.started, server.rss_mb()
            connection = load.Connection(server.port)
            started = time.perf_counter()
            each_topic(connection, subscription_of, count)
            took, held = time.perf_counter() - started, server.rss_mb()
            connection.close()
            started = time.perf_counter()
            server.process.terminate()
            server.process.wait(120)
            stopped = time.perf_counter() - started
            print(
                f"{count:,} topics {what} with a subscription in {took:.1f} s (ready after {ready:.2f} s),"
                f" {before:.0f} -> {held:.0f} MB, stopped in {stopped:.1f} s",
                flush=True,
            )
            server.process.stdout.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)


BENCHES = {"publish": publish, "reopen": reopen, "seek": seek, "topics": topics}


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    for name in sys.argv[1:] or BENCHES:
        print(f"-- {name}")
        BENCHES[name]()


if __name__ == "__main__":
    main()
