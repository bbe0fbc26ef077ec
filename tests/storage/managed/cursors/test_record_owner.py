"""The record of a cursor that a former owner also writes, or whose write gets no answer."""

from __future__ import annotations

import pytest

from magnetar.storage.errors import ManagedLedgerFencedError, StorageClosedError, StorageError, StorageUnavailableError
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
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
    is_taken_over = cursor._saver._store._is_taken_over
    newer = []

    async def taken_over_then():
        found = await is_taken_over()
        if not newer:
            _, theirs = await next_owner(ground)
            newer.append(theirs)
            theirs.ack_many(every[:3])
            await theirs.flush()
        return found

    monkeypatch.setattr(cursor._saver._store, "_is_taken_over", taken_over_then)
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

    async def put_without_answer(path, value, version=None):
        done = await put(path, value, version)
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
