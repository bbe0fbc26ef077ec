"""The look at cursors during an opening: it saves answers of the metadata store, and its findings never count over the
records behind the save of the list.
"""

from __future__ import annotations

import pytest

from magnetar.storage.errors import LedgerFencedError, StorageUnavailableError
from magnetar.storage.managed import factory
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import KEEP, NAME, Ground, append, settle

PATH = f"/managed-ledgers/{NAME}"


async def written(cursors=1):
    """A log that its owner writes, with a cursor ledger for each cursor; the former owner's log."""
    ground = Ground(layout=PulsarLayout())
    log = await ground.open(KEEP)
    positions = await append(log, [b"x"] * 6)
    for number in range(cursors):
        cursor = await log.open_cursor(f"s{number}", "earliest")
        cursor.ack(positions[1])
        await cursor.flush()
    return ground, log, positions


def next_owner(ground):
    return Ground(ground.ledgers, ground.metadata, PulsarLayout())


def acting_before_the_save(monkeypatch, act):
    """The former owner acts once, when the opening has looked at the cursors and not yet stored the list."""
    recover = factory.recover_ledgers

    async def overtaken(env, ledger_list):
        await settle()
        await act()
        return await recover(env, ledger_list)

    monkeypatch.setattr(factory, "recover_ledgers", overtaken)


async def test_each_cursor_ledger_is_recovered_once(monkeypatch):
    ground, _, positions = await written(cursors=3)
    taken = next_owner(ground)
    recovered, recover = [], ground.ledgers.open_recover

    async def counted(ledger_id):
        recovered.append(ledger_id)
        return await recover(ledger_id)

    monkeypatch.setattr(ground.ledgers, "open_recover", counted)
    log = await taken.open(KEEP)
    assert sorted(recovered) == sorted(set(recovered))
    assert len(recovered) == 4
    assert [cursor.is_deleted(positions[1]) for cursor in log.cursors.values()] == [True] * 3


async def test_an_acknowledgement_that_is_stored_behind_the_look_counts(monkeypatch):
    ground, former, positions = await written()

    async def acknowledge():
        former.cursors["s0"].ack(positions[3])
        with pytest.raises(LedgerFencedError):  # the look has recovered the cursor ledger; the next save gets another
            await former.cursors["s0"].flush()
        await former.cursors["s0"].flush()

    acting_before_the_save(monkeypatch, acknowledge)
    log = await next_owner(ground).open(KEEP)
    assert [log.cursors["s0"].is_deleted(each) for each in positions[:5]] == [False, True, False, True, False]


async def test_cursors_that_come_and_go_behind_the_look_count(monkeypatch):
    ground, former, _ = await written(cursors=2)

    async def change():
        await former.delete_cursor("s0")
        await former.open_cursor("new", "earliest")

    acting_before_the_save(monkeypatch, change)
    log = await next_owner(ground).open(KEEP)
    assert sorted(log.cursors) == ["new", "s1"]


async def test_a_failure_of_the_look_fails_no_opening(monkeypatch):
    ground, _, positions = await written()
    taken, get, failed = next_owner(ground), ground.metadata.get, []

    async def fails_once(path):
        if path == f"{PATH}/s0" and not failed:
            failed.append(path)
            raise StorageUnavailableError("away")
        return await get(path)

    monkeypatch.setattr(taken.metadata, "get", fails_once)
    log = await taken.open(KEEP)
    assert failed
    assert log.cursors["s0"].is_deleted(positions[1])


async def test_a_closed_log_is_opened_without_a_look(monkeypatch):
    ground, former, _ = await written()
    await former.close()
    reads, get = [], ground.metadata.get

    async def counted(path):
        reads.append(path)
        return await get(path)

    monkeypatch.setattr(ground.metadata, "get", counted)
    await next_owner(ground).open(KEEP)
    assert reads.count(f"{PATH}/s0") == 1
