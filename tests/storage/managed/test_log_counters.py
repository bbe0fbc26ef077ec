"""The counts of a managed ledger: real reads, failures, saves of cursors and new ledgers."""

from __future__ import annotations

import pytest

from magnetar.storage.errors import CorruptEntryError, StorageFullError, WriteFailedError
from magnetar.storage.managed.log_counters import LogCounts
from magnetar.storage.position import EARLIEST, Position
from tests.storage.managed_for_tests import append, opened, read_all, settle


async def test_entries_that_the_cache_has_are_no_reads():
    ground, ledger = await opened()
    await append(ledger, [b"x" * 50] * 4)
    await read_all(ledger.new_read_cursor(EARLIEST))
    assert ledger.counters.counts() == LogCounts()
    ground.ledgers.cached = False
    found = await read_all(ledger.new_read_cursor(EARLIEST), max_entries=3)
    size = sum(len(body) for _, body, _ in found)
    counts = ledger.counters.counts()
    assert counts.read_entries == 4
    assert size <= counts.read_bytes < size + 4 * 32
    await ledger.read_entry(Position(0, 1))
    await ledger.new_read_cursor(EARLIEST).read_positions([Position(0, 0), Position(0, 3)])
    more = ledger.counters.counts().since(counts)
    assert (more.read_entries, more.read_bytes) == (3, counts.read_bytes * 3 // 4)


async def test_a_damaged_entry_is_a_failed_read():
    ground, ledger = await opened(cached=False)
    await append(ledger, [b"x"] * 2)
    ground.ledgers.corrupt.add(Position(0, 0))
    with pytest.raises(CorruptEntryError):
        await ledger.new_read_cursor(EARLIEST).read(2, 1 << 20)
    with pytest.raises(CorruptEntryError):
        await ledger.read_entry(Position(0, 0))
    assert ledger.counters.counts() == LogCounts(failed_reads=2)


async def test_each_entry_of_a_failed_append_counts():
    ground, ledger = await opened()
    ground.ledgers.fail_appends = StorageFullError("full")
    with pytest.raises(StorageFullError):
        await append(ledger, [b"x"] * 3)
    with pytest.raises(WriteFailedError):
        await append(ledger, [b"x"])
    assert ledger.counters.counts() == LogCounts(failed_appends=4)


async def test_a_save_of_a_cursor_is_a_mark_delete_however_many_acknowledgements_it_has():
    _, ledger = await opened()
    cursor = await ledger.open_cursor("s", "earliest")
    places = await append(ledger, [b"x"] * 4)
    for place in places[:3]:
        cursor.ack(place)
    assert ledger.counters.mark_deletes == 0
    await cursor.flush()
    assert ledger.counters.mark_deletes == 1
    await cursor.flush()
    cursor.ack(places[3])
    await cursor.flush()
    assert ledger.counters.mark_deletes == 2


async def test_every_ledger_behind_the_first_is_a_switch_with_the_time_of_its_creation():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    assert ledger.counters.switches_ms == ()
    create = ground.ledgers.create

    async def slow(properties):
        ground.clock.time_s += 0.25
        return await create(properties)

    ground.ledgers.create = slow
    await ledger.roll()
    await append(ledger, [b"x"])
    assert ledger.counters.switches_ms == (250,)
    await append(ledger, [b"x"] * 8)
    await settle()
    assert ledger.counters.switches_ms == (250, 250)


async def test_the_times_of_switches_have_a_bound():
    _, ledger = await opened()
    for _ in range(1_002):
        ledger.counters.ledger_listed(0.001)
    assert ledger.counters.switches_ms == (1.0,) * 1_000
