"""Ledgers of the store over simulated bookies, beyond the contract that all engines share."""

from __future__ import annotations

import asyncio
import gc

import pytest

from magnetar.storage.errors import StorageError, StorageUnavailableError
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.model.virtual_loop import LoopClock
from tests.storage import managed_for_tests
from tests.storage.bookkeeper.store_for_tests import simulated_store
from tests.storage.engine_for_tests import append, slab_of
from tests.twins.memory_metadata import MemoryMetadataStore
from tests.twins.sim_ledger_metadata import SimLedgerMetadata


@simulated
async def test_ledgers_of_topics_and_schemas_wait_for_bookies_and_those_of_cursors_do_not():
    cluster = SimCluster(3)
    cluster.bookies[0].crash()
    async with simulated_store(cluster=cluster) as store:
        assert store.has_bookies()
        cluster.refresh()
        assert not store.has_bookies()
        loop = asyncio.get_running_loop()
        waiting = [asyncio.ensure_future(store.create({"component": each})) for each in ("managed-ledger", "schema")]
        began_s = loop.time()
        with pytest.raises(StorageUnavailableError, match="not enough bookies"):
            await store.create({"component": "managed-ledger", "pulsar/cursor": "s"})
        assert loop.time() == began_s
        await asyncio.sleep(5)
        cluster.bookies[0].start()
        cluster.refresh()
        assert store.has_bookies()
        assert len({(await each).ledger_id for each in waiting}) == 2
        assert loop.time() - began_s < 6


@simulated
async def test_a_creation_that_waits_for_bookies_can_be_given_up():
    cluster = SimCluster(2)
    async with simulated_store(cluster=cluster) as store:
        loop = asyncio.get_running_loop()
        of = {"component": "managed-ledger", "pulsar/managed-ledger": "a"}
        waiting, other = (
            asyncio.ensure_future(store.create({**of, "pulsar/managed-ledger": name})) for name in ("a", "b")
        )
        await asyncio.sleep(3)
        with pytest.raises(StorageUnavailableError):
            await store.create({**of, "pulsar/cursor": "s"})
        began_s = loop.time()
        store.give_up_creation("a")
        store.give_up_creation("a")
        with pytest.raises(StorageUnavailableError, match="not enough bookies"):
            await waiting
        assert loop.time() == began_s
        store.give_up_creation("a")
        with pytest.raises(StorageUnavailableError):
            await other
        assert loop.time() - began_s == pytest.approx(7)


@simulated
async def test_a_creation_can_be_given_up_before_it_waits_for_bookies():
    async with simulated_store(cluster=SimCluster(2)) as store:
        began, goes_on = asyncio.Event(), asyncio.Event()

        async def groups_later(_properties):
            began.set()
            await goes_on.wait()

        store.isolation_of = groups_later
        creation = asyncio.ensure_future(
            store.create({"component": "managed-ledger", "pulsar/managed-ledger": "a"}),
        )
        await began.wait()
        store.give_up_creation("a")
        goes_on.set()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(StorageUnavailableError, match="not enough bookies"):
            await creation
        assert loop.time() == began_s


@simulated
async def test_a_cancelled_caller_cancels_no_other_caller_that_waits_for_the_same_recovery():
    cluster = SimCluster(3)
    async with simulated_store(cluster=cluster) as former, simulated_store(cluster=cluster) as store:
        writer = await former.create()
        callers = [asyncio.ensure_future(store.open_recover(writer.ledger_id)) for _ in range(3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        infos = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(infos[0], asyncio.CancelledError)
        assert [info.ledger_id for info in infos[1:]] == [writer.ledger_id] * 2


@simulated
async def test_a_recovered_ledger_is_read_without_a_further_look_at_its_metadata(monkeypatch):
    cluster = SimCluster(3)
    async with simulated_store(cluster=cluster) as former, simulated_store(cluster=cluster) as store:
        writer = await former.create()
        await append(writer, [b"entry"])
        looks = []
        read = SimLedgerMetadata.read
        monkeypatch.setattr(SimLedgerMetadata, "read", lambda *given, **named: looks.append(1) or read(*given, **named))
        assert (await store.open_recover(writer.ledger_id)).last_entry_id == 0
        assert looks
        looks.clear()
        assert len(await store.read(writer.ledger_id, 0, 0, 1000)) == 1
        assert not looks


@simulated
async def test_entries_that_another_owner_found_are_readable_where_their_writer_failed():
    cluster = SimCluster(3)
    async with simulated_store(cluster=cluster) as former, simulated_store(cluster=cluster) as store:
        writer = await former.create()
        await append(writer, [b"confirmed"])
        for bookie in cluster.bookies[1:]:
            cluster.network.part(cluster.clients[0].party, bookie)
        unanswered = asyncio.ensure_future(append(writer, [b"stored once"]))
        await asyncio.sleep(0.5)
        assert (await store.open_recover(writer.ledger_id)).last_entry_id == 1
        cluster.network.heal()
        with pytest.raises(StorageError):
            await unanswered
        assert [slab.last_entry_id for slab in await former.read(writer.ledger_id, 0, 1, 1000)] == [0]
        assert [slab.first_entry_id for slab in await former.read(writer.ledger_id, 1, 1, 1000)] == [1]


@simulated
async def test_the_writers_of_a_log_that_moved_away_go_with_the_log():
    cluster, metadata = SimCluster(3), MemoryMetadataStore()
    loop = asyncio.get_running_loop()

    async def open_log(store):
        factory = ManagedLedgerFactory(store, metadata, LoopClock(loop), loop, PulsarLayout())
        return await factory.open(managed_for_tests.NAME, managed_for_tests.KEEP)

    async with simulated_store(cluster=cluster) as former, simulated_store(cluster=cluster) as store:
        log = await open_log(former)
        cursor = await log.open_cursor("c", "earliest")
        positions = await managed_for_tests.append(log, [b"x"] * 4)
        cursor.ack(positions[1])
        await cursor.flush()
        taken = await open_log(store)
        with pytest.raises(StorageError):
            await managed_for_tests.append(log, [b"y"])
        assert [body for _, body, _ in await managed_for_tests.everything(log)] == [b"x"] * 4
        assert len(former._writers) == 2
        await log.close()
        del log, cursor
        await asyncio.sleep(1)
        gc.collect()
        assert not former._writers
        await taken.close()


@simulated
async def test_a_callback_that_fails_keeps_no_other_append_from_its_answer():
    async with simulated_store() as store:
        writer, answers, failures = await store.create(), [], []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context["exception"]))

        def fails(_error):
            raise ZeroDivisionError

        writer.append(slab_of(writer.ledger_id, 0, [b"a"]), fails)
        writer.append(slab_of(writer.ledger_id, 1, [b"b"]), answers.append)
        await writer.wait_idle()
        assert answers == [None]
        assert [type(each) for each in failures] == [ZeroDivisionError]
        assert writer.last_add_confirmed == 1
