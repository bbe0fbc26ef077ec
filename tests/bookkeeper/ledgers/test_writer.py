"""The end of a writer together with its client."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import ClientClosedError
from tests.bookkeeper.sim_cluster import SimCluster, simulated


@simulated
async def test_a_writer_that_closes_after_its_client_fails_at_once():
    cluster = SimCluster()
    one = cluster.join()
    writer = await one.client.create()
    await writer.append(b"x")
    await one.client.close()
    for _ in range(2):
        with pytest.raises(ClientClosedError):
            await asyncio.wait_for(writer.close(), 1)
    await cluster.close()
