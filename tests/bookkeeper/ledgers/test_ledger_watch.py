"""Writers that notice a recovery without an add."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from weakref import ref

import pytest

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.errors import LedgerFencedError
from magnetar.bookkeeper.ledgers.ledger_watch import WATCHES_TOGETHER, LedgerWatch
from magnetar.bookkeeper.options import LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.waiting import until

E3 = LedgerOptions(3, 3, 2)


async def writer_of(cluster):
    member = cluster.join()
    writer = await member.client.create(E3)
    await writer.append(b"a")
    return member, writer


@simulated
async def test_a_fenced_writer_learns_of_a_recovery_at_once():
    cluster = SimCluster()
    member, writer = await writer_of(cluster)
    fenced = []
    member.client.on_fenced = fenced.append
    await cluster.join().client.recover(writer.ledger_id)
    await until(lambda: writer.failure is not None, 5, "the end of the writer")
    assert isinstance(writer.failure, LedgerFencedError)
    assert fenced == [writer.ledger_id]
    with pytest.raises(LedgerFencedError):
        await writer.append(b"b")
    await cluster.close()


@simulated
async def test_a_deleted_ledger_ends_its_writer():
    cluster = SimCluster()
    _, writer = await writer_of(cluster)
    await cluster.join().client.delete(writer.ledger_id)
    await until(lambda: isinstance(writer.failure, LedgerFencedError), 5, "the end of the writer")
    await cluster.close()


@simulated
async def test_changes_of_the_writer_itself_end_nothing():
    cluster = SimCluster(bookies=4)
    member, writer = await writer_of(cluster)
    fenced = []
    member.client.on_fenced = fenced.append
    first = writer.metadata.last_segment.bookies
    cluster.network.bookies[first[0]].crash()
    cluster.refresh()
    await writer.append(b"b")
    await until(lambda: writer.metadata.last_segment.bookies != first, 60, "another bookie")
    await writer.append(b"c")
    assert writer.failure is None
    assert (await writer.close()).last_entry_id == 2
    await until(lambda: not cluster.service.watches.get(writer.ledger_id), 60, "the last report")
    assert fenced == []
    await cluster.close()


@simulated
async def test_a_service_that_is_away_delays_the_watch_and_ends_nothing():
    cluster = SimCluster()
    member = cluster.join()
    writer = await member.client.create(E3)
    cluster.service.up = False
    cluster.service.changed(writer.ledger_id)  # as after the loss of a connection
    await until(lambda: cluster.service.loop.time() > 20, 60, "some time")
    assert writer.failure is None
    cluster.service.up = True
    await until(lambda: cluster.service.watches.get(writer.ledger_id), 60, "another watch")
    await writer.append(b"a")
    await cluster.close()


@simulated
async def test_watches_that_return_after_an_outage_leave_room_for_other_requests():
    cluster = SimCluster()
    member = cluster.join()
    writers = [await member.client.create(E3) for _ in range(200)]
    await until(lambda: len(cluster.service.watches) == 200, 60, "the first watches")
    under_way, most, watch = 0, 0, member.store.watch

    async def counted(*arguments):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await watch(*arguments)
        finally:
            under_way -= 1

    member.store.watch = counted
    for writer in writers:  # as after the loss of a connection
        cluster.service.changed(writer.ledger_id)
    await until(lambda: len([each for each in cluster.service.watches.values() if each]) == 200, 60, "new watches")
    assert 1 < most <= WATCHES_TOGETHER
    await cluster.close()


async def test_a_watch_that_never_fires_keeps_no_closed_writer_in_memory():
    watches = []

    class Store:
        async def watch(self, _ledger_id, changed):
            watches.append(changed)
            return 0

    class Writer:
        ledger_id, is_open = 1, True
        owned = SimpleNamespace(version=0)

    background = Background("test")
    context = SimpleNamespace(background=background, watch_slots=asyncio.Semaphore(1), store=Store())
    writer = Writer()
    LedgerWatch(writer, context).start()
    await until(lambda: watches)
    await background.close()
    known = ref(writer)
    del writer
    assert known() is None
    watches[0]()
