"""Orphaned ledgers: the sweep deletes ledgers without an owner and keeps doubtful ledgers."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from magnetar.storage.errors import StorageClosedError, StorageFullError
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.deletion import NotedLog, note_deletion
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.orphaned_ledgers import ManagedLedgerReferences, sweep_orphans
from tests.storage.managed_for_tests import NAME, Ground, append
from tests.storage.records_for_tests import slab_of

OTHERS = {"application": "pulsar", "component": "managed-ledger"}
LISTED = OTHERS | {"pulsar/managed-ledger": NAME}
NEWEST = 1 << 40


async def sweep(ground, newest=NEWEST):
    return await sweep_orphans(ground.ledgers, ground.metadata, [ManagedLedgerReferences(ground.metadata)], newest)


async def with_topic():
    """A topic of two ledgers and a cursor with a ledger of its own."""
    ground = Ground()
    ledger = await ground.open()
    cursor = await ledger.open_cursor("s", "earliest")
    positions = await append(ledger, [b"x"] * 12)
    cursor.ack(positions[3])
    await cursor.flush()
    return ground, ledger


async def filled(ground, properties):
    writer = await ground.ledgers.create(properties)
    writer.append(slab_of(writer.ledger_id, 0, [b"entry"], writer.record_proof), lambda _: None)
    await writer.wait_idle()
    return writer.ledger_id


async def test_named_ledgers_stay_and_unnamed_ledgers_go():
    ground, ledger = await with_topic()
    known = set(await ground.ledgers.list_ledgers())
    assert len(known) >= 3
    orphans = [
        (await ground.ledgers.create(LISTED)).ledger_id,
        await filled(ground, LISTED),
        (await ground.ledgers.create(LISTED | {"pulsar/cursor": "s"})).ledger_id,
        (await ground.ledgers.create(LISTED | {"pulsar/cursor": "gone"})).ledger_id,
        (await ground.ledgers.create(OTHERS | {"pulsar/managed-ledger": "a/b/persistent/never-listed"})).ledger_id,
    ]
    assert await sweep(ground) == orphans
    assert set(await ground.ledgers.list_ledgers()) == known
    assert await sweep(ground) == []
    await append(ledger, [b"goes on"])


async def test_ledgers_made_since_the_start_are_not_looked_at():
    ground, _ = await with_topic()
    newest = max(await ground.ledgers.list_ledgers())
    young = (await ground.ledgers.create(LISTED)).ledger_id
    assert await sweep(ground, newest) == []
    assert await sweep(ground, young) == [young]


@pytest.mark.parametrize("properties", [{}, {"application": "other"}, OTHERS, {"component": "schema"}])
async def test_ledgers_of_unknown_owners_stay(properties):
    ground = Ground()
    await ground.ledgers.create(properties)
    assert await sweep(ground) == []


@pytest.mark.parametrize("path", [ledger_list_path(NAME), cursor_path(NAME, "s")])
async def test_a_record_that_does_not_parse_protects_all_its_ledgers(path):
    ground, ledger = await with_topic()
    await ground.factory.close()
    more = LISTED if path == ledger_list_path(NAME) else LISTED | {"pulsar/cursor": "s"}
    await filled(ground, more)
    before = await ground.ledgers.list_ledgers()
    await ground.metadata.put(path, b"\xff\xff\xff")
    with capture_logs() as logs:
        assert await sweep(ground) == []
    assert await ground.ledgers.list_ledgers() == before
    assert {line["event"] for line in logs} == {"record.unreadable"}


@pytest.mark.parametrize("fails", [True, False])
async def test_the_ledger_of_a_deleted_cursor_goes_where_its_deletion_was_cut_off(monkeypatch, fails):
    """The store does not delete the ledger, or the process ends behind the deletion of the record."""
    ground, ledger = await with_topic()
    stored_at = ledger.cursors["s"].stored_at.ledger_id
    if fails:
        with monkeypatch.context() as patch:

            async def refuses(_ledger_id):
                raise StorageFullError("no space")

            patch.setattr(ground.ledgers, "delete", refuses)
            await ledger.delete_cursor("s")
    else:
        await ground.metadata.delete(cursor_path(NAME, "s"))
        ground = ground.after_crash()
    assert await sweep(ground) == [stored_at]
    await append(await ground.open(), [b"goes on"])


async def test_entries_whose_owner_is_gone_stay_unless_the_owner_said_so():
    ground, _ = await with_topic()
    await ground.factory.close()
    listed = [
        k for k in await ground.ledgers.list_ledgers() if "pulsar/cursor" not in await ground.ledgers.properties(k)
    ]
    await ground.metadata.delete(ledger_list_path(NAME))  # as a damaged database may have lost it
    with capture_logs() as logs:
        assert await sweep(ground) == []
    assert [line["ledger_id"] for line in logs if line["event"] == "orphaned_ledger.kept"] == listed
    await note_deletion(ground.metadata, NotedLog(NAME), listed)
    assert await sweep(ground) == listed
    assert await ground.metadata.children("/deleted-managed-ledgers") == []


async def test_a_deletion_noted_and_not_done_is_forgotten():
    ground, ledger = await with_topic()
    listed = [slot.ledger_id for slot in ledger.ledgers]
    await note_deletion(ground.metadata, NotedLog(NAME), listed)
    assert await sweep(ground) == []
    assert await ground.metadata.children("/deleted-managed-ledgers") == []
    assert set(listed) <= set(await ground.ledgers.list_ledgers())


async def test_a_deletion_under_way_keeps_its_note():
    ground, ledger = await with_topic()
    listed = [slot.ledger_id for slot in ledger.ledgers]
    await note_deletion(ground.metadata, NotedLog(NAME), listed)
    await ground.factory.close()
    await ground.metadata.delete(ledger_list_path(NAME))

    async def stuck(_):
        raise StorageClosedError("stopping")

    ground.ledgers.delete = stuck
    with pytest.raises(StorageClosedError):
        await sweep(ground)
    assert await ground.metadata.children("/deleted-managed-ledgers") != []
