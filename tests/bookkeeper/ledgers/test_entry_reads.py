"""Reads of entries one by one, where no bookie holds every entry of the ledger."""

from __future__ import annotations

import pytest

from magnetar.bookkeeper.options import LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated


@pytest.mark.parametrize("size", [1, 1000, 100_000])
@simulated
async def test_single_reads_ask_for_about_as_many_bytes_as_wanted(size):
    cluster = SimCluster(3)
    client = cluster.join().client
    writer = await client.create(LedgerOptions(3, 2, 2))
    await writer.append_many([b"x" * size] * 64)
    await writer.close()
    reader = await client.open(writer.ledger_id)
    found = await reader.read(0, 63, 200_000)
    assert len(found) == {1: 64, 1000: 64, 100_000: 2}[size]
    await cluster.close()
