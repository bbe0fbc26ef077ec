"""The reserve that an opening creates for producers that come back to a log whose owner was writing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.storage.errors import NoSuchLedgerError, StorageFullError
from magnetar.storage.managed import early_reserve
from magnetar.storage.managed.stored_layout import OwnLayout
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import KEEP, Ground, append, settle


async def left(layout, *, closed=False, entries=3):
    """The stores behind an owner that has written so many entries; the ground of the next owner."""
    ground = Ground(layout=layout)
    log = await ground.open(KEEP)
    await append(log, [b"x"] * entries)
    if closed:
        await log.close()
        await settle()
    return Ground(ground.ledgers, ground.metadata, layout)


async def ledgers(ground):
    await settle()
    return await ground.ledgers.list_ledgers()


async def test_the_first_append_uses_the_reserve():
    ground = await left(PulsarLayout())
    log = await ground.open(KEEP)
    assert await ledgers(ground) == [0, 1]
    assert [slot.ledger_id for slot in log.ledgers] == [0]
    (position,) = await append(log, [b"y"])
    assert position.ledger_id == 1
    assert await ledgers(ground) == [0, 1]


@pytest.mark.parametrize(
    ("layout", "closed", "entries"),
    [
        pytest.param(PulsarLayout(), True, 3, id="closed"),
        pytest.param(OwnLayout(), False, 3, id="embedded"),
    ],
)
async def test_no_other_log_gets_a_reserve(layout, closed, entries):
    ground = await left(layout, closed=closed, entries=entries)
    await ground.open(KEEP)
    assert await ledgers(ground) == [0]


async def test_without_bookies_no_reserve_is_begun():
    ground = await left(PulsarLayout())
    ground.may_roll = False
    await ground.open(KEEP)
    assert await ledgers(ground) == [0]


async def test_a_reserve_that_no_append_needs_goes_after_a_minute():
    ground = await left(PulsarLayout())
    log = await ground.open(KEEP)
    await settle()
    log.set_config(replace(KEEP, max_rollover_ms=5000))  # policies of the topic, read behind the opening
    ground.scheduler.advance(61)
    assert await ledgers(ground) == [0]
    await append(log, [b"y"])
    assert await ledgers(ground) == [0, 2]


async def test_a_reserve_goes_with_the_close():
    ground = await left(PulsarLayout())
    log = await ground.open(KEEP)
    await log.close()
    assert await ledgers(ground) == [0]


async def test_an_opening_that_fails_leaves_no_ledger(monkeypatch):
    ground = await left(PulsarLayout())

    async def lost(_path):
        raise StorageFullError

    monkeypatch.setattr(ground.metadata, "children", lost)
    with pytest.raises(StorageFullError):
        await ground.open(KEEP)
    assert await ledgers(ground) == [0]
    monkeypatch.undo()

    async def gone(ledger_id):
        raise NoSuchLedgerError(ledger_id)

    monkeypatch.setattr(ground.ledgers, "open_recover", gone)
    monkeypatch.setattr(PulsarLayout, "opens_without_last_ledger", False)
    with pytest.raises(NoSuchLedgerError):
        await ground.open(KEEP)
    assert await ledgers(ground) == [0]


async def test_a_reserve_that_cannot_be_created_fails_nothing(monkeypatch):
    ground = await left(PulsarLayout())
    create, failed = ground.ledgers.create, []

    async def fails_once(properties=None):
        if not failed:
            failed.append(properties)
            raise StorageFullError
        return await create(properties)

    monkeypatch.setattr(ground.ledgers, "create", fails_once)
    log = await ground.open(KEEP)
    await append(log, [b"y"])
    assert failed == [early_reserve.ledger_properties(log.name)]


async def test_a_ledger_asked_for_while_the_reserve_is_created():
    ground = await left(PulsarLayout())
    log = await ground.open(KEEP)
    await log.ensure_open_ledger()
    assert log.newest_position == (1, -1)
