"""However often an attempt fails, at most one ledger that no record names is left, and none once the store works."""

import pytest

from magnetar.storage.errors import StorageError, StorageFullError
from magnetar.storage.managed.unlisted_ledgers import UnlistedLedgers
from tests.storage.managed_for_tests import KEEP, Ground, append, settle
from tests.twins.memory_ledgers import MemoryLedgerStore

FULL = StorageFullError("full")
ATTEMPTS = 5


async def named(ground, ledger):
    """Ledgers of the list and of the cursors."""
    ids = {slot.ledger_id for slot in ledger.ledgers}
    return ids | {c._saver._store._ledger_id for c in ledger.cursors.values()} - {-1}


async def failing_saves(ground, cursor, positions):
    for position in positions:
        cursor.ack(position)
        with pytest.raises(StorageError):
            await cursor.flush()


async def test_saves_of_a_cursor_on_a_full_disk_leave_no_ledger():
    ground = Ground()
    ledger = await ground.open()
    positions = await append(ledger, [b"x"] * 7)
    cursor = await ledger.open_cursor("s", "earliest")
    ground.ledgers.fail_appends = FULL
    for position in positions[1 : 1 + ATTEMPTS]:
        cursor.ack(position)
        await cursor.flush()  # into the record
    assert set(await ground.ledgers.list_ledgers()) == await named(ground, ledger)
    ground.ledgers.fail_appends = None
    await cursor.flush()
    assert set(await ground.ledgers.list_ledgers()) == await named(ground, ledger)
    again = await ground.after_crash().open()
    assert again.cursors["s"].backlog_entries == 7 - ATTEMPTS


async def test_a_record_that_cannot_be_written_leaves_one_ledger_until_it_can():
    ground = Ground()
    ledger = await ground.open()
    positions = await append(ledger, [b"x"] * 7)
    cursor = await ledger.open_cursor("s", "earliest")
    ground.metadata.fail_writes = FULL
    await failing_saves(ground, cursor, positions[1 : 1 + ATTEMPTS])
    assert len(set(await ground.ledgers.list_ledgers()) - await named(ground, ledger)) == 1
    ground.metadata.fail_writes = None
    await cursor.flush()
    assert set(await ground.ledgers.list_ledgers()) == await named(ground, ledger)
    again = await ground.after_crash().open()
    assert again.cursors["s"].backlog_entries == 7 - ATTEMPTS


@pytest.mark.parametrize("end", ["close", "delete_cursor"])
async def test_ledgers_of_a_failed_attempt_go_with_the_cursor(end):
    ground = Ground()
    ledger = await ground.open()
    positions = await append(ledger, [b"x"] * 7)
    cursor = await ledger.open_cursor("s", "earliest")
    ground.metadata.fail_writes = FULL
    await failing_saves(ground, cursor, positions[1:2])
    ground.metadata.fail_writes = None
    await (ledger.close() if end == "close" else ledger.delete_cursor("s"))
    assert await ground.ledgers.list_ledgers() == [0]


async def test_appends_while_the_list_cannot_be_written_leave_one_ledger():
    ground = Ground()
    ledger = await ground.open(KEEP)
    ground.metadata.fail_writes = FULL
    for _ in range(ATTEMPTS):
        with pytest.raises(StorageError):
            await append(ledger, [b"x"])
        await settle()
        ledger.ready_to_create_new_ledger()
    assert len(await ground.ledgers.list_ledgers()) == 1
    ground.metadata.fail_writes = None
    await append(ledger, [b"x"])
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in ledger.ledgers]


async def test_a_ledger_that_the_record_may_name_stays_until_the_record_is_written():
    store, records = MemoryLedgerStore(), []

    async def store_record():
        if not records:
            raise FULL

    unlisted = UnlistedLedgers(store)
    first = await unlisted.create({}, store_record)
    unlisted.record_in_doubt()
    with pytest.raises(StorageFullError):
        await unlisted.create({}, store_record)
    assert await store.list_ledgers() == [first.ledger_id]
    records.append("written")
    second = await unlisted.create({}, store_record)
    assert await store.list_ledgers() == [second.ledger_id]
    unlisted.listed(second.ledger_id)
    await unlisted.delete(store_record)
    assert await store.list_ledgers() == [second.ledger_id]
