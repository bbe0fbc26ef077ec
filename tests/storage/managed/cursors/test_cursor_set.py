"""The cursors of a ledger: many requests for the same cursor at once."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.storage.errors import ManagedLedgerClosedError, NoSuchCursorError, StorageFullError
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.store import CursorStore
from tests.storage.managed_for_tests import NAME, Ground, append

MANY = 2000


@pytest.fixture
def slow(monkeypatch):
    """The creation of a cursor waits for the disk for some rounds."""
    create = CursorStore.create

    async def create_late(*arguments):
        for _ in range(5):
            await asyncio.sleep(0)
        await create(*arguments)

    monkeypatch.setattr(CursorStore, "create", create_late)


class Rounds:
    """Counts the rounds of the event loop."""

    def __init__(self):
        self.count = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self):
        while True:
            self.count += 1
            await asyncio.sleep(0)

    async def stop(self):
        self._task.cancel()
        await asyncio.wait({self._task})


@pytest.mark.usefixtures("slow")
async def test_requests_that_wait_for_the_same_cursor_get_it_in_a_few_rounds_of_the_loop():
    """Each took a round of its own: with busy rounds, 50,000 requests kept the broker from stopping for a minute."""
    ledger = await Ground().open()
    rounds = Rounds()
    opened = await asyncio.gather(*(ledger.open_cursor("s", "earliest") for _ in range(MANY)))
    assert rounds.count < MANY // 10
    await rounds.stop()
    assert all(cursor is opened[0] for cursor in opened)


@pytest.mark.parametrize("exist", [False, True], ids=["creations", "deletions"])
async def test_an_end_waits_for_the_cursor_under_way_and_not_for_those_behind_it(exist, monkeypatch):
    """Hundreds of cursors waited for their turns, and each had a write of its own: a stop took half a minute."""
    ground = Ground()
    ledger = await ground.open()
    names = [f"s{number}" for number in range(20)]
    if exist:
        for name in names:
            await ledger.open_cursor(name, "earliest")
    changed = []

    def slowly(change):
        async def change_late(store, *arguments):
            changed.append(store)
            for _ in range(5):
                await asyncio.sleep(0)
            await change(store, *arguments)

        return change_late

    kind = "delete" if exist else "create"
    monkeypatch.setattr(CursorStore, kind, slowly(getattr(CursorStore, kind)))
    change = ledger.delete_cursor if exist else lambda name: ledger.open_cursor(name, "earliest")
    changing = [asyncio.create_task(change(name)) for name in names]
    await asyncio.sleep(0)
    await ledger.close()
    assert len(changed) == 1
    first, *others = await asyncio.gather(*changing, return_exceptions=True)
    assert not isinstance(first, BaseException)
    assert {type(each) for each in others} == {ManagedLedgerClosedError}
    assert set((await ground.after_crash().open()).cursors) == set(names[1:] if exist else names[:1])


async def test_a_cursor_that_is_opened_during_its_deletion_is_a_new_cursor():
    ledger = await Ground().open()
    first = await ledger.open_cursor("s", "earliest")
    deleting = asyncio.create_task(ledger.delete_cursor("s"))
    await asyncio.sleep(0)
    again = await ledger.open_cursor("s", "earliest")
    await deleting
    assert again is not first
    assert ledger.cursors["s"] is again


async def test_a_cursor_that_is_deleted_twice_at_once_is_missing_the_second_time():
    ledger = await Ground().open()
    await ledger.open_cursor("s", "earliest")
    results = await asyncio.gather(*(ledger.delete_cursor("s") for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in results] == [type(None), NoSuchCursorError]


@pytest.mark.usefixtures("slow")
async def test_a_request_that_is_cancelled_while_it_makes_a_cursor_leaves_the_others_to_make_it():
    ledger = await Ground().open()
    making = asyncio.create_task(ledger.open_cursor("s", "earliest"))
    waiting = asyncio.create_task(ledger.open_cursor("s", "earliest"))
    await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert (await waiting).name == "s"


@pytest.mark.parametrize("exists", [False, True], ids=["creation", "deletion"])
async def test_requests_that_wait_for_the_same_cursor_fail_together(exists, monkeypatch):
    """Each tried again and woke all others: with 4,000 requests and a full disk the loop was busy for 20 seconds."""
    ledger = await Ground().open()
    if exists:
        await ledger.open_cursor("s", "earliest")
    attempts = []

    async def fail_late(*_arguments):
        attempts.append(1)
        for _ in range(5):
            await asyncio.sleep(0)
        raise StorageFullError("full")

    work = (lambda: ledger.delete_cursor("s")) if exists else (lambda: ledger.open_cursor("s", "earliest"))
    with monkeypatch.context() as patched:
        patched.setattr(CursorStore, "delete" if exists else "create", fail_late)
        results = await asyncio.gather(*(work() for _ in range(MANY)), return_exceptions=True)
    assert {type(each) for each in results} == {StorageFullError}
    assert len(attempts) == 1
    await work()


async def test_a_cursor_whose_deletion_fails_is_there_for_requests_that_waited(monkeypatch):
    ledger = await Ground().open()
    first = await ledger.open_cursor("s", "earliest")

    async def fail_late(*_arguments):
        await asyncio.sleep(0)
        raise StorageFullError("full")

    monkeypatch.setattr(CursorStore, "delete", fail_late)
    deleting = asyncio.create_task(ledger.delete_cursor("s"))
    await asyncio.sleep(0)
    assert await ledger.open_cursor("s", "earliest") is first
    with pytest.raises(StorageFullError):
        await deleting


@pytest.mark.usefixtures("slow")
async def test_a_cursor_is_made_behind_a_deletion_that_finds_none():
    ledger = await Ground().open()
    await ledger.open_cursor("s", "earliest")
    results = await asyncio.gather(
        ledger.open_cursor("holds the lock", "earliest"),
        ledger.delete_cursor("s"),
        ledger.open_cursor("holds the lock again", "earliest"),
        ledger.delete_cursor("s"),
        ledger.open_cursor("s", "earliest"),
        return_exceptions=True,
    )
    assert isinstance(results[3], NoSuchCursorError)
    assert results[4] is ledger.cursors["s"]


async def test_the_end_saves_many_cursors_at_the_same_time_and_a_failure_leaves_none_of_its_group_unfinished(
    monkeypatch,
):
    """One after the other, the end of 3,000 subscriptions waited for 3,000 syncs."""
    ledger = await Ground().open()
    for number in range(100):
        await ledger.open_cursor(f"s{number}", "earliest")
    close, under_way, most, finished = ManagedCursor.close_durable, 0, 0, []

    async def late(self, **options):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        if self.name == "s5":
            raise StorageFullError("full")
        await close(self, **options)
        finished.append(self.name)

    monkeypatch.setattr(ManagedCursor, "close_durable", late)
    await ledger.close()
    assert 10 < most <= 64
    assert sorted(finished) == sorted(f"s{number}" for number in range(100) if number != 5)


async def with_parts_of_twenty_cursors():
    """A store on which each of twenty cursors has acknowledged a part of a batch."""
    ground = Ground()
    ledger = await ground.open()
    [position] = await append(ledger, [b"x"])
    for number in range(20):
        (await ledger.open_cursor(f"s{number}", "earliest")).ack(position, [1])
    return await ground.restart()


@pytest.mark.parametrize("ends", [StorageFullError("full"), asyncio.CancelledError()])
async def test_a_load_that_fails_leaves_no_parts_of_batches_in_the_room_of_all_cursors(ends, monkeypatch):
    ground = await with_parts_of_twenty_cursors()
    load, loads = CursorStore.load, 0

    async def fails_late(store, look):
        nonlocal loads
        loads += 1
        if loads == 20:
            raise ends
        return await load(store, look)

    room = ground.factory._env.parts_room
    monkeypatch.setattr(CursorStore, "load", fails_late)
    with pytest.raises(type(ends)):
        await ground.open()
    assert room.used == 0
    await ground.open()
    assert room.used > 0
    await ground.factory.delete(NAME)
    assert room.used == 0


async def test_a_load_that_is_cancelled_leaves_no_parts_of_batches_in_the_room(monkeypatch):
    ground = await with_parts_of_twenty_cursors()
    load, loads = CursorStore.load, 0
    waits, never = asyncio.Event(), asyncio.Event()

    async def waits_late(store, look):
        nonlocal loads
        loads += 1
        if loads == 20:
            waits.set()
            await never.wait()
        return await load(store, look)

    monkeypatch.setattr(CursorStore, "load", waits_late)
    opening = asyncio.ensure_future(ground.open())
    await waits.wait()
    assert ground.factory._env.parts_room.used > 0
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert ground.factory._env.parts_room.used == 0
