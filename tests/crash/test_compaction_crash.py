"""Crashes at any file operation and any metadata write while a topic is published to, compacted and trimmed.

``make test`` takes a sample, with other points for each seed and loss; ``MAGNETAR_CRASH_LONG=1`` takes all.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from magnetar.broker.compaction.references import CompactionReferences
from magnetar.broker.compaction.topic_compaction import COMPACTED, CompactionSettings, TopicCompaction
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.orphaned_ledgers import ManagedLedgerReferences, sweep_orphans
from magnetar.storage.position import EARLIEST
from tests.broker.compaction_for_tests import TOPIC, batch, len_prefix, messages_of, read_on, single
from tests.storage.engine_for_tests import World, run_until_crash
from tests.storage.managed_for_tests import KEEP, NAME, append

LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
MODES = ["nothing", "some", "everything"]
KEYS = [f"k{i}" for i in range(6)]
STEPS = 22
CONFIG = replace(
    KEEP,
    max_entries_per_ledger=7,
    cursor_max_entries_per_ledger=4,
    cursor_inline_bytes=64,
    retention_time_ms=0,
    retention_size_bytes=0,
)
"""No retention: a closed ledger is trimmed once the compaction's cursor has passed it."""


@pytest.fixture(autouse=True)
def quiet():
    """Capture the log: tracebacks of the dying process are expected."""
    with capture_logs():
        yield


class Promise:
    def __init__(self):
        self.confirmed = []
        """(position, batch index, key, value) of every message with a receipt, in order."""
        self.unsure = set()
        """Keys of the publish that had no receipt when the process died."""
        self.horizon = EARLIEST
        """The horizon of the last compaction that reported success."""


class Work:
    """Publishes, compactions and trims; each step chosen by the seed."""

    def __init__(self, world, promise, seed):
        self.world, self.promise = world, promise
        self.chance = random.Random(seed)

    async def run(self):
        await self.open()
        await self.compact()  # from now on the compaction's cursor holds the log
        for _ in range(STEPS):
            await self.chance.choices([self.publish, self.compact, self.trim, self.reopen], [6, 4, 2, 1])[0]()
        await self.close()

    async def open(self):
        self.storage = await self.world.open()
        factory = ManagedLedgerFactory(
            self.storage.ledgers, self.world.metadata, self.world.clock, self.world.scheduler
        )
        self.factory = factory
        self.log = await factory.open(NAME, CONFIG)
        settings = CompactionSettings(asyncio.Semaphore(1), self.world.clock.now_ms, 1000)
        self.compaction = TopicCompaction(TOPIC, self.log, self.storage.ledgers, settings)
        await self.compaction.open()

    async def close(self):
        await self.compaction.close()
        await self.factory.close()
        await self.storage.close()

    async def reopen(self):
        await self.close()
        await self.open()

    async def publish(self):
        bodies, contents = [], []
        for _ in range(self.chance.randint(1, 6)):
            value = self.chance.choice([b"", b"v%d" % self.chance.randrange(1000)])
            pairs = [(self.chance.choice(KEYS), value), (self.chance.choice(KEYS), b"second")]
            if self.chance.random() < 0.5:
                bodies.append(single(*pairs[0]))
                contents.append([(-1, *pairs[0])])
            else:
                bodies.append(batch(*pairs))
                contents.append([(k, *pair) for k, pair in enumerate(pairs)])
        self.promise.unsure = {message[1] for content in contents for message in content}
        for position, content in zip(await append(self.log, bodies), contents, strict=True):
            self.promise.confirmed += [(position, *message) for message in content]
        self.promise.unsure = set()

    async def compact(self):
        self.compaction.start()
        await self.compaction.wait()
        if self.compaction.status().status == "SUCCESS" and self.compaction.current() is not None:
            self.promise.horizon = self.compaction.current().horizon

    async def trim(self):
        if self.compaction.current() is not None:
            await self.log.roll()
            await self.log.trim(self.world.clock.now_ms() + 1)

    async def values(self):
        reader = self.compaction.new_reader(self.log.new_read_cursor(EARLIEST))
        reader.begin(EARLIEST)
        found = await read_on(reader)
        reader._cursor.close()
        return [(p, *m) for p, body in found for m in messages_of(body[len_prefix(body) :])]


