"""Finding entries by time: exact on broker timestamps, few reads, calm about unreadable entries."""

from __future__ import annotations

import dataclasses
import random

import pytest

from magnetar.storage.position import Position
from tests.storage.managed_for_tests import KEEP, Ground, append, message
from tests.twins.memory_ledgers import MemoryLedgerStore

STAMPED = dataclasses.replace(KEEP, entry_timestamp=True)


async def timed(entries, config=STAMPED, *, cached=True):
    """Entries one second apart by the broker's clock, the producers' clocks in random order."""
    ground = Ground(MemoryLedgerStore(cached=cached))
    ledger = await ground.open(config)
    chance = random.Random(5)
    times, every = [], []
    for _ in range(entries):
        ground.scheduler.advance(1)
        times.append(ground.clock.now_ms())
        every += await append(ledger, [message(publish_time=chance.randrange(1, 10**13))])
    return ground, ledger, times, every


@pytest.mark.parametrize("cached", [True, False])
async def test_every_time_finds_its_entry_by_broker_timestamp_alone(cached):
    _, ledger, times, every = await timed(35, cached=cached)
    for time_ms, position in zip(times, every, strict=True):
        assert await ledger.position_for_time(time_ms) == position
        assert await ledger.position_for_time(time_ms - 1) == position
    assert await ledger.position_for_time(0) == every[0]
    assert await ledger.position_for_time(times[-1] + 1) == every[-1].next()


async def test_reads_grow_with_the_logarithm():
    _, ledger, times, _ = await timed(500)
    for time_ms in times[::50]:
        before = ledger.stats().entries_read_by_search
        await ledger.position_for_time(time_ms)
        assert ledger.stats().entries_read_by_search - before <= 9


async def test_publish_time_where_there_is_no_broker_timestamp():
    ground = Ground()
    ledger = await ground.open(KEEP)
    every = []
    for time_ms in (100, 200, 300, 400):
        every += await append(ledger, [message(publish_time=time_ms)])
    assert await ledger.position_for_time(300) == every[2]
    ledger.set_config(STAMPED)
    every += await append(ledger, [message(publish_time=1)])
    assert await ledger.position_for_time(401) == every[4]


async def test_a_publish_time_above_the_signed_range_is_late():
    ground = Ground()
    ledger = await ground.open(KEEP)
    every = await append(ledger, [message(publish_time=5), message(publish_time=2**64 - 1)])
    assert await ledger.position_for_time(6) == every[1]


@pytest.mark.parametrize("cached", [True, False])
async def test_entries_of_unknown_time_go_with_the_next(cached):
    ground = Ground(MemoryLedgerStore(cached=cached))
    ledger = await ground.open(KEEP)
    every = []
    for k in range(9):
        body = b"\xff\xff\xff\xff" if k in (3, 4) else message(publish_time=100 * k)
        every += await append(ledger, [body])
    ground.ledgers.corrupt.add(every[5])
    for k in (0, 1, 2, 7, 8):
        assert await ledger.position_for_time(100 * k) == every[k]
    assert await ledger.position_for_time(300) == await ledger.position_for_time(600) == every[3]
    assert await ledger.position_for_time(900) == every[8].next()


async def test_nothing_readable_to_the_end():
    ground = Ground()
    ledger = await ground.open(KEEP)
    every = await append(ledger, [message(publish_time=1), b"?", b"?"])
    assert await ledger.position_for_time(5) == every[1]


async def test_an_empty_topic():
    ledger = await Ground().open()
    assert await ledger.position_for_time(5) == Position(-1, 0)


async def test_trimmed_while_searching():
    ground, ledger, times, every = await timed(30, cached=False)
    read = ground.ledgers.read

    async def read_late(*arguments):
        ground.ledgers.read = read
        await ledger._trimmer.drop_up_to(every[9])
        return await read(*arguments)

    ground.ledgers.read = read_late
    assert await ledger.position_for_time(times[22]) == every[22]


async def test_the_searched_entry_is_dropped_while_searching():
    ground, ledger, times, every = await timed(30, cached=False)
    read = ground.ledgers.read

    async def read_late(*arguments):
        ground.ledgers.read = read
        await ledger.roll()
        await ledger._trimmer.drop_up_to(every[-1])
        return await read(*arguments)

    ground.ledgers.read = read_late
    assert await ledger.position_for_time(times[3]) == every[-1].next()
