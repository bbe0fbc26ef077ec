"""The contract of every LedgerStore; the in-memory store, the embedded engine and the store on BookKeeper pass the same
tests (on simulated bookies here, on real bookies in ``tests/cluster``, beside the ledgers of others).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from magnetar.storage.errors import (
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageClosedError,
    StorageError,
)
from tests.storage.bookkeeper.store_for_tests import simulated_store
from tests.storage.engine_for_tests import TINY, World, append, read_all, settle
from tests.storage.records_for_tests import bodies_of, slab_of
from tests.twins.memory_ledgers import MemoryLedgerStore

UNKNOWN = 1_999_999_999


@pytest.fixture(params=["memory", "embedded", "embedded, nothing cached", "bookkeeper", "bookkeeper, nothing cached"])
async def ledgers(request):
    nothing_cached = "nothing" in request.param
    if request.param == "memory":
        store = MemoryLedgerStore(max_record_bytes=64 << 10)
        yield store
        await store.close()
    elif "bookkeeper" in request.param:
        async with simulated_store(cache_bytes=0 if nothing_cached else 1 << 20) as store:
            yield store
    else:
        storage = await World().open(replace(TINY, cache_bytes=0) if nothing_cached else TINY)
        yield storage.ledgers
        await storage.close()


async def test_entries_come_back_in_order(ledgers):
    writer = await ledgers.create({"owner": "t"})
    bodies = [b"%d" % k * (k * 37 % 500) for k in range(60)]
    for start in range(0, 60, 5):
        await append(writer, bodies[start : start + 5])
    await settle()
    assert writer.last_add_confirmed == writer.last_add_pushed == 59
    assert await read_all(ledgers, writer.ledger_id, 59) == bodies
    assert bodies_of(await ledgers.read(writer.ledger_id, 17, 17, 1), 17, 17) == [bodies[17]]
    assert bodies_of(await ledgers.read(writer.ledger_id, 58, 99, 1 << 20), 58, 99) == bodies[58:]
    info = await writer.close()
    assert (info.ledger_id, info.last_entry_id, info.properties["owner"]) == (writer.ledger_id, 59, "t")
    assert info.length_bytes == sum(32 + len(body) for body in bodies)
    assert await read_all(ledgers, writer.ledger_id, 59) == bodies


async def test_done_comes_later_in_order_and_entries_are_readable_then(ledgers):
    writer = await ledgers.create()
    answers = []

    def done(number, error):
        assert error is None
        assert writer.last_add_confirmed >= number
        assert ledgers.read_cached(writer.ledger_id, 10**9, 10**9, 1) is None
        answers.append(number)

    for number in range(8):
        writer.append(
            slab_of(writer.ledger_id, number, [b"x"], writer.record_proof),
            lambda error, number=number: done(number, error),
        )
    assert answers == []
    assert writer.last_add_pushed == 7
    assert writer.last_add_confirmed == -1
    await writer.close()
    assert answers == list(range(8))


async def test_ledger_ids_ascend(ledgers):
    others = set(await ledgers.list_ledgers())
    ids = [(await ledgers.create()).ledger_id for _ in range(3)]
    await ledgers.delete(ids[-1])
    ids.append((await ledgers.create()).ledger_id)
    assert ids == sorted(set(ids))
    found = await ledgers.list_ledgers()
    assert found == sorted(found)
    assert set(found) - others == {*ids} - {ids[2]}


async def test_concurrent_creates_get_different_ids(ledgers):
    writers = await asyncio.gather(*(ledgers.create() for _ in range(70)))
    assert len({writer.ledger_id for writer in writers}) == 70


async def test_closed_writer_refuses_appends(ledgers):
    writer = await ledgers.create()
    await append(writer, [b"a"])
    assert (await writer.close()).last_entry_id == 0
    with pytest.raises(LedgerClosedError):
        await append(writer, [b"b"])
    assert writer.last_add_pushed == 0
    assert (await writer.close()).last_entry_id == 0


async def test_recovery_fences_the_writer_and_keeps_confirmed_entries(ledgers):
    writer = await ledgers.create()
    await append(writer, [b"a", b"b"])
    answers = []
    writer.append(slab_of(writer.ledger_id, 2, [b"c"], writer.record_proof), answers.append)
    info = await ledgers.open_recover(writer.ledger_id)
    assert answers == [None]
    assert info.last_entry_id == 2
    with pytest.raises(LedgerFencedError):
        await append(writer, [b"d"])
    assert await ledgers.open_recover(writer.ledger_id) == info


async def test_empty_ledger(ledgers):
    writer = await ledgers.create()
    with pytest.raises(NoSuchEntryError):
        await ledgers.read(writer.ledger_id, 0, 0, 1)
    assert (await writer.close()).last_entry_id == -1
    assert (await ledgers.open_recover(writer.ledger_id)).entries == 0


async def test_reading_beyond_the_end(ledgers):
    writer = await ledgers.create()
    await append(writer, [b"a"])
    for entry in (1, 5, -1):
        with pytest.raises(NoSuchEntryError):
            await ledgers.read(writer.ledger_id, entry, entry, 1)
    assert ledgers.read_cached(writer.ledger_id, 1, 1, 1) is None


async def test_unknown_ledger(ledgers):
    with pytest.raises(NoSuchLedgerError):
        await ledgers.open_recover(UNKNOWN)
    with pytest.raises(NoSuchLedgerError):
        await ledgers.read(UNKNOWN, 0, 0, 1)
    assert ledgers.read_cached(UNKNOWN, 0, 0, 1) is None
    await ledgers.delete(UNKNOWN)


async def test_deleted_ledger_is_gone(ledgers):
    keep, gone = await ledgers.create(), await ledgers.create()
    await append(keep, [b"k"])
    await append(gone, [b"g"])
    await ledgers.delete(gone.ledger_id)
    await ledgers.delete(gone.ledger_id)
    with pytest.raises(NoSuchLedgerError):
        await ledgers.read(gone.ledger_id, 0, 0, 1)
    with pytest.raises(NoSuchLedgerError):
        await append(gone, [b"h"])
    assert ledgers.read_cached(gone.ledger_id, 0, 0, 1) is None
    found = await ledgers.list_ledgers()
    assert keep.ledger_id in found
    assert gone.ledger_id not in found
    assert await read_all(ledgers, keep.ledger_id, 0) == [b"k"]


async def test_too_large_an_entry_fails_with_the_appends_behind_it(ledgers):
    writer = await ledgers.create()
    await append(writer, [b"a"])
    answers = []
    writer.append(slab_of(writer.ledger_id, 1, [b"x" * (65 << 10)], writer.record_proof), answers.append)
    writer.append(slab_of(writer.ledger_id, 2, [b"behind"], writer.record_proof), answers.append)
    await settle()
    assert isinstance(answers[0], EntryTooLargeError)
    assert answers[1] is not None
    assert writer.last_add_pushed == 0
    await append(writer, [b"b"])
    assert await read_all(ledgers, writer.ledger_id, 1) == [b"a", b"b"]


async def test_an_append_out_of_order_is_our_bug(ledgers):
    writer = await ledgers.create()
    with pytest.raises(AssertionError):
        writer.append(slab_of(writer.ledger_id, 1, [b"x"], writer.record_proof), lambda _: None)
    with pytest.raises(AssertionError):
        writer.append(slab_of(writer.ledger_id + 1, 0, [b"x"], writer.record_proof), lambda _: None)


async def test_closed_store(ledgers):
    await ledgers.close()
    with pytest.raises(StorageClosedError):
        await ledgers.create()
    with pytest.raises(StorageClosedError):
        await ledgers.list_ledgers()


async def test_appends_to_a_store_that_closes_are_answered_in_order(ledgers):
    writers = [await ledgers.create() for _ in range(2)]
    answers = [[] for _ in writers]

    def push():
        for writer, given in zip(writers, answers, strict=True):
            slab = slab_of(writer.ledger_id, writer.last_add_pushed + 1, [b"x"], writer.record_proof)
            number = pushed[writer.ledger_id] = pushed.get(writer.ledger_id, -1) + 1
            writer.append(slab, lambda error, number=number, given=given: given.append((number, error)))

    pushed = {}
    push()
    closing = asyncio.create_task(ledgers.close())
    while not closing.done():
        push()
        await asyncio.sleep(0)
    for _ in range(3):
        push()
        await settle()
    await settle()
    for writer, given in zip(writers, answers, strict=True):
        assert [number for number, _ in given] == list(range(pushed[writer.ledger_id] + 1))
        assert isinstance(given[-1][1], StorageError)
        assert writer.last_add_pushed == writer.last_add_confirmed
