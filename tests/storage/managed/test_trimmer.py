"""Trimming: consumed ledgers, retention, expiry by time."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from magnetar.storage.errors import (
    ManagedLedgerClosedError,
    NoSuchEntryError,
    StorageFullError,
)
from magnetar.storage.position import EARLIEST, Position
from tests.storage.managed_for_tests import KEEP, append, everything, opened, read_all, settle

DROP = dataclasses.replace(KEEP, retention_time_ms=0, retention_size_bytes=0)


FULL = StorageFullError("full")


async def test_consumed_ledgers_go_when_the_next_one_is_begun():
    ground, ledger = await opened(DROP)
    slow, fast = await ledger.open_cursor("slow", "earliest"), await ledger.open_cursor("fast", "earliest")
    reader = ledger.new_read_cursor(EARLIEST)
    every = await append(ledger, [b"x"] * 25)
    reader.ack(every[3])
    fast.ack_cumulative(every[-1])
    slow.ack_cumulative(every[8])
    await settle()
    assert len(ledger.ledgers) == 3
    slow.ack(every[9])
    await settle()
    assert len(ledger.ledgers) == 3, "all of the first is consumed, and still there for newcomers"
    slow.ack(every[10])
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1, 2]
    assert (reader.mark_delete, reader.backlog_entries) == (every[9], 15)
    assert ledger.first_position == every[10]
    assert 0 not in await ground.ledgers.list_ledgers()
    with pytest.raises(NoSuchEntryError):
        await ledger.read_entry(every[0])
    await ledger.delete_cursor("slow")
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [2]


async def test_a_full_ledger_stays_when_all_its_entries_are_acknowledged_at_once():
    _, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("s", "earliest")
    every = await append(ledger, [b"x"] * 12)
    cursor.ack_many(every[:10])
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [0, 1], "a cursor without acknowledgements left no ledger"
    cursor.ack_many(every[10:])
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1]


async def test_the_ledger_that_was_closed_last_stays_for_readers_close_behind():
    ground, ledger = await opened(DROP)
    reader = ledger.new_read_cursor(EARLIEST)
    every = await append(ledger, [b"x"] * 12)
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [0, 1], "no durable cursor needs the full ledger"
    assert reader.backlog_entries == 12
    every += await append(ledger, [b"x"] * 10)
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1, 2], "the next ledger is full"
    assert reader.backlog_entries == 12
    assert await ledger.trim(ground.clock.now_ms()) == [1], "the periodic trim keeps none"


async def test_a_trim_without_a_bound_drops_also_the_ledger_that_was_closed_last():
    _, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("s", "earliest")
    every = await append(ledger, [b"x"] * 9)
    cursor.ack_many(every)
    await settle()
    cursor.ack_many(await append(ledger, [b"x"] * 3))  # the roll and the move of the cursor ask for one trim
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1]


async def test_a_cursor_that_enters_the_next_ledger_leaves_the_consumed_ledger():
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("s", "earliest")
    every = await append(ledger, [b"x"] * 10)
    cursor.ack_cumulative(every[9])
    cursor.enter_next_ledger()
    assert cursor.mark_delete == every[9], "no entry follows"
    every += await append(ledger, [b"x"] * 3)
    cursor.enter_next_ledger()
    assert (cursor.mark_delete, cursor.backlog_entries) == (Position(1, -1), 3)
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1]
    cursor.ack(every[11])
    cursor.enter_next_ledger()
    ground = await ground.restart()
    cursor = await (await ground.open(DROP)).open_cursor("s")
    assert (cursor.mark_delete, cursor.backlog_entries) == (Position(1, -1), 2)


async def test_a_lower_retention_drops_nothing_before_the_next_trim():
    ground, ledger = await opened(dataclasses.replace(KEEP, retention_time_ms=-1))
    await append(ledger, [b"x"] * 25)
    ledger.set_config(DROP)
    await settle()
    assert len(ledger.ledgers) == 3
    ground.scheduler.advance(1)
    assert await ledger.trim(ground.clock.now_ms()) == [0, 1]


async def test_retention_keeps_and_time_drops():
    ground, ledger = await opened(dataclasses.replace(KEEP, retention_time_ms=60_000))
    await append(ledger, [b"x"] * 25)
    assert await ledger.trim(ground.clock.now_ms()) == []
    ground.scheduler.advance(61)
    assert await ledger.trim(ground.clock.now_ms()) == [0, 1]
    ledger.set_config(DROP)
    await ledger.roll()
    await settle()
    assert await ledger.trim(ground.clock.now_ms()) == [2]
    assert ledger.entries == 0
    assert ledger.last_confirmed == Position(2, 4)


async def test_the_index_goes_on_when_every_entry_is_gone():
    ground, ledger = await opened(DROP)
    await append(ledger, [b"x"] * 10, [2] * 10)
    await settle()
    await ledger.trim(ground.clock.now_ms())
    assert ledger.entries == 0
    ground = await ground.restart()
    ledger = await ground.open(DROP)
    assert (ledger.last_confirmed, await ledger.read_last_entry()) == (EARLIEST, None)
    await append(ledger, [b"y"])
    assert ledger.stats().last_index == 20


async def test_a_list_that_cannot_be_stored_drops_nothing():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 25)
    ledger.set_config(DROP)
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.trim(ground.clock.now_ms())
    assert len(ledger.ledgers) == 3
    assert len(await everything(ledger)) == 25
    ground.metadata.fail_writes = None
    assert await ledger.trim(ground.clock.now_ms()) == [0, 1]


async def test_truncate():
    ground, ledger = await opened()
    cursor = await ledger.open_cursor("c", "earliest")
    await append(ledger, [b"x"] * 25)
    await ledger.truncate()
    assert (ledger.entries, cursor.backlog_entries, [slot.ledger_id for slot in ledger.ledgers]) == (5, 0, [2])
    again = await ground.after_crash().open()
    assert again.cursors["c"].backlog_entries == 0
    await append(ledger, [b"y"])
    assert [body for _, body, _ in await read_all(cursor)] == [b"y"]


async def test_truncate_of_a_terminated_log_keeps_its_last_ledger():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 25)
    await ledger.terminate()
    await ledger.truncate()
    assert (ledger.entries, [slot.ledger_id for slot in ledger.ledgers]) == (5, [2])
    again = await ground.after_crash().open()
    await again.truncate()
    assert (again.entries, again.terminated) == (5, True)


async def test_truncate_keeps_entries_that_are_appended_meanwhile():
    _, ledger = await opened()
    cursor = await ledger.open_cursor("c", "earliest")
    await append(ledger, [b"x"] * 15)
    truncating = asyncio.create_task(ledger.truncate())
    await asyncio.sleep(0)
    await append(ledger, [b"y"] * 10)
    await truncating
    assert [body for _, body, _ in await read_all(cursor)] == [b"y"] * 10


async def test_entries_behind_a_position_with_properties_stay_until_the_position_is_stored():
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("sequences", "earliest")
    every = await append(ledger, [b"x"] * 15)
    ground.ledgers.fail_appends = ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await cursor.mark_delete_with(every[12], {"p": 12})
    await settle()
    assert await ledger.trim(ground.clock.now_ms()) == []
    found = await ground.after_crash().open(DROP)
    assert found.cursors["sequences"].position_properties == {}
    assert found.first_position == every[0], "the properties are made again from the entries"
    ground.ledgers.fail_appends = ground.metadata.fail_writes = None
    await cursor.mark_delete_with(every[13], {"p": 13})
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1]


async def test_a_trim_whose_caller_is_cancelled_ends_as_a_whole(monkeypatch):
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 25)
    ledger.set_config(DROP)
    put, stored = ground.metadata.put, asyncio.Event()

    async def slow_put(*args):
        version = await put(*args)
        await stored.wait()
        return version

    monkeypatch.setattr(ground.metadata, "put", slow_put)
    trimming = asyncio.ensure_future(ledger.trim(ground.clock.now_ms()))
    await settle()
    trimming.cancel()
    await settle()
    stored.set()
    await settle()
    assert await ground.ledgers.list_ledgers() == [2]
    await append(ledger, [b"y"] * 10)
    await settle()
    assert not await ledger.is_taken_over()


async def test_a_trim_that_waits_while_the_log_closes_drops_nothing(monkeypatch):
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("c", "earliest")
    ground.ledgers.fail_closes = FULL
    every = await append(ledger, [b"x"] * 15)
    await settle()
    ground.ledgers.fail_closes = None
    cursor.ack_cumulative(every[-1])
    open_recover, begun = ground.ledgers.open_recover, asyncio.Event()

    async def slow_open_recover(ledger_id):
        await begun.wait()
        return await open_recover(ledger_id)

    with monkeypatch.context() as patched:
        patched.setattr(ground.ledgers, "open_recover", slow_open_recover)
        trimming = asyncio.ensure_future(ledger.trim(ground.clock.now_ms()))
        await settle()
    await ledger.close()
    again = await ground.open(DROP)
    begun.set()
    assert await trimming == []
    assert not await again.is_taken_over()
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in again.ledgers]


async def test_a_truncate_that_waits_while_the_log_closes_drops_nothing(monkeypatch):
    ground, ledger = await opened(KEEP)
    ground.ledgers.fail_closes = FULL
    await append(ledger, [b"x"] * 15)
    await settle()
    ground.ledgers.fail_closes = None
    open_recover, begun = ground.ledgers.open_recover, asyncio.Event()

    async def slow_open_recover(ledger_id):
        await begun.wait()
        return await open_recover(ledger_id)

    with monkeypatch.context() as patched:
        patched.setattr(ground.ledgers, "open_recover", slow_open_recover)
        truncating = asyncio.ensure_future(ledger.truncate())
        await settle()
    await ledger.close()
    again = await ground.open(KEEP)
    begun.set()
    with pytest.raises(ManagedLedgerClosedError):
        await truncating
    assert not await again.is_taken_over()
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in again.ledgers]


async def test_truncate_goes_on_when_a_cursor_is_deleted_meanwhile(monkeypatch):
    _, ledger = await opened(KEEP)
    first, second = [await ledger.open_cursor(name, "earliest") for name in ("first", "second")]
    await append(ledger, [b"x"] * 25)
    flush, begun = first.flush, asyncio.Event()

    async def slow_flush():
        await begun.wait()
        await flush()

    monkeypatch.setattr(first, "flush", slow_flush)
    truncating = asyncio.ensure_future(ledger.truncate())
    await settle()
    await ledger.delete_cursor("second")
    begun.set()
    await truncating
    assert (first.backlog_entries, [slot.ledger_id for slot in ledger.ledgers]) == (0, [2])
    assert second.is_closed


async def test_an_acknowledged_ledger_makes_room_when_a_failed_append_has_ended_it():
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("s", "earliest")
    every = await append(ledger, [b"x"] * 5)
    ground.ledgers.fail_appends = FULL
    with pytest.raises(StorageFullError):
        await append(ledger, [b"y"])
    cursor.ack_many(every)
    await settle()
    assert 0 in await ground.ledgers.list_ledgers()
    ledger.ready_to_create_new_ledger()
    with pytest.raises(StorageFullError):
        await append(ledger, [b"y"])
    await settle()
    assert 0 not in await ground.ledgers.list_ledgers()


async def test_a_crash_leaves_no_acknowledgement_of_several_entries_in_part():
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("s", "earliest")
    every = await append(ledger, [b"x"] * 25)
    cursor.ack_many([*every[:4], *every[5:14]])
    await cursor.flush()
    cursor.ack_many([every[4], every[20]])
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1, 2]
    found = (await ground.after_crash().open(DROP)).cursors["s"]
    assert found.is_deleted(every[4]) == found.is_deleted(every[20])


async def test_a_cursor_that_is_set_back_while_it_is_saved_keeps_its_ledgers(monkeypatch):
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("s", "earliest")
    every = await append(ledger, [b"x"] * 25)
    flush, begun = cursor.flush, asyncio.Event()

    async def slow_flush():
        await begun.wait()
        await flush()

    monkeypatch.setattr(cursor, "flush", slow_flush)
    cursor.ack_cumulative(every[-1])
    await settle()
    resetting = asyncio.ensure_future(cursor.reset(EARLIEST))
    await settle()
    begun.set()
    await resetting
    await settle()
    assert (cursor.backlog_entries, len(ledger.ledgers)) == (25, 3)
    assert await ledger.trim(ground.clock.now_ms()) == []


async def test_a_trim_goes_on_when_a_cursor_is_deleted_meanwhile(monkeypatch):
    ground, ledger = await opened(DROP)
    first, second = [await ledger.open_cursor(name, "earliest") for name in ("first", "second")]
    every = await append(ledger, [b"x"] * 15)
    for cursor in (first, second):
        cursor.ack_cumulative(every[4])
        await cursor.flush()
    put, stored = ground.metadata.put, asyncio.Event()

    async def slow_put(*args):
        await stored.wait()
        return await put(*args)

    with monkeypatch.context() as patched:
        patched.setattr(ground.metadata, "put", slow_put)
        for cursor in (first, second):
            cursor.ack_cumulative(every[12])
        trimming = asyncio.ensure_future(ledger.trim(ground.clock.now_ms()))
        await settle()
        deleting = asyncio.ensure_future(ledger.delete_cursor("second"))
        await settle()
        stored.set()
        await trimming
        await deleting
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1]


async def test_acknowledged_ledgers_make_room_although_no_cursor_can_be_saved(monkeypatch):
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("s", "earliest")
    every = await append(ledger, [b"x"] * 15)

    async def fails():
        raise FULL

    monkeypatch.setattr(cursor, "flush", fails)
    cursor.ack_cumulative(every[12])
    assert await ledger.trim(ground.clock.now_ms()) == [0]


@pytest.mark.parametrize("retention_size_bytes", [0, -1], ids=["consumed", "retained"])
async def test_a_move_of_one_of_many_cursors_does_not_look_at_all_of_them(monkeypatch, retention_size_bytes):
    """Each move to another ledger compared all cursors: 10 ms of the loop for 20,000 subscriptions, and an expiry for
    all of them took minutes.
    """
    config = dataclasses.replace(
        DROP, retention_size_bytes=retention_size_bytes, retention_time_ms=retention_size_bytes
    )
    _, ledger = await opened(config)
    cursors = [await ledger.open_cursor(f"s{number}", "earliest") for number in range(50)]
    every, looks, released = await append(ledger, [b"x"] * 12), [0], type(cursors[0]).released

    def counted(cursor):
        looks[0] += 1
        return released.fget(cursor)

    monkeypatch.setattr(type(cursors[0]), "released", property(counted))
    for number in (*range(1, 50), 0):
        cursors[number].ack_cumulative(every[-1])
        await settle()
    assert looks[0] < 6 * len(cursors)
    assert [slot.ledger_id for slot in ledger.ledgers] == ([1] if retention_size_bytes == 0 else [0, 1])
