"""Callers that share the load of a ledger's state; ``test_ledger_store_contract.py`` has the contract."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.storage.embedded import ledger_store
from magnetar.storage.errors import NoSuchLedgerError, StorageError
from tests.storage.engine_for_tests import World, append, read_all, settle


async def test_a_cancelled_reader_cancels_no_other_reader_of_a_ledger_that_is_being_loaded(
    monkeypatch: pytest.MonkeyPatch,
):
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"entry"])
    await storage.close()
    again = await world.open()
    catalog, go_on = again.ledgers._catalog, asyncio.Event()
    get = catalog.get

    async def slow_get(ledger_id: int) -> object:
        await go_on.wait()
        return await get(ledger_id)

    monkeypatch.setattr(catalog, "get", slow_get)
    ids = [writer.ledger_id] * 3 + [writer.ledger_id + 1] * 2
    readers = [asyncio.ensure_future(read_all(again.ledgers, ledger_id, 0)) for ledger_id in ids]
    await settle()
    readers[0].cancel()
    readers[3].cancel()
    go_on.set()
    found = await asyncio.gather(*readers, return_exceptions=True)
    assert found[1:3] == [[b"entry"]] * 2
    assert isinstance(found[4], NoSuchLedgerError)
    await again.close()


async def test_readers_that_share_a_failed_load_fail_together(monkeypatch: pytest.MonkeyPatch):
    """Each loaded again and woke all others: the work grew with the square of their number."""
    storage = await World().open()
    catalog, attempts = storage.ledgers._catalog, []
    get = catalog.get

    async def slow_get(ledger_id: int) -> object:
        attempts.append(ledger_id)
        await settle()
        return await get(ledger_id)

    monkeypatch.setattr(catalog, "get", slow_get)
    found = await asyncio.gather(*(read_all(storage.ledgers, 7, 0) for _ in range(10)), return_exceptions=True)
    assert {type(each) for each in found} == {NoSuchLedgerError}
    assert attempts == [7]
    await storage.close()


async def test_a_ledger_closes_after_the_caller_of_an_earlier_close_was_cancelled():
    """The metadata had the end, with a version that this process did not know: the topic could not be loaded."""
    storage = await World().open()
    writer = await storage.ledgers.create()
    await append(writer, [b"entry"])
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await settle()
    assert closing.cancelled()
    assert (await storage.ledgers.open_recover(writer.ledger_id)).entries == 1
    await storage.close()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
async def test_a_read_without_memory_or_threads_fails_like_other_reads(error, monkeypatch):
    """Dispatch reads again after a StorageError only."""
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"entry"])
    await storage.close()
    again = await world.open()
    run, loop = again._parts.read_pool.run, asyncio.get_running_loop()
    with monkeypatch.context() as patch:
        patch.setattr(again._parts.read_pool, "run", lambda _job, done: loop.call_soon(done, None, error))
        with pytest.raises(StorageError):
            await read_all(again.ledgers, writer.ledger_id, 0)
    assert again._parts.read_pool.run == run
    assert await read_all(again.ledgers, writer.ledger_id, 0) == [b"entry"]
    await again.close()


class _NotWalked(dict):
    """A dict of states that no caller may walk through: a walk takes as long as there are states."""

    def __iter__(self):
        raise AssertionError("a walk through all states")

    items = values = keys = __iter__


async def closed_ledgers(storage, count):
    writers = [await storage.ledgers.create() for _ in range(count)]
    for writer in writers:
        await append(writer, [b"entry"])
        await writer.close()
    return [writer.ledger_id for writer in writers]


async def test_states_of_closed_ledgers_have_a_bound_beside_any_number_of_open_ledgers(monkeypatch):
    """With 70,000 open ledgers each load of a ledger once walked through the states of all."""
    monkeypatch.setattr(ledger_store, "_MAX_CLOSED_STATES", 5)
    storage = await World().open()
    store = storage.ledgers
    store._states = _NotWalked(store._states)
    still_open = [await store.create() for _ in range(30)]
    ids = await closed_ledgers(storage, 20)
    await storage.checkpoint()
    await closed_ledgers(storage, 5)
    assert len(store._states) - len(still_open) == 5
    for ledger_id in ids:
        assert await read_all(store, ledger_id, 0) == [b"entry"]
        assert (await store.open_recover(ledger_id)).last_entry_id == 0
        assert len(store._states) - len(still_open) <= 10, "five of them wait for their checkpoint"
    assert all(writer.ledger_id in store._states for writer in still_open)
    await storage.close()


async def test_the_state_of_a_closed_ledger_stays_until_its_checkpoint(monkeypatch):
    """Another state of the ledger would not know that the checkpoint has still to seal the file."""
    monkeypatch.setattr(ledger_store, "_MAX_CLOSED_STATES", 2)
    storage = await World().open()
    store = storage.ledgers
    ids = await closed_ledgers(storage, 12)
    assert set(ids) <= set(store._states), "none has been sealed"
    await storage.checkpoint()
    await store.delete(ids[0])
    for ledger_id in ids[1:]:
        assert await read_all(store, ledger_id, 0) == [b"entry"]
    await closed_ledgers(storage, 8)
    assert len(set(ids) & set(store._states)) <= 2
    await storage.close()
