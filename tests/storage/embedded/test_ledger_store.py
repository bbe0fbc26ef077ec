"""Callers that share the load of a ledger's state; ``test_ledger_store_contract.py`` has the contract."""

from __future__ import annotations

import asyncio

import pytest

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
