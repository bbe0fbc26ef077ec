"""Bookies whose cable is lost: no byte of theirs arrives, no attempt to connect ends before its deadline."""

from __future__ import annotations

import asyncio

from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated

E3 = LedgerOptions(3, 3, 2)
CONNECT_S = ClientOptions().connect_timeout_s


def now_s():
    return asyncio.get_running_loop().time()


async def add(writer, count, tag="x"):
    payloads = [f"{tag}{number}".encode() for number in range(count)]
    await asyncio.gather(*(writer.append(payload) for payload in payloads))
    return payloads


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
