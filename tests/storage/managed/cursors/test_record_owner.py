"""The record of a cursor that a former owner also writes, or whose write gets no answer."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.storage.errors import (
    ManagedLedgerFencedError,
    NotEmptyError,
    StorageClosedError,
    StorageError,
    StorageUnavailableError,
)
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.engine_for_tests import settle
from tests.storage.managed_for_tests import NAME, Ground, append

PATH = cursor_path(NAME, "s")
FEW = StorageUnavailableError("not enough bookies")


async def opened():
    """A layout for several owners, and forty entries."""
    ground = Ground(layout=PulsarLayout())
    ledger = await ground.open()
    every = await append(ledger, [b"x"] * 40)
    cursor = await ledger.open_cursor("s", "earliest", {"owner": "me"})
    return ground, ledger, cursor, every


async def next_owner(ground):
    """Open the managed ledger on the same stores, while the former owner has it open."""
    ledger = await Ground(ground.ledgers, ground.metadata, ground.layout).open()
    return ledger, ledger.cursors["s"]


async def stored(ground):
    return await ground.metadata.get(PATH)


async def backlog_after_crash(ground):
    return (await ground.after_crash().open()).cursors["s"].backlog_entries


async def refuse(_properties=None):
    raise FEW


async def write_record_again(ground):
    await ground.metadata.put(PATH, (await stored(ground))[0])


@pytest.mark.parametrize("has_ledger", [True, False])
async def test_the_owner_saves_over_a_record_that_a_former_owner_has_written(has_ledger):
    ground, _, cursor, every = await opened()
    if has_ledger:
        cursor.ack(every[0])
        await cursor.flush()
    newer, theirs = await next_owner(ground)
    await write_record_again(ground)
    theirs.ack_many(every[:5])
    await theirs.flush()
    assert await backlog_after_crash(ground) == 35
    await write_record_again(ground)
    theirs.ack(every[5])
    await newer.close()
    assert await backlog_after_crash(ground) == 34


async def test_a_former_owner_does_not_save_over_the_record_of_the_next_owner(monkeypatch):
    ground, _, cursor, every = await opened()
    _, theirs = await next_owner(ground)
    theirs.ack_many(every[:3])
    await theirs.flush()
    before = await stored(ground)
    for ledgers_are_there in (True, False):
        with monkeypatch.context() as patch:
            if not ledgers_are_there:
                patch.setattr(ground.ledgers, "create", refuse)
            cursor.ack(every[9])
            with pytest.raises(ManagedLedgerFencedError):
                await cursor.flush()
    assert await stored(ground) == before


async def test_an_owner_that_loses_the_cursor_during_its_second_attempt_does_not_save(monkeypatch):
    ground, ledger, cursor, every = await opened()
    await write_record_again(ground)
    get = ground.metadata.get
    newer = []

    async def get_then_lose(path):
        found = await get(path)
        if path == PATH and not newer:
            newer.append(None)
            _, newer[0] = theirs = await next_owner(ground)
            theirs[1].ack_many(every[:3])
            await theirs[1].flush()
        return found

    monkeypatch.setattr(ground.metadata, "get", get_then_lose)
    cursor.ack(every[9])
    with pytest.raises(ManagedLedgerFencedError):
        await cursor.flush()
    assert await ledger.is_taken_over()
    assert await backlog_after_crash(ground) == newer[0].backlog_entries == 37


@pytest.mark.parametrize("can_create", [True, False])
async def test_a_record_whose_write_gets_no_answer_is_written_again(monkeypatch, can_create):
    ground, _, cursor, every = await opened()
    put = ground.metadata.put
    unanswered = []

    async def put_without_answer(path, value, *conditions):
        done = await put(path, value, *conditions)
        if path == PATH and not unanswered:
            unanswered.append(done)
            raise StorageUnavailableError("no answer")
        return done

    monkeypatch.setattr(ground.metadata, "put", put_without_answer)
    if not can_create:
        monkeypatch.setattr(ground.ledgers, "create", refuse)
    cursor.ack(every[0])
    try:
        await cursor.flush()
    except StorageError:
        await cursor.flush()
    assert unanswered
    assert await backlog_after_crash(ground) == 39
    cursor.ack(every[1])
    await cursor.flush()
    assert await backlog_after_crash(ground) == 38


async def test_a_new_cursor_whose_creation_got_no_answer_is_created_by_the_next_call():
    ground, ledger, _, every = await opened()
    path = cursor_path(NAME, "other")
    await ground.metadata.put(path, (await stored(ground))[0])
    cursor = await ledger.open_cursor("other", "latest")
    assert cursor.mark_delete == every[-1]
    assert (await ground.after_crash().open()).cursors["other"].mark_delete == every[-1]


async def test_a_record_that_changes_all_the_time_fails_the_save(monkeypatch):
    ground, _, cursor, every = await opened()
    get = ground.metadata.get

    async def get_and_change(path):
        found = await get(path)
        if path == PATH:
            await ground.metadata.put(path, found[0])
        return found

    await write_record_again(ground)
    cursor.ack(every[0])
    with monkeypatch.context() as patch:
        patch.setattr(ground.metadata, "get", get_and_change)
        with pytest.raises(ManagedLedgerFencedError):
            await cursor.flush()
    await cursor.flush()
    assert await backlog_after_crash(ground) == 39


async def test_the_record_of_a_deleted_cursor_is_not_written_again():
    ground, _, cursor, every = await opened()
    await ground.metadata.delete(PATH)
    cursor.ack(every[0])
    with pytest.raises(StorageError):
        await cursor.flush()
    assert await stored(ground) is None


@pytest.mark.parametrize("has_ledger", [True, False])
async def test_a_former_owner_without_bookies_does_not_write_the_record(monkeypatch, has_ledger):
    ground, _, cursor, every = await opened()
    if has_ledger:
        cursor.ack(every[0])
        await cursor.flush()
    _, theirs = await next_owner(ground)
    before = await stored(ground)
    with monkeypatch.context() as patch:
        patch.setattr(ground.ledgers, "create", refuse)
        if has_ledger:
            patch.setattr(cursor._saver._store._writer, "append", lambda _slab, done: done(FEW))
        cursor.ack(every[1])
        with pytest.raises(ManagedLedgerFencedError):
            await cursor.flush()
    assert await stored(ground) == before
    theirs.ack_many(every[:5])
    await theirs.flush()
    assert await backlog_after_crash(ground) == 35


async def fail_to_delete(ground, ledger, monkeypatch, *, arrives):
    """Delete the cursor without an answer; return the request, which may be carried out later."""
    delete, requests = ground.metadata.delete, []

    async def delete_without_answer(path, *conditions):
        if path == PATH:
            requests.append((path, *conditions))
            if arrives:
                await delete(path, *conditions)
            raise StorageUnavailableError("no answer")
        await delete(path, *conditions)

    with monkeypatch.context() as patch:
        patch.setattr(ground.metadata, "delete", delete_without_answer)
        with pytest.raises(StorageUnavailableError):
            await ledger.delete_cursor("s")
    return requests[0]


@pytest.mark.parametrize("has_ledger", [True, False])
async def test_a_cursor_whose_deletion_got_no_answer_is_saved_again(monkeypatch, has_ledger):
    ground, ledger, cursor, every = await opened()
    if has_ledger:
        cursor.ack(every[0])
        await cursor.flush()
    await fail_to_delete(ground, ledger, monkeypatch, arrives=True)
    assert await stored(ground) is None
    cursor.ack_many(every[:2])
    await cursor.flush()
    assert await backlog_after_crash(ground) == 38
    assert (await ground.after_crash().open()).cursors["s"].cursor_properties == {"owner": "me"}
    await ledger.delete_cursor("s")
    assert await stored(ground) is None


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("has_ledger", [True, False])
async def test_a_cursor_whose_deletion_got_no_answer_is_there_at_the_next_opening(monkeypatch, has_ledger, closes):
    """A consumer that goes on would otherwise find its subscription gone, and make a new one behind its backlog."""
    ground, ledger, cursor, every = await opened()
    if has_ledger:
        cursor.ack(every[0])
        await cursor.flush()
    await fail_to_delete(ground, ledger, monkeypatch, arrives=True)
    if closes:
        await ledger.close()
    else:
        ground.scheduler.advance(2)
        await settle()
    assert await backlog_after_crash(ground) == 40 - has_ledger


async def test_a_deletion_that_arrives_late_does_not_delete_a_record_that_was_written_since(monkeypatch):
    ground, ledger, cursor, every = await opened()
    path, *conditions = await fail_to_delete(ground, ledger, monkeypatch, arrives=False)
    cursor.ack(every[0])
    await cursor.flush()
    with pytest.raises(StorageError):
        await ground.metadata.delete(path, *conditions)
    assert await backlog_after_crash(ground) == 39


async def test_a_cursor_is_deleted_whose_record_a_former_owner_has_written():
    ground, ledger, _, _ = await opened()
    await write_record_again(ground)
    await ledger.delete_cursor("s")
    assert await stored(ground) is None


async def test_a_record_that_changes_all_the_time_fails_the_deletion(monkeypatch):
    ground, ledger, cursor, every = await opened()
    get = ground.metadata.get

    async def get_and_change(path):
        found = await get(path)
        if path == PATH:
            await ground.metadata.put(path, found[0])
        return found

    await write_record_again(ground)
    with monkeypatch.context() as patch:
        patch.setattr(ground.metadata, "get", get_and_change)
        with pytest.raises(ManagedLedgerFencedError):
            await ledger.delete_cursor("s")
    cursor.ack(every[0])
    await cursor.flush()
    assert await backlog_after_crash(ground) == 39


@pytest.mark.parametrize("notices", [True, False])
@pytest.mark.parametrize("has_ledger", [True, False])
async def test_a_former_owner_that_closes_does_not_write_the_record(has_ledger, notices):
    ground, ledger, cursor, every = await opened()
    if has_ledger:
        cursor.ack(every[0])
        await cursor.flush()
    if notices:
        await append(ledger, [b"x"])  # the next owner then recovers an open ledger
    newer, theirs = await next_owner(ground)
    before = await stored(ground)
    cursor.ack(every[1])
    await ledger.close()
    assert await stored(ground) == before
    with pytest.raises(StorageClosedError):
        await cursor.flush()
    theirs.ack_many(every[:5])
    await newer.close()
    assert await backlog_after_crash(ground) == newer.entries - 5


async def test_an_owner_whose_list_cannot_be_read_or_got_no_answer_saves_its_cursors_at_its_end(monkeypatch):
    for failing in ("get", "put"):
        ground, ledger, cursor, every = await opened()
        await append(ledger, [b"x"])
        cursor.ack(every[0])
        call = getattr(ground.metadata, failing)

        async def without_answer(path, *args, call=call):
            answer = await call(path, *args)
            if path == ledger_list_path(NAME):
                raise FEW
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(ground.metadata, failing, without_answer)
            await ledger.close()
        assert await backlog_after_crash(ground) == 40


async def test_a_former_owner_puts_no_new_ledger_into_the_record():
    ground, _, cursor, every = await opened()
    _, theirs = await next_owner(ground)
    before = await stored(ground)
    cursor.ack_many(every[:9])
    with pytest.raises(ManagedLedgerFencedError):
        await cursor.flush()
    assert await stored(ground) == before
    assert await backlog_after_crash(ground) == theirs.backlog_entries == 40


@pytest.mark.parametrize(
    "change",
    [
        lambda _ledger, cursor: cursor.set_cursor_properties({"a": "b"}),
        lambda ledger, _cursor: ledger.open_cursor("other", "earliest"),
        lambda ledger, _cursor: ledger.delete_cursor("s"),
        lambda ledger, _cursor: ledger.delete(),
    ],
    ids=["properties", "creation", "deletion", "deletion of the log"],
)
async def test_a_former_owner_changes_no_record(change):
    ground, ledger, cursor, every = await opened()
    newer, theirs = await next_owner(ground)
    before = dict(ground.metadata._nodes)
    with pytest.raises(ManagedLedgerFencedError):
        await change(ledger, cursor)
    assert ground.metadata._nodes == before
    theirs.ack_many(every[:5])
    await newer.close()
    assert await backlog_after_crash(ground) == newer.entries - 5


async def test_a_record_is_written_while_the_owner_saves_its_list(monkeypatch):
    ground, ledger, cursor, every = await opened()
    put, goes_on = ground.metadata.put, asyncio.Event()

    async def answer_later(path, *arguments):
        version = await put(path, *arguments)
        if path == ledger_list_path(NAME):
            await goes_on.wait()
        return version

    monkeypatch.setattr(ground.metadata, "put", answer_later)
    change = asyncio.ensure_future(ledger.set_property("a", "b"))
    await asyncio.sleep(0)
    cursor.ack(every[0])
    saving = asyncio.ensure_future(cursor.flush())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not saving.done()
    goes_on.set()
    await asyncio.gather(change, saving)
    assert await backlog_after_crash(ground) == 39


async def test_an_owner_whose_list_got_no_answer_goes_on_and_saves_its_cursors(monkeypatch):
    ground, ledger, cursor, every = await opened()
    put = ground.metadata.put

    async def without_answer(path, *arguments):
        await put(path, *arguments)
        raise FEW

    with monkeypatch.context() as patch:
        patch.setattr(ground.metadata, "put", without_answer)
        with pytest.raises(StorageUnavailableError):
            await ledger.set_property("a", "b")
    await ledger.set_property("c", "d")
    assert not await ledger.is_taken_over()
    cursor.ack(every[0])
    await ledger.close()
    assert await backlog_after_crash(ground) == 39


async def test_the_cursors_of_a_log_whose_deletion_fails_are_not_saved_later(monkeypatch):
    ground, ledger, cursor, every = await opened()
    await ledger.open_cursor("t", "earliest")
    other = ledger.cursors["t"]
    other.ack(every[0])
    with monkeypatch.context() as patch:
        patch.setattr(ground.metadata, "fail_writes", FEW)
        with pytest.raises(StorageUnavailableError):
            await ledger.delete()
    for each in (cursor, other):
        each.ack(every[1])
        with pytest.raises(StorageClosedError):
            await each.flush()


async def test_a_log_is_deleted_with_a_cursor_whose_creation_got_no_answer(monkeypatch):
    """ZooKeeper deletes no node that has children."""
    ground, ledger, _, _ = await opened()
    put, delete = ground.metadata.put, ground.metadata.delete

    async def put_without_answer(path, *arguments):
        await put(path, *arguments)
        raise StorageUnavailableError("no answer")

    async def delete_as_zookeeper(path, *conditions):
        if await ground.metadata.children(path):
            raise NotEmptyError(path)
        await delete(path, *conditions)

    with monkeypatch.context() as patch:
        patch.setattr(ground.metadata, "put", put_without_answer)
        with pytest.raises(StorageUnavailableError):
            await ledger.open_cursor("other/1", "earliest")
    assert set(ledger.cursors) == {"s"}
    monkeypatch.setattr(ground.metadata, "delete", delete_as_zookeeper)
    await ledger.delete()
    assert await ground.metadata.get(ledger_list_path(NAME)) is None
    assert await ground.metadata.children(ledger_list_path(NAME)) == []
    assert await ground.ledgers.list_ledgers() == []


async def test_a_log_closes_while_the_saves_of_its_cursors_fail_in_turns(monkeypatch):
    """Each save takes four seconds and begins before the end of the other cursor's save."""
    ground, ledger, cursor, every = await opened()
    other = await ledger.open_cursor("t", "earliest")
    put, began = ground.metadata.put, []

    async def fail_slowly(path, *arguments):
        if path == ledger_list_path(NAME):
            return await put(path, *arguments)
        began.append(path)
        for turn in range(40):
            await asyncio.sleep(0)
            ground.scheduler.advance(0.1)
            if len(began) == 1 and turn == 10:
                other.ack(every[0])
        raise FEW

    monkeypatch.setattr(ground.ledgers, "create", refuse)
    monkeypatch.setattr(ground.metadata, "put", fail_slowly)
    cursor.ack(every[0])
    ground.scheduler.advance(1)
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        await ledger.close()
    assert len(began) == 3  # the save under way, and the last save of each cursor


