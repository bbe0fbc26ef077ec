"""Bookies whose cable is lost: no byte of theirs arrives, no attempt to connect ends before its deadline."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import LedgerClosedError
from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated

E3 = LedgerOptions(3, 3, 2)
E2 = LedgerOptions(2, 2, 2)
CONNECT_S = ClientOptions().connect_timeout_s


def now_s():
    return asyncio.get_running_loop().time()


async def add(writer, count, tag="x"):
    payloads = [f"{tag}{number}".encode() for number in range(count)]
    await asyncio.gather(*(writer.append(payload) for payload in payloads))
    return payloads


def drop(bookie):
    """Cut the connections to this bookie."""
    for link in list(bookie.links):
        link.cut()


async def contents(client, writer):
    reader = await client.open(writer.ledger_id)
    return [bytes(entry.payload) async for entry in reader.entries()]


@simulated
async def test_a_new_ledger_confirms_its_first_entries_without_the_lost_bookie():
    cluster = SimCluster(3)
    one = cluster.join()
    cluster.network.part(one.party, cluster.bookies[0])
    writer = await one.client.create(E3)
    began = now_s()
    entries = await add(writer, 5)
    assert now_s() - began < 0.5
    cluster.network.heal()
    await asyncio.sleep(2 * CONNECT_S)
    assert cluster.bookies[0].holds(writer.ledger_id, 4) or not cluster.bookies[0].ledgers
    entries += await add(writer, 5)
    assert cluster.bookies[0].holds(writer.ledger_id, 9)
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


@simulated
async def test_a_recovery_needs_no_connection_to_the_lost_bookie():
    cluster = SimCluster(3)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 5)
    one.party.pause()
    two = cluster.join()
    cluster.network.part(two.party, cluster.bookies[0])
    began = now_s()
    closed = await two.client.recover(writer.ledger_id)
    assert now_s() - began < 0.5
    assert closed.metadata.last_entry_id == 4
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


@simulated
async def test_another_bookie_reconnects_while_a_lost_bookie_is_tried_as_a_replacement():
    cluster = SimCluster(4)
    one = cluster.join()
    writer = await one.client.create(E3)
    entries = await add(writer, 5)
    ensemble = [cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies]
    (spare,) = set(cluster.bookies) - set(ensemble)
    cluster.network.part(one.party, spare)
    ensemble[0].crash()
    cluster.refresh()
    entries += await add(writer, 5)
    await asyncio.sleep(0.5)  # the spare bookie is tried
    ensemble[1].crash()
    ensemble[1].start()
    began = now_s()
    entries += await add(writer, 5)
    assert now_s() - began < 0.5
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


@pytest.mark.parametrize("seed", range(4))
@simulated
async def test_replacements_that_take_no_connection_hold_up_the_next_for_a_moment(seed):
    cluster = SimCluster(7, seed)
    one = cluster.join()
    writer = await one.client.create(E2)
    entries = await add(writer, 5)
    ensemble = [cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies]
    *lost, _live = (bookie for bookie in cluster.bookies if bookie not in ensemble)
    for bookie in lost:
        cluster.network.part(one.party, bookie)
    ensemble[0].crash()
    cluster.refresh()
    began = now_s()
    entries += await add(writer, 5)
    assert now_s() - began < 3
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


@simulated
async def test_a_bookie_that_refused_returns_while_its_replacement_takes_no_connection():
    cluster = SimCluster(3)
    one = cluster.join()
    writer = await one.client.create(E2)
    entries = await add(writer, 5)
    ensemble = [cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies]
    (spare,) = set(cluster.bookies) - set(ensemble)
    cluster.network.part(one.party, spare)
    ensemble[0].read_only = True
    adding = asyncio.ensure_future(add(writer, 5))
    await asyncio.sleep(0.1)
    ensemble[0].read_only = False
    began = now_s()
    entries += await adding
    assert now_s() - began < 3
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


@simulated
async def test_a_bookie_that_takes_no_connection_behind_a_loss_is_replaced_within_a_moment():
    cluster = SimCluster(3)
    one = cluster.join()
    writer = await one.client.create(E2)
    entries = await add(writer, 5)
    lost = cluster.network.bookies[writer.metadata.last_segment.bookies[0]]
    cluster.network.part(one.party, lost)
    drop(lost)
    began = now_s()
    entries += await add(writer, 5)
    assert now_s() - began < 3
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


@simulated
async def test_a_replacement_whose_connection_opens_late_serves():
    cluster = SimCluster(3)
    one = cluster.join()
    gates = Gates(one.client)
    writer = await one.client.create(E2)
    entries = await add(writer, 5)
    ensemble = [cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies]
    (spare,) = set(cluster.bookies) - set(ensemble)
    gates.close(spare)
    ensemble[0].crash()
    adding = asyncio.ensure_future(add(writer, 5))
    await asyncio.sleep(8)
    gates.open(spare)
    began = now_s()
    entries += await adding
    assert now_s() - began < 0.5
    assert not one.client._context.pool.is_quarantined(spare.bookie_id)
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


def attempts_to_replace(one):
    return sum(" replacement " in task.get_name() for task in one.background._tasks)


@simulated
async def test_the_end_of_a_writer_ends_its_attempts_to_replace_bookies_and_no_others():
    cluster = SimCluster(2)
    one = cluster.join()
    writers = [await one.client.create(E2) for _ in range(2)]
    entries = [await add(writer, 5) for writer in writers][1]
    spare = cluster.network.add_bookie("bookie-2:3181")
    cluster.network.part(one.party, spare)
    cluster.bookies[0].crash()
    cluster.refresh()
    ended, goes_on = (asyncio.ensure_future(add(writer, 5)) for writer in writers)
    await asyncio.sleep(2)
    assert attempts_to_replace(one) == 2
    writers[0].abandon()
    await asyncio.sleep(0.1)
    assert attempts_to_replace(one) == 1
    with pytest.raises(LedgerClosedError):
        await ended
    cluster.network.heal()
    entries += await goes_on
    assert now_s() < 2 * CONNECT_S
    assert attempts_to_replace(one) == 0
    assert await contents(cluster.join().client, writers[1]) == entries
    await cluster.close()


class Gates:
    """Attempts to connect that wait, by bookie, until the test lets them go on."""

    def __init__(self, client):
        self._get = client._context.pool.get
        self.closed: dict[str, asyncio.Event] = {}
        client._context.pool.get = self.get

    async def get(self, bookie_id, **how):
        if bookie_id in self.closed:
            await self.closed[bookie_id].wait()
        return await self._get(bookie_id, **how)

    def close(self, bookie):
        self.closed[bookie.bookie_id] = asyncio.Event()

    def open(self, bookie):
        self.closed.pop(bookie.bookie_id).set()


def hold_changes(writer):
    """Let changes of the ledger's metadata begin when the event is set."""
    change, gate = writer.owned.change, asyncio.Event()

    async def later(make):
        await gate.wait()
        await change(make)

    writer.owned.change = later
    return gate


