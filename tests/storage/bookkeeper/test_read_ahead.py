"""Chunks are read only for a reader that goes through a ledger, the next chunk before its request."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import ReadFailedError
from magnetar.bookkeeper.wire.entries import Entry
from magnetar.bookkeeper.wire.packed_batches import records_of_entries
from magnetar.storage.bookkeeper.read_ahead import CHUNK_BYTES, ReadAhead
from magnetar.storage.entry_cache import EntryCache

SIZE = 1000
CHUNK = CHUNK_BYTES // SIZE


class Reader:
    """A ledger of entries of 1,000 bytes, which records its reads; a read takes one turn of the loop."""

    def __init__(self, entries=10_000, ledger_id=7):
        self.ledger_id, self.last_add_confirmed = ledger_id, entries - 1
        self.reads = []
        self.failing = 0

    async def read_records(self, first, last, max_bytes):
        self.reads.append((first, last))
        await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            raise ReadFailedError(self.ledger_id, first, "not now")
        end = min(last + 1, first + max(max_bytes // SIZE, 1), self.last_add_confirmed + 1)
        return records_of_entries(
            Entry(self.ledger_id, n, n - 1, n * SIZE, memoryview(bytes(SIZE))) for n in range(first, end)
        )


class World:
    def __init__(self, **named):
        self.reader = Reader(**named)
        self.cache = EntryCache(64 << 20)
        self.ahead = ReadAhead(self.cache)

    async def read(self, first, count=100):
        """Read as the store does, from the cache, else from the ledger; return how many entries from `first` on were
        found, at most `count`.
        """
        slab = self.cache.get(self.reader.ledger_id, first)
        if slab is None:
            last = min(first + count - 1, self.reader.last_add_confirmed)
            slab = await self.ahead.read(self.reader, first, last, CHUNK_BYTES)
        else:
            self.ahead.touched(slab)
        return min(slab.last_entry_id + 1 - first, count)

    async def settle(self):
        for _ in range(10):
            await asyncio.sleep(0)


async def test_single_reads_take_only_their_entries():
    world = World()
    for first in (0, 500, 90, 3000):
        await world.read(first, 1)
    assert world.reader.reads == [(0, 0), (500, 500), (90, 90), (3000, 3000)]
    assert not world.ahead._running


async def test_a_reader_that_goes_through_the_ledger_waits_twice():
    world = World()
    at = 0
    waited = 0
    while at <= world.reader.last_add_confirmed:
        waited += world.cache.peek(7, at) is None
        at += await world.read(at)
        await world.settle()
    assert at == 10_000
    assert waited == 2  # the first hundred entries, and the first chunk
    starts = [first for first, _ in world.reader.reads]
    assert starts == sorted(set(starts))
    assert len(starts) == 2 + -(-(10_000 - 100 - CHUNK) // CHUNK)


async def test_there_is_one_chunk_ahead_and_no_more():
    world = World()
    await world.read(0)
    await world.read(100)
    await world.settle()
    assert [first for first, _ in world.reader.reads] == [0, 100, 100 + CHUNK]
    for _ in range(5):
        await world.read(200)
        await world.settle()
    assert len(world.reader.reads) == 3


async def test_a_read_during_the_read_of_its_chunk_waits_for_the_chunk():
    world = World()
    await world.read(0)
    await world.read(100)
    assert await asyncio.gather(*(world.read(100 + CHUNK) for _ in range(3))) == [100] * 3
    assert [first for first, _ in world.reader.reads][:3] == [0, 100, 100 + CHUNK]
    assert len(world.reader.reads) <= 4  # and the chunk behind it


async def test_a_chunk_that_could_not_be_read_is_read_when_it_is_wanted():
    world = World()
    await world.read(0)
    world.reader.failing = 0
    await world.read(100)
    world.reader.failing = 1
    await world.settle()
    assert await world.read(100 + CHUNK) == 100
    world.reader.failing = 1
    with pytest.raises(ReadFailedError):
        await world.ahead.read(world.reader, 5000, 5000, 1)


async def test_readers_are_remembered_within_limits():
    world = World()
    for number in range(1500):
        await world.ahead.read(Reader(ledger_id=number), 0, 0, 1)
    assert len(world.ahead._expected) == 1000
    world.ahead.forget(1499)
    assert 1499 not in world.ahead._expected
    await world.ahead.close()