@pytest.mark.parametrize("has_ledger", [True, False])
async def test_parts_of_batches_are_stored_in_the_record_while_no_ledger_can_be_written(monkeypatch, has_ledger):
    """A new owner needs a cursor ledger for its first acknowledgement: while a bookie was away it stored no parts, and
    its kill lost all of them.
    """
    ground, ledger, cursor, every = await opened()
    if has_ledger:
        cursor.ack(every[0])
        await cursor.flush()
    with monkeypatch.context() as patch:
        patch.setattr(ground.ledgers, "create", refuse)
        ground.ledgers.fail_appends = FEW
        for place in every[2:4]:
            cursor.ack(place, [0b101])
            ground.scheduler.advance(1.1)
            await settle()
            assert not cursor.has_unsaved_acks
        again = (await ground.after_crash().open()).cursors["s"]
        assert again.ack_set(every[3]) == [0b101]
        await ledger.close()
        ground.ledgers.fail_appends = None
    assert PulsarLayout().decode_cursor((await stored(ground))[0]).state.partial
    next_ground = ground.after_crash()
    again = await next_ground.open()
    assert again.cursors["s"].ack_set(every[3]) == [0b101]
    await again.close()
    assert PulsarLayout().decode_cursor((await stored(next_ground))[0]).state is None, "Apache Pulsar reads the ledger"
