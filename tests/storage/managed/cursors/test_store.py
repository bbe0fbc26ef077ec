"""Saving and finding a cursor's state: sharing, time, rolling, damage, failures, other owners."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from structlog.testing import capture_logs

from magnetar.storage.errors import (
    LedgerListError,
    NoSuchCursorError,
    StorageClosedError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from magnetar.storage.managed.cursors.state import encode_entries, encode_increment
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo
from magnetar.storage.managed.stored_layout import OwnLayout
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import KEEP, NAME, Ground, append, settle
from tests.storage.records_for_tests import slab_of

PATH = cursor_path(NAME, "s")


async def opened(config=KEEP, entries=40):
    ground = Ground()
    ledger = await ground.open(config)
    every = await append(ledger, [b"%d" % k for k in range(entries)])
    cursor = await ledger.open_cursor("s", "earliest", {"owner": "me"})
    return ground, ledger, cursor, every


async def record(ground):
    return ManagedCursorInfo.FromString((await ground.metadata.get(PATH))[0])


def saves(cursor):
    return cursor._saver._store.saves


async def after_crash(ground, config=KEEP):
    ground = ground.after_crash()
    ledger = await ground.open(config)
    return ground, ledger, ledger.cursors["s"]


async def test_a_new_cursor_has_no_ledger_of_its_own():
    ground, ledger, cursor, every = await opened()
    assert (await record(ground)).cursorsLedgerId == -1
    assert await ledger.open_cursor("s", "latest") is cursor
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in ledger.ledgers]
    _, _, cursor = await after_crash(ground)
    assert cursor.backlog_entries == 40
    assert cursor.cursor_properties == {"owner": "me"}
    assert cursor.mark_delete < every[0]


async def test_the_first_save_creates_the_cursor_ledger_and_close_removes_it():
    ground, ledger, cursor, every = await opened()
    cursor.ack_many(every[0:20:2])
    await cursor.flush()
    found = await record(ground)
    assert found.cursorsLedgerId in await ground.ledgers.list_ledgers()
    assert Position(found.markDeleteLedgerId, found.markDeleteEntryId) == every[0]
    ground = await ground.restart()
    found = await record(ground)
    assert found.cursorsLedgerId == -1
    ledger = await ground.open()
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in ledger.ledgers]
    assert ledger.cursors["s"].backlog_entries == 30
    writes = ground.metadata.writes
    ground = await ground.restart()
    assert ground.metadata.writes == writes, "closing a clean cursor writes nothing"


async def test_a_large_state_stays_in_its_ledger_at_close():
    config = dataclasses.replace(KEEP, cursor_inline_bytes=10)
    ground, _, cursor, every = await opened(config)
    cursor.ack_many(every[1::2])
    ground = await ground.restart()
    assert (await record(ground)).cursorsLedgerId >= 0
    ledger = await ground.open(config)
    assert ledger.cursors["s"].backlog_entries == 20
    ground = await ground.restart()
    assert (await ground.open(config)).cursors["s"].backlog_entries == 20


async def test_saved_after_a_second_at_the_latest():
    ground, _, cursor, every = await opened()
    cursor.ack(every[0])
    await settle()
    assert saves(cursor) == 0
    ground.scheduler.advance(0.99)
    await settle()
    assert saves(cursor) == 0
    ground.scheduler.advance(0.02)
    await settle()
    assert saves(cursor) == 1
    _, _, cursor = await after_crash(ground)
    assert cursor.backlog_entries == 39


async def test_saved_after_so_many_acks():
    ground, _, cursor, every = await opened(dataclasses.replace(KEEP, cursor_save_acks=10))
    cursor.ack_many(every[:9])
    await settle()
    assert saves(cursor) == 0
    cursor.ack(every[9])
    await settle()
    assert saves(cursor) == 1
    assert not ground.scheduler.timers or all(timer.cancelled for timer in ground.scheduler.timers)


async def test_nothing_to_flush():
    _, _, cursor, _ = await opened()
    await cursor.flush()
    assert saves(cursor) == 0


async def test_waiting_callers_share_one_save():
    ground, _, cursor, every = await opened()
    cursor.ack(every[0])
    await cursor.flush()
    ground.ledgers.hold()
    waiting = []
    for position in every[1:6]:
        cursor.ack(position)
        waiting.append(asyncio.ensure_future(cursor.flush()))
        await settle(2)
    assert not any(future.done() for future in waiting)
    ground.ledgers.release()
    await asyncio.gather(*waiting)
    assert saves(cursor) == 3  # the first save, the running save, one save for all others
    _, _, cursor = await after_crash(ground)
    assert cursor.backlog_entries == 34


async def test_increments_and_full_states_give_the_same_after_a_crash():
    config = dataclasses.replace(KEEP, cursor_chunk_bytes=100, cursor_max_entries_per_ledger=9)
    ground, _, cursor, every = await opened(config)
    for k in range(39, 0, -1):
        cursor.ack(every[k], [1] if k % 3 == 0 else None)
        await cursor.flush()
        _, _, again = await after_crash(ground, config)
        assert again.backlog_entries == cursor.backlog_entries
        assert [again.ack_set(position) for position in every] == [cursor.ack_set(position) for position in every]
        assert again.mark_delete == cursor.mark_delete
    assert len(await ground.ledgers.list_ledgers()) == 4 + 1, "old cursor ledgers are deleted"


async def test_an_increment_costs_little_however_large_the_state():
    ground, _, cursor, every = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=10**6), entries=30_000)
    cursor.ack_many(every[1::2])
    await cursor.flush()
    writer = ground.ledgers._ledgers[(await record(ground)).cursorsLedgerId]
    before = writer.length_bytes
    cursor.ack(every[100])
    await cursor.flush()
    assert writer.length_bytes - before < 150


async def test_position_properties_are_saved_with_mark_delete():
    ground, _, cursor, every = await opened()
    await cursor.mark_delete_with(every[4], {"producer": 17})
    await cursor.mark_delete_with(every[4], {"producer": 18})
    _, _, cursor = await after_crash(ground)
    assert (cursor.mark_delete, cursor.position_properties) == (every[4], {"producer": 18})


async def test_properties_of_each_acknowledgement_do_not_repeat_a_large_state():
    """The client chooses the properties and the holes: a save costs a change, not the whole state."""
    ground, _, cursor, every = await opened(entries=8000)
    cursor.ack_many(every[1::2])
    await cursor.mark_delete_with(every[0], {"number": -1})
    cursor.ack(every[7000])
    await cursor.flush()
    writer = ground.ledgers._ledgers[(await record(ground)).cursorsLedgerId]
    whole_bytes, before = writer.length_bytes, writer.length_bytes
    assert whole_bytes > 4096
    for number in range(40):
        await cursor.mark_delete_with(every[2 * number + 1], {"number": number, f"name-{number}": 1})
    assert writer.length_bytes - before < whole_bytes
    _, _, again = await after_crash(ground)
    assert again.position_properties == {"number": 39, "name-39": 1}
    assert (again.mark_delete, again.backlog_entries) == (cursor.mark_delete, cursor.backlog_entries)


async def test_damage_before_new_properties_of_a_small_state_does_not_hide_them():
    ground, _, cursor, every = await opened()
    for number in range(4):
        await cursor.mark_delete_with(every[number], {"number": number})
    ground = ground.after_crash()
    ground.ledgers.corrupt.add(Position((await record(ground)).cursorsLedgerId, 2))
    ledger = await ground.open()
    assert ledger.cursors["s"].position_properties == {"number": 3}


async def test_reset_is_durable():
    ground, _, cursor, every = await opened()
    cursor.ack_many(every[10:20])
    await cursor.flush()
    await cursor.reset(every[5], [2])
    _, _, cursor = await after_crash(ground)
    assert (cursor.mark_delete, cursor.backlog_entries, cursor.ack_set(every[5])) == (every[4], 35, [2])


async def test_a_state_without_its_last_chunk_does_not_count():
    config = dataclasses.replace(KEEP, cursor_chunk_bytes=8)
    ground, _, cursor, every = await opened(config)
    cursor.ack(every[0])
    await cursor.flush()
    cursor.ack_many(every[2:30:3])
    await cursor.flush()
    writer = ground.ledgers._ledgers[(await record(ground)).cursorsLedgerId]
    slab = writer.slabs[-1]
    assert slab.count > 3
    for kept in range(slab.count):
        torn = ground.after_crash()
        copy = torn.ledgers._ledgers[writer.ledger_id]
        copy.slabs[-1] = slab.part(0, kept) if kept else copy.slabs[-1]
        if not kept:
            del copy.slabs[-1], copy.firsts[-1]
        copy.last_add_confirmed = copy.last_add_pushed = slab.first_entry_id + kept - 1
        ledger = await torn.open(config)
        assert ledger.cursors["s"].backlog_entries == 39


async def test_damage_costs_at_most_later_acknowledgements():
    ground, _, cursor, every = await opened()
    for k in range(4):
        cursor.ack(every[k])
        await cursor.flush()
    ledger_id = (await record(ground)).cursorsLedgerId
    for damaged, left in ((3, 37), (2, 38), (1, 39), (0, 39)):
        ground = ground.after_crash()
        ground.ledgers.corrupt.add(Position(ledger_id, damaged))
        ledger = await ground.open()
        assert ledger.cursors["s"].backlog_entries == left


async def test_a_lost_cursor_ledger_falls_back_to_the_record():
    ground, _, cursor, every = await opened()
    cursor.ack_many(every[:3])
    await cursor.flush()
    cursor.ack_many(every[3:6])
    await cursor.flush()
    await ground.ledgers.delete((await record(ground)).cursorsLedgerId)
    _, _, cursor = await after_crash(ground)
    assert cursor.mark_delete == every[2]


async def test_a_record_that_changes_while_its_ledger_is_opened_is_read_again(monkeypatch):
    ground, ledger, cursor, every = await opened()
    cursor.ack_many([every[0], every[3]])
    await cursor.flush()
    recover = (next_owner := ground.after_crash()).ledgers.open_recover

    async def recover_late(ledger_id):
        if not cursor._saver._closed and ledger_id == cursor._saver._store._ledger_id:
            cursor.ack(every[5])
            await ledger.close()  # puts the state into the record and deletes the ledger
            await next_owner.metadata.put(PATH, (await ground.metadata.get(PATH))[0])
            await next_owner.ledgers.delete(ledger_id)
        return await recover(ledger_id)

    monkeypatch.setattr(next_owner.ledgers, "open_recover", recover_late)
    again = (await next_owner.open()).cursors["s"]
    assert again.backlog_entries == 37


async def test_an_unreadable_inline_state_falls_back_to_mark_delete():
    ground, _, _, _ = await opened()
    found = await record(ground)
    found.state = b"\x09nonsense"
    found.markDeleteLedgerId, found.markDeleteEntryId = 0, 3
    await ground.metadata.put(PATH, found.SerializeToString())
    _, _, cursor = await after_crash(ground)
    assert cursor.mark_delete == Position(0, 3)


async def test_a_record_that_is_none_is_an_error():
    ground, _, _, _ = await opened()
    await ground.metadata.put(PATH, b"\xff\xff")
    with pytest.raises(LedgerListError):
        await after_crash(ground)


async def test_a_disk_that_takes_no_record_either_fails_the_flush_and_later_all_is_saved():
    ground, _, cursor, every = await opened()
    cursor.ack(every[0])
    await cursor.flush()
    ground.ledgers.fail_appends = ground.metadata.fail_writes = StorageFullError("full")
    cursor.ack_many(every[1:5])
    first, second = asyncio.ensure_future(cursor.flush()), asyncio.ensure_future(cursor.flush())
    for future in (first, second):
        with pytest.raises(StorageFullError):
            await future
    ground.ledgers.fail_appends = ground.metadata.fail_writes = None
    ground.scheduler.advance(1.1)
    await settle()
    _, _, cursor = await after_crash(ground)
    assert cursor.backlog_entries == 35


@pytest.mark.parametrize("layout", [OwnLayout, PulsarLayout])
@pytest.mark.parametrize("has_ledger", [True, False])
@pytest.mark.parametrize("few", [StorageUnavailableError("not enough bookies"), StorageFullError("full")], ids=repr)
async def test_a_small_state_is_stored_while_no_ledger_can_be_written(monkeypatch, layout, has_ledger, few):
    ground = Ground(layout=layout())
    ledger = await ground.open()
    every = await append(ledger, [b"x"] * 40)
    cursor = await ledger.open_cursor("s", "earliest")
    if has_ledger:
        cursor.ack(every[0])
        await cursor.flush()

    async def refuse(_properties):
        raise few

    ground.ledgers.fail_appends = few
    monkeypatch.setattr(ground.ledgers, "create", refuse)
    for number in (1, 2, 7, 9):
        if number == 9:
            ground.ledgers.fail_appends = None
            monkeypatch.undo()
        cursor.ack(every[number])
        await cursor.flush()
        _, _, again = await after_crash(ground)
        assert again.backlog_entries == cursor.backlog_entries


async def test_a_failing_record_leaves_the_old_ledger_in_force():
    config = dataclasses.replace(KEEP, cursor_max_entries_per_ledger=1)
    ground, _, cursor, every = await opened(config)
    cursor.ack(every[0])
    await cursor.flush()
    ground.metadata.fail_writes = StorageFullError("full")
    cursor.ack(every[1])
    with pytest.raises(StorageFullError):
        await cursor.flush()
    ground.metadata.fail_writes = None
    _, _, again = await after_crash(ground, config)
    assert again.mark_delete == every[0]
    await cursor.flush()
    _, _, again = await after_crash(ground, config)
    assert again.mark_delete == every[1]


async def test_cursor_properties():
    ground, _, cursor, every = await opened()
    await cursor.set_cursor_properties({"a": "b"})
    cursor.ack(every[0])
    await cursor.flush()
    await cursor.set_cursor_properties({"a": "c"})
    ground.metadata.fail_writes = StorageFullError("full")
    with pytest.raises(StorageFullError):
        await cursor.set_cursor_properties({"a": "d"})
    assert cursor.cursor_properties == {"a": "c"}
    ground.metadata.fail_writes = None
    _, _, cursor = await after_crash(ground)
    assert (cursor.cursor_properties, cursor.mark_delete) == ({"a": "c"}, every[0])


async def test_deleting_a_cursor_removes_record_and_ledger():
    ground, ledger, cursor, every = await opened()
    cursor.ack(every[0])
    await cursor.flush()
    cursor.ack(every[1])
    await ledger.delete_cursor("s")
    assert await ground.metadata.get(PATH) is None
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in ledger.ledgers]
    with pytest.raises(NoSuchCursorError):
        await ledger.delete_cursor("s")
    await cursor.flush()
    cursor.ack(every[2])
    with pytest.raises(StorageClosedError):
        await cursor.flush()


async def test_names_may_hold_anything():
    ground, ledger, _, every = await opened()
    cursor = await ledger.open_cursor("a/b %ü", "latest")
    assert cursor.mark_delete == every[-1]
    _, ledger, _ = await after_crash(ground)
    assert set(ledger.cursors) == {"s", "a/b %ü"}


async def test_increments_behind_a_damaged_one_do_not_count():
    ground, _, cursor, every = await opened()
    for k in range(5):
        cursor.ack(every[2 * k])
        await cursor.flush()
    ledger_id = (await record(ground)).cursorsLedgerId
    for damaged, left in ((2, 38), (4, 36)):
        again = ground.after_crash()
        again.ledgers.corrupt.add(Position(ledger_id, damaged))
        ledger = await again.open()
        assert ledger.cursors["s"].backlog_entries == left


async def test_entries_that_are_no_state_are_passed_over():
    ground, _, cursor, every = await opened()
    for k in range(3):
        cursor.ack(every[k])
        await cursor.flush()
    ledger_id = (await record(ground)).cursorsLedgerId
    for body, entry_id, left in (
        (b"garbage", 2, 38),
        (encode_increment(b"\x01garbage", 0), 2, 38),
        (encode_increment(b"\x01garbage", 7), 2, 38),
        (encode_entries(b"\x01garbage", 0, 100)[0], 0, 39),
        (encode_increment(b"\x01garbage", 0), 0, 39),
    ):
        again = ground.after_crash()
        again.ledgers._ledgers[ledger_id].slabs[entry_id] = slab_of(ledger_id, entry_id, [body])
        ledger = await again.open()
        assert ledger.cursors["s"].backlog_entries == left


async def test_a_bug_while_saving_is_never_taken_for_a_save():
    ground, _, cursor, every = await opened()
    write = cursor._saver._store.write

    async def crash(_acks, _properties):
        await asyncio.sleep(0)
        raise RuntimeError("bug")

    cursor._saver._store.write = crash
    cursor.ack(every[0])
    with capture_logs() as logs:
        with pytest.raises(StorageError):
            await cursor.flush()
        await settle()
    assert {"cursor.save_failed", "background.crashed"} <= {entry["event"] for entry in logs}
    cursor._saver._store.write = write
    await cursor.flush()
    _, _, cursor = await after_crash(ground)
    assert cursor.backlog_entries == 39


async def test_a_caller_that_stops_waiting_harms_no_other():
    ground, _, cursor, every = await opened()
    cursor.ack(every[0])
    await cursor.flush()
    ground.ledgers.hold()
    waiting = []
    for position in every[1:4]:
        cursor.ack(position)
        waiting.append(asyncio.ensure_future(cursor.flush()))
        await settle(2)
    waiting[0].cancel()
    waiting[1].cancel()
    await settle()
    ground.ledgers.release()
    await waiting[2]
    assert cursor.deleted_in(every[0].ledger_id) is None
    assert cursor.last_confirmed == every[-1]


async def test_a_position_and_its_properties_are_stored_together(monkeypatch):
    """A save that waits for its ledger stores the position of that later moment, and the properties of the same."""
    ground, _, cursor, every = await opened()
    create, put, gate, crashes = ground.ledgers.create, ground.metadata.put, asyncio.Event(), []

    async def create_late(*args):
        await gate.wait()
        return await create(*args)

    async def put_and_crash(path, *args):
        version = await put(path, *args)
        if path == PATH:
            crashes.append(ground.after_crash())
        return version

    monkeypatch.setattr(ground.ledgers, "create", create_late)
    monkeypatch.setattr(ground.metadata, "put", put_and_crash)
    cursor.ack(every[0])
    saving = asyncio.ensure_future(cursor.flush())
    await settle()
    marking = asyncio.ensure_future(cursor.mark_delete_with(every[5], {"p": 7}))
    await settle()
    gate.set()
    await asyncio.gather(saving, marking)
    found = (await crashes[0].open()).cursors["s"]
    assert (found.mark_delete, found.position_properties) == (every[5], {"p": 7})


async def test_the_place_of_the_stored_state_is_known():
    ground, ledger, cursor, every = await opened()
    assert cursor.stored_at == ledger.new_read_cursor(EARLIEST).stored_at == EARLIEST
    cursor.ack(every[1])
    await cursor.flush()
    assert cursor.stored_at == Position((await record(ground)).cursorsLedgerId, 0)
    assert (await after_crash(ground))[2].stored_at == cursor.stored_at