@simulated
async def test_a_place_that_moves_to_another_bookie_does_not_return_to_its_former_bookie():
    """The acknowledgements of the former bookie counted, although the metadata name the other."""
    cluster = SimCluster(3)
    one = cluster.join()
    gates = Gates(one.client)
    writer = await one.client.create(E3)
    await add(writer, 5)
    former, second, third = (cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies)
    former.crash()
    await asyncio.sleep(0.01)  # the first attempt to connect again fails
    gates.close(former)
    await asyncio.sleep(0.2)  # the next attempt waits
    spare = cluster.network.add_bookie("bookie-3:3181")
    gates.close(spare)
    cluster.refresh()
    await asyncio.sleep(0.2)  # the attempt to connect to the replacement waits
    former.start()
    gates.open(former)
    await asyncio.sleep(0.5)
    assert writer.replicas[0].connection is not None
    gates.close(former)
    drop(former)
    await asyncio.sleep(0.1)
    changes = hold_changes(writer)
    gates.open(spare)
    await asyncio.sleep(0.1)
    assert writer.changing
    gates.open(former)
    drop(second)  # the mender looks at all places
    await asyncio.sleep(0.1)
    spare.crash()
    changes.set()
    await asyncio.sleep(0.01)
    cluster.network.part(one.party, third)
    adding = asyncio.ensure_future(add(writer, 5))
    await asyncio.sleep(1)
    bookies = [cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies]
    assert bookies == [spare, second, third]
    for entry_id in range(writer.last_add_confirmed + 1):
        named = [cluster.network.bookies[name] for name in writer.metadata.write_set(entry_id)]
        assert sum(bookie.holds(writer.ledger_id, entry_id) for bookie in named) >= E3.ack_quorum
    cluster.network.heal()
    await adding
    await cluster.close()


@simulated
async def test_a_bookie_whose_connection_opens_behind_a_recovery_gets_the_entries():
    """A recovery needs the ack quorum alone; every place is to hold its entries in the end."""
    cluster = SimCluster(3)
    one = cluster.join()
    late = cluster.bookies[0]
    cluster.network.part(one.party, late)
    writer = await one.client.create(E3)
    entries = await add(writer, 5)
    one.party.pause()
    two = cluster.join()
    gates = Gates(two.client)
    gates.close(late)
    closed = await two.client.recover(writer.ledger_id)
    assert closed.metadata.last_entry_id == 4
    assert not any(late.holds(writer.ledger_id, entry_id) for entry_id in range(5))
    gates.open(late)
    await asyncio.sleep(0.1)
    assert all(late.holds(writer.ledger_id, entry_id) for entry_id in range(5))
    assert await contents(cluster.join().client, writer) == entries
    await cluster.close()


@simulated
async def test_a_failed_writer_takes_no_answers_behind_a_change_of_its_ensemble():
    """A place joined again, and took the answers that a recovery by the same client waits for."""
    cluster = SimCluster(4)
    one = cluster.join()
    writer = await one.client.create(E3)
    await add(writer, 5)
    changes = hold_changes(writer)
    (former, *_) = (cluster.network.bookies[name] for name in writer.metadata.last_segment.bookies)
    former.crash()
    cluster.refresh()
    await asyncio.sleep(0.5)
    assert writer.changing
    writer.abandon()
    changes.set()
    await asyncio.sleep(5)
    assert [replica.connection for replica in writer.replicas] == [None] * 3
    await cluster.close()
