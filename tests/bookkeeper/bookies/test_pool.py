"""Connections to bookies whose registered address is of no use."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.bookies.pool import BookiePool
from magnetar.bookkeeper.errors import BookieUnreachableError
from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
from magnetar.bookkeeper.options import ClientOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated


class Registry:
    def address(self, _bookie_id):
        return BookieAddress("bookie..example", 3181)


async def test_a_host_that_no_resolver_takes_is_unreachable():
    background = Background("test")
    pool = BookiePool(Registry(), ClientOptions(connect_timeout_s=2), background)
    with pytest.raises(BookieUnreachableError, match="label"):
        await pool.get("b")
    await background.close()


@simulated
async def test_a_ledger_replaces_a_bookie_whose_host_no_resolver_takes():
    cluster = SimCluster(4)
    connect = cluster.network.connector

    def connector(party):
        reach = connect(party)

        async def through(make, address):
            if address.host == "bookie-0":
                raise UnicodeError("label empty or too long")
            return await reach(make, address)

        return through

    cluster.network.connector = connector
    client = cluster.join().client
    for _ in range(8):
        writer = await client.create()
        assert await asyncio.wait_for(writer.append_many([b"x"] * 6), 10) == range(6)
    await cluster.close()
