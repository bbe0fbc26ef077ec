"""The change from one ledger of a managed ledger to the next: by size, age and on request."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
import structlog

from magnetar.storage.errors import StorageError, StorageFullError, StorageUnavailableError
from magnetar.storage.managed import ledger_switch
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import AppendPiece
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import KEEP, Ground, append, opened, run_of, settle
from tests.waiting import until

DROP = dataclasses.replace(KEEP, retention_time_ms=0, retention_size_bytes=0)


async def test_rolls_after_the_entry_that_fills_it_by_size():
    config = dataclasses.replace(KEEP, max_entries_per_ledger=1000, max_size_per_ledger_bytes=500)
    _, ledger = await opened(config)
    await append(ledger, [b"x" * 100] * 9)
    assert [slot.entries for slot in ledger.ledgers] == [4, 4, 1]
    for _ in range(5):
        await append(ledger, [b"x" * 100])
    assert [slot.entries for slot in ledger.ledgers] == [4, 4, 4, 2]
    assert all(slot.closed_at_ms and slot.size_bytes > 500 for slot in ledger.ledgers[:3])


async def test_the_next_ledger_is_there_before_it_is_needed_and_listed_before_its_first_entry():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 8)
    await settle()
    assert len(await ground.ledgers.list_ledgers()) == 2
    assert len(ledger.ledgers) == 1
    after = ground.after_crash()
    again = await after.open()
    assert await after.ledgers.list_ledgers() == [slot.ledger_id for slot in again.ledgers] == [0]
    create = ground.ledgers.create
    ground.ledgers.create = None  # the switch must not create a ledger
    await append(ledger, [b"x"] * 3)
    assert ledger.last_confirmed == Position(1, 0)
    ground.ledgers.create = create


async def test_no_entry_of_the_next_ledger_before_all_of_this_one_are_confirmed():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 9)
    ground.ledgers.hold()
    results = []
    ledger.append(run_of([b"y"] * 3), results.append)
    await settle()
    writers = ground.ledgers._ledgers
    assert (writers[0].last_add_pushed, writers[1].last_add_pushed) == (9, -1)
    ground.ledgers.release()
    await settle()
    assert results[0].pieces == [AppendPiece(0, 9, 0, 1), AppendPiece(1, 0, 1, 3)]


async def test_minimum_age():
    ground, ledger = await opened(dataclasses.replace(KEEP, min_rollover_ms=60_000))
    await append(ledger, [b"x"] * 25)
    assert [slot.entries for slot in ledger.ledgers] == [25]
    ground.scheduler.advance(61)
    await append(ledger, [b"y"] * 3)
    assert [slot.entries for slot in ledger.ledgers] == [25, 3]


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        (dataclasses.replace(KEEP, max_rollover_ms=60_000), 60.1),
        (dataclasses.replace(KEEP, max_rollover_ms=60_000, min_rollover_ms=90_000), 90.1),
        (dataclasses.replace(KEEP, inactive_rollover_ms=5_000), 6.3),
    ],
)
async def test_an_aged_or_idle_ledger_is_closed_without_traffic(config, seconds):
    ground, ledger = await opened(config)
    await append(ledger, [b"x"])
    for _ in range(int(seconds * 10) - 2):
        ground.scheduler.advance(0.1)
    await settle()
    assert ledger.ledgers[0].closed_at_ms == 0
    for _ in range(4):
        ground.scheduler.advance(0.1)
    await settle()
    assert ledger.ledgers[0].closed_at_ms
    assert len(await ground.ledgers.list_ledgers()) == 1, "no ledger is created without a waiting run"
    await append(ledger, [b"y"])
    assert ledger.last_confirmed == Position(1, 0)


async def test_a_ledger_with_traffic_is_not_idle():
    ground, ledger = await opened(dataclasses.replace(KEEP, inactive_rollover_ms=5_000))
    await append(ledger, [b"x"])
    for _ in range(3):
        ground.scheduler.advance(4)
        await append(ledger, [b"x"])
    assert len(ledger.ledgers) == 1


async def test_roll_on_request():
    ground, ledger = await opened()
    await ledger.roll()
    await append(ledger, [b"x"])
    await ledger.roll()
    assert ledger.ledgers[0].closed_at_ms
    ground.ledgers.hold()
    ledger.append(run_of([b"y"]), lambda _result: None)
    await settle()
    rolling = asyncio.ensure_future(ledger.roll())
    await settle()
    assert not rolling.done()
    ground.ledgers.release()
    await rolling
    assert [slot.entries for slot in ledger.ledgers] == [1, 1]


async def test_a_roll_ends_with_the_close_that_comes_in_between():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    rolling = asyncio.ensure_future(ledger.roll())
    await asyncio.gather(asyncio.sleep(0), ledger.close())
    await settle()
    assert rolling.done()
    again = await ground.open()
    assert [(slot.entries, bool(slot.closed_at_ms)) for slot in again.ledgers] == [(1, True)]


async def test_a_full_ledger_takes_more_while_no_other_can_be_made_and_rolls_afterwards():
    config = dataclasses.replace(KEEP, max_entries_per_ledger=10, max_rollover_ms=60_000)
    ground, ledger = await opened(config)
    await append(ledger, [b"x"] * 5)
    ground.may_roll = False
    for _ in range(4):
        await append(ledger, [b"y"] * 10)
    ground.scheduler.advance(61)
    await settle()
    assert [(slot.entries, slot.closed_at_ms) for slot in ledger.ledgers] == [(45, 0)]
    ground.may_roll = True
    await append(ledger, [b"z"] * 3)
    assert [slot.entries for slot in ledger.ledgers] == [45, 3]


async def test_a_ledger_takes_ten_times_as_much_at_most():
    ground, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=10))
    ground.may_roll = False
    for _ in range(12):
        await append(ledger, [b"x"] * 9)
    assert [slot.entries for slot in ledger.ledgers] == [100, 8]


async def test_appends_fail_when_the_ledger_before_theirs_is_not_sealed_for_long(monkeypatch):
    monkeypatch.setattr(ledger_switch, "_SEAL_WAIT_S", 0.05)
    ground = Ground(layout=PulsarLayout())
    ledger = await ground.open(dataclasses.replace(KEEP, max_entries_per_ledger=10))
    await append(ledger, [b"x"] * 9)
    sealed = asyncio.Event()
    writer = ground.ledgers._ledgers[0]
    close = writer.close

    async def slow_close():
        await sealed.wait()
        return await close()

    monkeypatch.setattr(writer, "close", slow_close)
    results = []
    ledger.append(run_of([b"y"] * 3), results.append)
    await until(lambda: results, 30, "an answer")
    assert isinstance(results[0].error, StorageUnavailableError)
    sealed.set()
    await settle()
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"z"] * 2)
    assert [slot.entries for slot in ledger.ledgers] == [10, 2]


async def test_another_owner_is_noticed_by_a_look_at_the_list():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    assert not await ledger.is_taken_over()
    again = ManagedLedgerFactory(ground.ledgers, ground.metadata, ground.clock, ground.scheduler)
    await again.open(ledger.name, KEEP)
    assert await ledger.is_taken_over()


async def test_a_log_that_closes_gives_up_the_creation_of_a_ledger():
    ground, ledger = await opened()
    create = ground.ledgers.create

    async def patient_create(properties=None):
        await ground.given_up.wait()
        raise StorageUnavailableError("not enough bookies")

    ground.ledgers.create = patient_create
    results = []
    ledger.append(run_of([b"x"]), results.append)
    await settle()
    assert results == []
    ground.may_roll = False
    ledger.give_up_creation()
    await until(lambda: results)
    assert isinstance(results[0].error, StorageUnavailableError)
    ground.ledgers.create = create
    ledger.ready_to_create_new_ledger()
    with pytest.raises(StorageUnavailableError, match="the managed ledger closes"):
        await append(ledger, [b"x"])
    ledger.ready_to_create_new_ledger()
    ground.may_roll = True
    assert await append(ledger, [b"x"]) == [Position(0, 0)]
    await ledger.close()


@pytest.mark.parametrize("step", ["open_recover", "delete"])
async def test_a_log_that_closes_while_an_earlier_ledger_is_settled_creates_no_ledger(monkeypatch, step):
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ledgers = ground.ledgers
    away = ledgers.fail_appends = ground.metadata.fail_writes = StorageUnavailableError("away")
    for _ in range(1 if step == "open_recover" else 2):  # the second failure leaves a ledger that no list names
        with pytest.raises(StorageUnavailableError):
            await append(ledger, [b"x"])
        ledger.ready_to_create_new_ledger()
    ledgers.fail_appends = ground.metadata.fail_writes = None
    settle_step, began, goes_on, created = getattr(ledgers, step), asyncio.Event(), asyncio.Event(), []

    async def slowly(*args):
        began.set()
        await goes_on.wait()
        return await settle_step(*args)

    async def refuse(properties):
        created.append(properties)
        raise away

    monkeypatch.setattr(ledgers, step, slowly)
    monkeypatch.setattr(ledgers, "create", refuse)
    results = []
    ledger.append(run_of([b"x"]), results.append)
    async with asyncio.timeout(5):
        await began.wait()
    ground.may_roll = False
    ledger.give_up_creation()
    goes_on.set()
    await until(lambda: results)
    assert isinstance(results[0].error, StorageUnavailableError)
    assert not created


@pytest.mark.parametrize("lost", [False, True])
async def test_a_full_ledger_that_the_store_did_not_seal_is_sealed_by_a_later_trim(lost):
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("c", "earliest")
    await append(ledger, [b"x"] * 8)
    await settle()
    ground.ledgers.fail_closes = StorageFullError("full")
    every = await append(ledger, [b"x"] * 8)
    cursor.ack_cumulative(every[-1])
    await settle()
    assert await ledger.trim(ground.clock.now_ms()) == []
    ground.ledgers.fail_closes = None
    if lost:
        await ground.ledgers.delete(0)
    assert await ledger.trim(ground.clock.now_ms()) == [0]
    assert await ground.ledgers.list_ledgers() == [1, 2], "the cursor has the other ledger"


async def test_a_trim_behind_the_close_leaves_a_ledger_that_the_store_does_not_seal():
    ground, ledger = await opened(DROP)
    await append(ledger, [b"x"] * 8)
    await settle()
    ground.ledgers.fail_closes = StorageFullError("full")
    await append(ledger, [b"x"] * 8)
    await settle()
    await ledger.close()
    assert await ledger.trim(ground.clock.now_ms()) == []


async def test_a_ledger_with_failed_appends_is_sealed_before_the_ledger_made_ahead_takes_entries():
    ground, ledger = await opened(DROP)
    cursor = await ledger.open_cursor("c", "earliest")
    for _ in range(2):
        await append(ledger, [b"x"] * 8)
        await settle()
        ground.ledgers.fail_appends = StorageFullError("full")
        with pytest.raises(StorageFullError):
            await append(ledger, [b"lost"])
        ground.ledgers.fail_appends = None
        ledger.ready_to_create_new_ledger()
    every = await append(ledger, [b"y"])
    assert [(slot.entries, bool(slot.closed_at_ms)) for slot in ledger.ledgers] == [(8, True), (8, True), (1, False)]
    cursor.ack_cumulative(every[-1])
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [2]


async def test_a_ledger_made_ahead_stays_while_the_failed_ledger_cannot_be_sealed():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 8)
    await settle()
    ground.ledgers.fail_appends = ground.ledgers.fail_closes = StorageFullError("full")
    for _ in range(2):
        with pytest.raises(StorageFullError):
            await append(ledger, [b"lost"])
        ledger.ready_to_create_new_ledger()
    ground.ledgers.fail_appends = ground.ledgers.fail_closes = None
    assert await append(ledger, [b"y"]) == [Position(1, 0)]
    assert await ground.ledgers.list_ledgers() == [0, 1]
    again = await ground.after_crash().open()
    assert [slot.entries for slot in again.ledgers] == [8, 1]


@pytest.mark.parametrize("step", ["create", "save", "delete"])
async def test_an_empty_ledger_with_failed_appends_is_deleted_after_a_failed_creation(monkeypatch, step):
    ground, ledger = await opened()
    away = ground.ledgers.fail_appends = StorageUnavailableError("away")
    with pytest.raises(StorageUnavailableError):
        await append(ledger, [b"x"])
    ground.ledgers.fail_appends = None
    ledger.ready_to_create_new_ledger()

    async def refuse(_of_a_ledger):
        raise away

    with monkeypatch.context() as during:
        if step == "save":
            ground.metadata.fail_writes = away
        else:
            during.setattr(ground.ledgers, step, refuse)
        if step == "delete":
            await append(ledger, [b"x"])
        else:
            with pytest.raises(StorageUnavailableError):
                await append(ledger, [b"x"])
        await settle()
    ground.metadata.fail_writes = None
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"x"])
    await ledger.close()
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in ledger.ledgers]
    again = await ground.after_crash().open()
    assert [slot.entries for slot in again.ledgers] == [1 if step != "delete" else 2]


@pytest.mark.parametrize("layout", [None, PulsarLayout()], ids=["several open", "one open"])
async def test_a_bug_in_the_creation_of_a_ledger_fails_the_append_and_the_next_append_creates_a_ledger(
    monkeypatch, layout
):
    ground = Ground(layout=layout)
    ledger = await ground.open(KEEP)

    async def fail(_properties=None):
        raise RuntimeError("a bug")

    with monkeypatch.context() as during, structlog.testing.capture_logs() as logs:
        during.setattr(ground.ledgers, "create", fail)
        with pytest.raises(StorageError, match="a bug"):
            await append(ledger, [b"x"])
        await settle()
    assert [record["log_level"] for record in logs if "exc_info" in record] == ["error"]
    ledger.ready_to_create_new_ledger()
    assert await append(ledger, [b"x"]) == [Position(0, 0)]


async def test_a_bug_in_the_creation_of_a_reserve_leaves_the_creation_to_the_next_append(monkeypatch):
    ground = Ground(layout=PulsarLayout())
    ledger = await ground.open(KEEP)
    create, bugs = ground.ledgers.create, [RuntimeError("a bug")]
    await append(ledger, [b"x"] * 2)

    async def fail_once(properties=None):
        if bugs:
            raise bugs.pop()
        return await create(properties)

    monkeypatch.setattr(ground.ledgers, "create", fail_once)
    with structlog.testing.capture_logs():
        await append(ledger, [b"x"] * 7)
        await settle()
    assert not bugs
    async with asyncio.timeout(5):
        await append(ledger, [b"y"] * 3)
    assert [slot.entries for slot in ledger.ledgers] == [10, 2]
