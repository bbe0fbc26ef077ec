from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import LedgerFencedError
from magnetar.bookkeeper.ledgers.owned_metadata import OwnedMetadata
from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata, Segment
from tests.bookkeeper.sim_cluster import SimCluster, simulated

METADATA = LedgerMetadata(3, 3, 2, (Segment(0, ("a:1", "b:1", "c:1")),), password=b"")


async def owned_of(client):
    ledger_id = await client.store.new_ledger_id()
    return OwnedMetadata(client.store, ledger_id, METADATA, await client.store.create(ledger_id, METADATA)), ledger_id


async def recovered(client, ledger_id, last, length):
    """Another client closes the ledger, with another bookie from entry 2 on."""
    found, version = await client.store.read(ledger_id, latest=True)
    version = await client.store.write(ledger_id, found.in_recovery(), version)
    closed = found.in_recovery().with_segment(2, ("a:1", "b:1", "d:1")).closed(last, length)
    await client.store.write(ledger_id, closed, version)


@simulated
async def test_a_change_that_waits_behind_a_confirmation_that_finds_a_recovery_is_fenced_too():
    cluster = SimCluster(3)
    client, other = cluster.join(), cluster.join()
    owned, ledger_id = await owned_of(client)
    await recovered(other, ledger_id, 5, 50)
    confirming = asyncio.ensure_future(owned.confirm())
    await asyncio.sleep(0)
    with pytest.raises(LedgerFencedError):
        await owned.change(lambda metadata: metadata.with_segment(0, ("a:1", "b:1", "e:1")))
    with pytest.raises(LedgerFencedError):
        await confirming
    await cluster.close()


@pytest.mark.parametrize("known", [True, False])
@simulated
async def test_a_close_is_content_with_a_recovery_that_came_to_the_same_end_only(known):
    cluster = SimCluster(3)
    client, other = cluster.join(), cluster.join()
    for last, length in ((5, 50), (6, 60)):
        owned, ledger_id = await owned_of(client)
        await recovered(other, ledger_id, 5, 50)
        if known:
            with pytest.raises(LedgerFencedError):
                await owned.confirm()
        if last == 5:
            await owned.close(last, length)
            assert owned.current.last_entry_id == 5
        else:
            with pytest.raises(LedgerFencedError):
                await owned.close(last, length)
    await cluster.close()


@simulated
async def test_a_lost_answer_is_found_in_the_stored_metadata():
    cluster = SimCluster(3)
    client = cluster.join()
    owned, _ = await owned_of(client)
    cluster.service.lost_answers = 0.8
    await owned.change(lambda metadata: metadata.with_segment(0, ("a:1", "b:1", "e:1")))
    await owned.close(3, 30)
    cluster.service.lost_answers = 0.0
    assert owned.current.is_closed
    assert owned.current.last_segment == Segment(0, ("a:1", "b:1", "e:1"))
    await cluster.close()
