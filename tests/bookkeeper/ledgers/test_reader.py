"""Readers of closed ledgers whose replicas BookKeeper's auto-recovery moves."""

from __future__ import annotations

import dataclasses

from magnetar.bookkeeper.options import LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated


@simulated
async def test_a_damaged_replica_is_replaced_by_a_moved_replica():
    cluster = SimCluster(3)
    one = cluster.join()
    writer = await one.client.create(LedgerOptions(2, 2, 2))
    entries = [await writer.append(b"%d" % number) for number in range(3)]
    await writer.close()
    reader = await one.client.open(writer.ledger_id)
    stays, leaves = (cluster.network.bookies[name] for name in reader.metadata.last_segment.bookies)
    (comes,) = set(cluster.bookies) - {stays, leaves}
    comes.ledgers[writer.ledger_id] = leaves.ledgers.pop(writer.ledger_id)
    found = await one.store.read(writer.ledger_id)
    moved = found.metadata.with_segment(0, (stays.bookie_id, comes.bookie_id))
    await one.store.write(writer.ledger_id, dataclasses.replace(moved), found.version)
    stays.damaged.add((writer.ledger_id, 1))
    assert [entry.entry_id async for entry in reader.entries()] == entries
    await cluster.close()


@simulated
async def test_the_reader_of_a_writer_that_lost_its_ledger_finds_moved_replicas():
    cluster = SimCluster(3)
    one, other = cluster.join(), cluster.join()
    writer = await one.client.create(LedgerOptions(2, 2, 2))
    entry = await writer.append(b"confirmed")
    reader = one.client.reader_of(writer)
    found = await other.client.recover(writer.ledger_id)
    stays, leaves = (cluster.network.bookies[name] for name in found.metadata.last_segment.bookies)
    (comes,) = set(cluster.bookies) - {stays, leaves}
    comes.ledgers[writer.ledger_id] = leaves.ledgers.pop(writer.ledger_id)
    moved = found.metadata.with_segment(0, (stays.bookie_id, comes.bookie_id))
    await other.store.write(writer.ledger_id, moved, found.version)
    stays.damaged.add((writer.ledger_id, entry))
    assert [each.payload for each in await reader.read(entry, entry)] == [b"confirmed"]
    await cluster.close()