async def check(world, promise):
    """Open the remaining files: the newest value of every key exists, no older value comes back, compaction still
    works.
    """
    work = Work(world, promise, 0)
    await work.open()
    await sweep(work)
    current = work.compaction.current()
    assert promise.horizon == EARLIEST or current is not None
    assert current is None or current.horizon >= promise.horizon, "a finished compaction is undone"
    check_values(promise, await work.values(), EARLIEST if current is None else current.horizon)
    await work.compact()
    assert work.compaction.status().status == "SUCCESS", work.compaction.status()
    values = await work.values()
    check_values(promise, values, work.log.last_confirmed)
    await work.trim()
    assert await work.values() == values
    await work.close()
    await check_ledgers(world, work.compaction.current())


def check_values(promise, values, horizon):
    assert [v[:2] for v in values] == sorted({v[:2] for v in values}), "order kept, nothing twice"
    newest = {message[2]: message for message in promise.confirmed}
    for key, message in newest.items():
        if key not in promise.unsure:
            seen = [value for value in values if value[2] == key]
            if message[3]:
                assert seen[-1:] == [message], f"the newest value of {key} is lost"
            else:
                assert message[0] > horizon or all(v[0] > horizon for v in seen), f"{key} is back from the dead"
    compacted = [value[2] for value in values if value[0] <= horizon]
    assert len(compacted) == len(set(compacted))


async def check_ledgers(world, current):
    """Check that no ledger of an interrupted compaction is left."""
    storage = await world.open()
    for ledger_id in await storage.ledgers.list_ledgers():
        known = current is not None and ledger_id == current.ledger.ledger_id
        assert known or COMPACTED not in await storage.ledgers.properties(ledger_id)
    await storage.close()


async def sweep(work):
    """Sweep orphaned ledgers as the broker does after its start, once with the topic loaded and once without."""
    metadata, newest = work.world.metadata, work.storage.recovery.newest_ledger_id
    for compaction in (None, work.compaction):
        references = [ManagedLedgerReferences(metadata), CompactionReferences(metadata, lambda _, c=compaction: c)]
        await sweep_orphans(work.storage.ledgers, metadata, references, newest)


@functools.cache
def operations_of(seed):
    world, promise = World(), Promise()
    assert run_until_crash(world.disk, Work(world, promise, seed).run()) is None
    return world.disk.operations


def crash_and_check(seed, crash_at, mode, second_at=-1):
    world, promise = World(), Promise()
    world.disk.crash_at = crash_at
    run_until_crash(world.disk, Work(world, promise, seed).run())
    world = world.after_crash(mode, seed)
    if second_at >= 0:
        world.disk.crash_at = second_at
        run_until_crash(world.disk, check(world, promise))
        world = world.after_crash(mode, seed + 1)
    world.disk.crash_at = -1
    assert run_until_crash(world.disk, check(world, promise)) is None


@pytest.mark.parametrize("seed", range(3))
def test_clean_run(seed):
    world, promise = World(), Promise()
    assert run_until_crash(world.disk, Work(world, promise, seed).run()) is None
    assert promise.horizon > EARLIEST
    assert run_until_crash(world.disk, check(world, promise)) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_crash_anywhere(seed, mode):
    start = 0 if LONG else seed + 4 * MODES.index(mode)
    for crash_at in range(start, operations_of(seed), 1 if LONG else 13):
        crash_and_check(seed, crash_at, mode)


@pytest.mark.parametrize("seed", range(2))
def test_crash_in_recovery(seed):
    for crash_at in range(seed + 20, operations_of(seed), 7 if LONG else 47):
        for second_at in range(0, 60, 9):
            crash_and_check(seed, crash_at, "some", second_at)
