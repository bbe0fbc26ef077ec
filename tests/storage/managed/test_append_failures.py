"""Appends that the store fails: the order of failures, resuming, fenced ledgers."""

from __future__ import annotations

import dataclasses

import pytest

from magnetar.storage.errors import (
    LedgerFencedError,
    ManagedLedgerFencedError,
    StorageFullError,
    WriteFailedError,
)
from magnetar.storage.managed.managed_ledger import AppendPiece, AppendState
from magnetar.storage.position import Position
from tests.storage.managed_for_tests import (
    KEEP,
    NAME,
    Ground,
    append,
    everything,
    indexes,
    opened,
    run_of,
    settle,
)

FULL = StorageFullError("full")


async def test_a_failed_append_fails_later_appends_until_resumed():
    ground, ledger = await opened()
    await append(ledger, [b"kept"])
    ground.ledgers.hold()
    results = []
    for _ in range(3):
        ledger.append(run_of([b"lost"] * 5), results.append)
    await settle()
    ground.ledgers.fail_appends = FULL
    ground.ledgers.release()
    await settle()
    assert [result.error for result in results] == [FULL, FULL, FULL]
    assert all(result.pieces == [] for result in results)
    assert ledger.state is AppendState.WRITE_FAILED
    ground.ledgers.fail_appends = None
    ledger.append(run_of([b"refused"]), results.append)
    assert len(results) == 3
    await settle()
    assert isinstance(results[3].error, WriteFailedError)
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"again"])
    assert indexes(await everything(ledger)) == [0, 1]
    assert ledger.last_confirmed.ledger_id > 0


async def test_resuming_too_early_is_refused():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.ledgers.hold()
    ledger.append(run_of([b"x"]), lambda _result: None)
    ledger._appender.state = AppendState.WRITE_FAILED
    with pytest.raises(AssertionError):
        ledger.ready_to_create_new_ledger()
    ground.ledgers.release()
    await settle()
    ledger.ready_to_create_new_ledger()
    ledger.ready_to_create_new_ledger()
    assert ledger.state is AppendState.OPEN


async def test_a_split_run_that_fails_in_the_middle_reports_the_stored_entries():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 8)
    await settle()
    results = []
    ledger.append(run_of([b"y"] * 6, [2] * 6), results.append)
    writer = ground.ledgers._ledgers[1]
    writer.refuse = LedgerFencedError
    await settle()
    assert results[0].pieces == [AppendPiece(0, 8, 0, 2)]
    assert isinstance(results[0].error, LedgerFencedError)
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"z"])
    assert indexes(await everything(ledger)) == [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12]


async def test_a_failed_ledger_without_entries_disappears():
    ground, ledger = await opened()
    ground.ledgers.fail_appends = FULL
    with pytest.raises(StorageFullError):
        await append(ledger, [b"x"])
    ground.ledgers.fail_appends = None
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"y"])
    await settle()
    assert [slot.entries for slot in ledger.ledgers] == [1]
    assert await ground.ledgers.list_ledgers() == [1]


async def test_entries_reported_as_failed_that_exist_after_all_count_from_the_next_opening_on():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 2)
    ground.ledgers.fail_appends = FULL
    with pytest.raises(StorageFullError):
        await append(ledger, [b"there"], [4])
    ground.ledgers.fail_appends = None
    # as after a lost answer of a remote store: the entry is on its disk
    from magnetar.protocol.speed import stamp
    from magnetar.storage.slab import Slab

    run = run_of([b"there"], [4])
    writer = ground.ledgers._ledgers[0]
    writer._confirm(Slab(0, 2, *stamp(run.data, run.offsets, run.num_messages, 0, 1, 0, 2, 1, -1, 1)))
    heard = []
    ledger.add_listener(lambda: heard.append(1))
    ledger.ready_to_create_new_ledger()
    for _ in range(2):
        with pytest.raises(ManagedLedgerFencedError):
            await append(ledger, [b"there"], [4])
    assert indexes(await everything(ledger)) == [0, 1, 5]
    assert heard
    await ledger.close()
    again = await ground.open()
    await append(again, [b"next"])
    assert indexes(await everything(again)) == [0, 1, 5, 6]
    assert len(await ground.ledgers.list_ledgers()) == 2


async def test_a_failed_ledger_that_is_gone_is_forgotten():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.ledgers.fail_appends = FULL
    with pytest.raises(StorageFullError):
        await append(ledger, [b"y"])
    ground.ledgers.fail_appends = None
    await ground.ledgers.delete(0)
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"z"])
    assert indexes(await everything(ledger)) == [1]


async def test_no_ledger_can_be_created():
    ground, ledger = await opened()
    ground.metadata.fail_writes = FULL
    results = []
    ledger.append(run_of([b"x"]), results.append)
    ledger.append(run_of([b"x"]), results.append)
    await settle()
    assert [result.error for result in results] == [FULL, FULL]
    assert ledger.state is AppendState.WRITE_FAILED
    ground.metadata.fail_writes = None
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"y"])
    assert ledger.entries == 1


async def test_a_ledger_ahead_that_cannot_be_created_is_tried_again_later():
    ground, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=100))
    await append(ledger, [b"x"] * 70)
    ground.metadata.fail_writes = FULL
    await append(ledger, [b"x"] * 15)
    await settle()
    assert ledger.state is AppendState.OPEN
    ground.metadata.fail_writes = None
    await append(ledger, [b"x"])
    await settle()
    assert ledger._switch._ahead is None
    ground.scheduler.advance(11)
    await append(ledger, [b"x"])
    await settle()
    assert ledger._switch._ahead is not None


async def test_another_owner_fences_this_owner():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 3)
    other = Ground(ground.ledgers, ground.metadata)
    taken = await other.open()
    assert taken.last_confirmed == Position(0, 2)
    with pytest.raises(LedgerFencedError):
        await append(ledger, [b"y"])
    ledger.ready_to_create_new_ledger()
    with pytest.raises(ManagedLedgerFencedError):
        await append(ledger, [b"y"])
    assert ledger.state is AppendState.FENCED
    with pytest.raises(ManagedLedgerFencedError):
        await append(ledger, [b"y"])
    with pytest.raises(ManagedLedgerFencedError):
        await ledger.open_cursor("c")
    with pytest.raises(ManagedLedgerFencedError):
        await ledger.terminate()
    await ground.factory.close()
    await append(taken, [b"z"])
    assert indexes(await everything(taken)) == [0, 1, 2, 3]


async def test_fencing_is_noticed_when_a_ledger_is_sealed():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 3)
    value, _ = await ground.metadata.get("/managed-ledgers/" + NAME)
    await ground.metadata.put("/managed-ledgers/" + NAME, value)
    await ledger.roll()
    assert ledger.state is AppendState.FENCED
