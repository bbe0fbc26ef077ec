"""Appending, rolling, failing, trimming, ending: one managed ledger on the in-memory stores."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from magnetar.storage.errors import (
    ManagedLedgerClosedError,
    ManagedLedgerTerminatedError,
    NoSuchLedgerError,
    StorageFullError,
    StorageUnavailableError,
)
from magnetar.storage.managed.managed_ledger import AppendPiece
from magnetar.storage.position import EARLIEST, LATEST, Position
from tests.storage.managed_for_tests import KEEP, append, everything, message, opened, run_of, settle

DROP = dataclasses.replace(KEEP, retention_time_ms=0, retention_size_bytes=0)


FULL = StorageFullError("full")


async def test_expiry():
    ground, ledger = await opened(dataclasses.replace(KEEP, entry_timestamp=True))
    cursor = await ledger.open_cursor("c", "earliest")
    times = []
    for _ in range(15):
        ground.scheduler.advance(10)
        times.append(ground.clock.now_ms())
        await append(ledger, [message()])
    cursor.ack(ledger._ledgers.at(4))
    assert await ledger.expire(cursor, times[8]) == 7
    assert cursor.backlog_entries == 7
    assert await ledger.expire(cursor, times[8]) == 0
    assert await ledger.expire(cursor, times[14] + 1) == 7
    assert await ledger.expire(cursor, times[14] + 1) == 0


async def test_properties_are_durable():
    ground, ledger = await opened()
    await ledger.set_property("a", "b")
    await ledger.set_property("c", "d")
    await ledger.set_property("a", None)
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.set_property("c", "e")
    assert ledger.properties == {"c": "d"}
    assert (await ground.after_crash().open()).properties == {"c": "d"}


async def change_at_once(ground, ledger, values, failures):
    """Set one property to several values in the same moment; the first writes fail. Return the outcomes."""
    put, failing = ground.metadata.put, [FULL] * failures

    async def fail_first(*arguments):
        await settle(3)
        if failing:
            raise failing.pop()
        return await put(*arguments)

    ground.metadata.put = fail_first
    outcomes = await asyncio.gather(*(ledger.set_property("a", each) for each in values), return_exceptions=True)
    ground.metadata.put = put
    return outcomes


@pytest.mark.parametrize("values", [("c", "d"), (None, "d"), ("d", "d"), ("c", None)])
async def test_a_property_that_is_set_behind_a_change_that_fails_is_stored(values):
    ground, ledger = await opened()
    await ledger.set_property("a", "b")
    assert await change_at_once(ground, ledger, values, failures=1) == [FULL, None]
    assert ledger.properties.get("a") == values[1]
    assert (await ground.after_crash().open()).properties == ledger.properties


async def test_changes_of_a_property_that_fail_one_behind_the_other_leave_no_trace():
    ground, ledger = await opened()
    await ledger.set_property("a", "b")
    assert await change_at_once(ground, ledger, ("c", "d", None), failures=3) == [FULL] * 3
    assert ledger.properties == {"a": "b"}
    await ledger.set_property("e", "f")
    assert (await ground.after_crash().open()).properties == {"a": "b", "e": "f"}


async def test_a_change_of_a_property_whose_caller_was_cancelled_and_which_fails_leaves_no_trace():
    ground, ledger = await opened()
    await ledger.set_property("a", "b")
    ground.metadata.fail_writes = FULL
    changing = asyncio.ensure_future(ledger.set_property("a", "c"))
    await settle(1)
    changing.cancel()
    await asyncio.wait([changing])
    await settle()
    ground.metadata.fail_writes = None
    await ledger.set_property("e", "f")
    assert (await ground.after_crash().open()).properties == {"a": "b", "e": "f"}


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_caller_that_is_cancelled_while_a_property_is_removed_costs_the_log_nothing(turns):
    """The stored list has nothing new then, and no later save could tell it from the list of another owner."""
    ground, ledger = await opened()
    await ledger.set_property("a", "b")
    put = ground.metadata.put

    async def slow(*arguments):
        written = asyncio.ensure_future(put(*arguments))
        await settle(3)
        return await asyncio.shield(written)

    ground.metadata.put = slow
    removing = asyncio.ensure_future(ledger.set_property("a", None))
    await settle(turns)
    removing.cancel()
    await asyncio.wait([removing])
    await ledger.set_property("c", "d")
    assert ledger.properties == {"c": "d"}
    await ledger.close()


async def test_a_closed_log_follows_no_configuration():
    """The topics of a change of policies may close before their turns."""
    _, ledger = await opened()
    await append(ledger, [message()])
    await ledger.close()
    before = ledger.config
    ledger.set_config(DROP)
    assert ledger.config == before


async def test_a_close_waits_for_the_end_that_is_being_stored():
    """Behind the close the save would take the list from the next instance of the log."""
    ground, ledger = await opened()
    (position,) = await append(ledger, [message()])
    writer, sealed = ledger._appender.current.writer, asyncio.Event()
    close = writer.close

    async def slow():
        await sealed.wait()
        return await close()

    writer.close = slow
    ending = asyncio.ensure_future(ledger.terminate())
    await settle()
    closing = asyncio.ensure_future(ledger.close())
    await settle()
    assert not closing.done()
    sealed.set()
    await closing
    assert await ending == position
    assert (await ground.open()).end == position


async def test_calls_that_are_late_find_a_closed_log():
    _, ledger = await opened()
    await append(ledger, [message()])
    await ledger.close()
    await ledger.roll()
    ledger.give_up_creation()
    assert ledger.stats().state == "CLOSED"


async def test_many_properties_are_one_transaction():
    ground, ledger = await opened()
    await ledger.change_properties(lambda _: {"a": "b", "c": "d"})
    writes = []
    put = ground.metadata.put

    async def counted(*args):
        writes.append(args)
        return await put(*args)

    ground.metadata.put = counted
    await ledger.change_properties(lambda _: {f"k{i}": "v" for i in range(1000)} | {"a": None})
    assert len(writes) == 1
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.change_properties(lambda _: {"c": "e", "k1": None, "new": "x"})
    assert ledger.properties == {"c": "d"} | {f"k{i}": "v" for i in range(1000)}
    assert (await ground.after_crash().open()).properties == ledger.properties


async def test_a_change_of_properties_that_fails_takes_back_nothing_of_a_later_change():
    ground, ledger = await opened()
    put, calls, go_on = ground.metadata.put, [], asyncio.Event()

    async def fail_first(*args):
        calls.append(args)
        if len(calls) == 1:
            await go_on.wait()
            raise FULL
        return await put(*args)

    ground.metadata.put = fail_first
    failing = asyncio.ensure_future(ledger.change_properties(lambda _: {"a": "1", "b": "1"}))
    await settle()
    later = asyncio.ensure_future(ledger.change_properties(lambda _: {"a": "2"}))
    await settle()
    go_on.set()
    with pytest.raises(StorageFullError):
        await failing
    await later
    assert ledger.properties == {"a": "2"}
    assert (await ground.after_crash().open()).properties == {"a": "2"}


async def test_positions():
    _, ledger = await opened()
    every = await append(ledger, [b"x"] * 12)
    assert ledger.next_valid(every[9]) == every[10]
    assert ledger.previous(every[10]) == every[9]
    assert ledger.entries_between(every[2], every[11]) == 9
    assert not ledger.is_valid(Position(0, 10))
    assert ledger.stats().entries == 12


async def test_a_new_cursor_at_a_position():
    _, ledger = await opened()
    every = await append(ledger, [b"x"] * 12)
    assert (await ledger.open_cursor("a", every[4])).backlog_entries == 8
    assert (await ledger.open_cursor("b", "latest")).backlog_entries == 0
    assert ledger.new_read_cursor(LATEST).backlog_entries == 0


async def test_two_callers_that_open_the_same_cursor_share_it():
    _, ledger = await opened()
    one, other = await asyncio.gather(ledger.open_cursor("a"), ledger.open_cursor("a"))
    assert one is other


async def test_terminate():
    ground, ledger = await opened()
    every = await append(ledger, [b"x"] * 3)
    ground.ledgers.hold()
    results = []
    ledger.append(run_of([b"y"]), results.append)
    terminating = asyncio.ensure_future(ledger.terminate())
    await settle()
    ledger.append(run_of([b"z"]), results.append)
    ground.ledgers.release()
    assert await terminating == Position(0, 3)
    assert results[0].error is None
    assert isinstance(results[1].error, ManagedLedgerTerminatedError)
    assert await ledger.terminate() == Position(0, 3)
    ground = await ground.restart()
    ledger = await ground.open()
    assert ledger.terminated
    assert await ledger.terminate() == Position(0, 3)
    with pytest.raises(ManagedLedgerTerminatedError):
        await append(ledger, [b"z"])
    assert len(await everything(ledger)) == len(every) + 1


async def test_a_termination_that_cannot_be_stored_may_be_tried_again():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.terminate()
    ground.metadata.fail_writes = None
    assert await ledger.terminate() == Position(0, 0)
    assert (await ground.after_crash().open()).terminated


AWAY = StorageUnavailableError("away")


@pytest.mark.parametrize("entries", [3, 0])
async def test_a_termination_whose_ledger_cannot_be_closed_may_be_tried_again(entries):
    ground, ledger = await opened()
    await ledger.ensure_ledger()
    if entries:
        await append(ledger, [b"x"] * entries)
    ground.ledgers.fail_closes = ground.metadata.fail_writes = AWAY
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            await ledger.terminate()
    with pytest.raises(ManagedLedgerTerminatedError):
        await append(ledger, [b"y"])
    ground.ledgers.fail_closes = None
    with pytest.raises(StorageUnavailableError):
        await ledger.terminate()
    crashed = await ground.after_crash().open()
    assert (crashed.terminated, crashed.entries) == (False, entries), "without a stored end the topic goes on"
    ground.metadata.fail_writes = None
    assert await ledger.terminate() == Position(0, entries - 1)
    assert all(slot.closed_at_ms for slot in ledger.ledgers)
    assert len(await ground.ledgers.list_ledgers()) == len(ledger.ledgers) == (1 if entries else 0)
    again = await ground.after_crash().open()
    assert again.terminated
    assert await again.terminate() == Position(0, entries - 1)
    assert len(await everything(again)) == entries


@pytest.mark.parametrize("failing", ["closes", "writes"])
async def test_a_repeated_termination_deletes_the_ledger_made_ahead(failing):
    ground, ledger = await opened()
    await append(ledger, [b"x"] * (KEEP.max_entries_per_ledger - 1))
    await settle()
    assert len(await ground.ledgers.list_ledgers()) == 2, "one is made ahead"
    ground.ledgers.fail_closes = AWAY if failing == "closes" else None
    ground.metadata.fail_writes = AWAY if failing == "writes" else None
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            await ledger.terminate()
    ground.ledgers.fail_closes = ground.metadata.fail_writes = None
    await ledger.terminate()
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in ledger.ledgers] == [0]


async def test_a_deletion_that_failed_can_be_repeated():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.metadata.fail_writes = AWAY
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            await ledger.delete()
    ground.metadata.fail_writes = None
    await ledger.delete()
    assert await ground.ledgers.list_ledgers() == []


@pytest.mark.parametrize("held", [1, 2])
async def test_terminations_follow_each_other(held, monkeypatch):
    """A termination waits until the termination before it has stored the end, and the ledger is closed once."""
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    put, gate, writes, recovered = ground.metadata.put, asyncio.Event(), [], []
    recover = ground.ledgers.open_recover

    async def put_held(*args):
        writes.append(args)
        if len(writes) == held:
            await gate.wait()
            raise AWAY
        return await put(*args)

    async def recover_noted(ledger_id):
        recovered.append(ledger_id)
        return await recover(ledger_id)

    monkeypatch.setattr(ground.metadata, "put", put_held)
    monkeypatch.setattr(ground.ledgers, "open_recover", recover_noted)
    first = asyncio.create_task(ledger.terminate())
    await settle()
    second = asyncio.create_task(ledger.terminate())
    await settle()
    assert len(writes) == held
    assert not second.done()
    assert not recovered
    gate.set()
    with pytest.raises(StorageUnavailableError):
        await first
    assert await second == Position(0, 0)
    assert (await ground.after_crash().open()).terminated


async def test_the_end_of_a_topic_is_behind_entries_whose_appends_failed():
    """A store may keep entries whose appends it reported as failed."""
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.ledgers.hold()
    results = []
    ledger.append(run_of([b"kept"]), results.append)
    await settle()
    writer = ground.ledgers._ledgers[0]
    slab = writer._pending[0][0]
    ground.ledgers.fail_appends = FULL
    ground.ledgers.release()
    await settle()
    assert results[0].error is FULL
    writer._confirm(slab)
    assert await ledger.terminate() == Position(0, 1)
    assert ledger.ledgers[-1].closed_at_ms
    assert len(await everything(ledger)) == 2


async def test_close_finishes_pending_appends_and_refuses_later_ones():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 9)
    ground.ledgers.hold()
    results = []
    ledger.append(run_of([b"y"] * 3), results.append)
    closing = asyncio.ensure_future(ledger.close())
    await settle()
    assert not closing.done()
    ground.ledgers.release()
    await closing
    await ledger.close()
    assert results[0].pieces == [AppendPiece(0, 9, 0, 1)]
    assert isinstance(results[0].error, ManagedLedgerClosedError)
    with pytest.raises(ManagedLedgerClosedError):
        await append(ledger, [b"z"])
    with pytest.raises(ManagedLedgerClosedError):
        await ledger.open_cursor("c")
    assert await ground.ledgers.list_ledgers() == [0]
    again = await ground.open()
    assert (again is not ledger, again.entries) == (True, 10)


async def test_close_on_a_full_disk_loses_nothing_confirmed():
    ground, ledger = await opened()
    cursor = await ledger.open_cursor("c", "earliest")
    every = await append(ledger, [b"x"] * 5)
    cursor.ack(every[0])
    ground.metadata.fail_writes = FULL
    await ledger.close()
    ground.metadata.fail_writes = None
    again = await ground.open()
    assert again.entries == 5
    assert again.cursors["c"].backlog_entries in (4, 5)


async def test_an_empty_topic_can_be_given_its_first_ledger():
    _, ledger = await opened()
    assert await ledger.ensure_ledger() == Position(0, -1)
    assert await ledger.ensure_ledger() == Position(0, -1)
    await append(ledger, [b"x"])
    assert await ledger.ensure_ledger() == ledger.position_at(0) == Position(0, 0)
    await ledger.close()
    _, ledger = await opened()
    await ledger.terminate()
    assert await ledger.ensure_ledger() == EARLIEST


async def test_a_terminated_topic_keeps_the_name_of_its_empty_ledger():
    ground, ledger = await opened()
    await ledger.ensure_ledger()
    for _ in range(2):
        assert await ledger.terminate() == await ledger.ensure_ledger() == Position(0, -1)
        assert not ledger.ledgers
        ground = await ground.restart()
        ledger = await ground.open()


async def test_the_end_of_a_consumed_topic_is_its_empty_ledger():
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("c", "earliest")
    every = await append(ledger, [b"x"])
    cursor.ack_cumulative(every[-1])
    await ledger.close()
    ledger = await ground.open(DROP)
    await ledger.trim(ground.clock.now_ms())
    await ledger.ensure_open_ledger()
    newest = ledger.ledgers[-1].ledger_id
    assert [slot.ledger_id for slot in ledger.ledgers] == [newest] != [0]
    assert await ledger.terminate() == await ledger.ensure_ledger() == Position(newest, -1)
    ledger = await (await ground.restart()).open()
    assert await ledger.terminate() == await ledger.ensure_ledger() == Position(newest, -1)
    assert not ledger.cursors["c"].has_more


async def test_the_ledger_of_the_next_append_can_be_opened_beforehand():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    await ledger.close()
    again = await ground.open()
    assert [slot.ledger_id for slot in again.ledgers] == [0]
    for _ in range(2):
        await again.ensure_open_ledger()
        assert [(slot.entries, slot.closed_at_ms > 0) for slot in again.ledgers] == [(1, True), (0, False)]
    assert again.last_confirmed == Position(0, 0)
    await append(again, [b"y"])
    assert again.last_confirmed == Position(again.ledgers[-1].ledger_id, 0)
    await again.terminate()
    await again.ensure_open_ledger()
    assert again.ledgers[-1].closed_at_ms > 0


async def test_closing_with_a_ledger_ahead_or_an_empty_one_leaves_nothing_behind():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 8)
    await settle()
    await ledger.close()
    assert await ground.ledgers.list_ledgers() == [0]
    ground, ledger = await opened()
    await ledger.ensure_ledger()
    await ledger.roll()
    assert await ground.ledgers.list_ledgers() == []
    await ledger.ensure_ledger()
    await ledger.close()
    assert await ground.ledgers.list_ledgers() == []


async def test_a_failing_read_of_an_existing_entry_raises():
    ground, ledger = await opened(cached=False)
    every = await append(ledger, [b"x"] * 3)
    cursor = ledger.new_read_cursor(EARLIEST)
    await ground.ledgers.delete(0)
    with pytest.raises(NoSuchLedgerError):
        await cursor.read(1, 1)
    with pytest.raises(NoSuchLedgerError):
        await cursor.read_positions(every)
    with pytest.raises(NoSuchLedgerError):
        await ledger.position_for_time(1)
