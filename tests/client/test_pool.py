"""A pool of connections that ends while a connection is being opened."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.client.address import Credentials
from magnetar.client.errors import RetryError
from magnetar.client.pool import ConnectionPool
from tests.importing.scripted_broker import ScriptedBroker, connected
from tests.waiting import until


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_connection_that_opens_at_the_end_of_the_pool_does_not_stay(awaited):
    pool = ConnectionPool(Credentials())

    def at_the_end(*_):
        ending.set()
        return connected()

    ending = asyncio.Event()
    async with ScriptedBroker(CONNECT=at_the_end) as broker:
        opening = [asyncio.ensure_future(pool.get(broker.address)) for _ in range(2)]
        await ending.wait()  # the answer of the broker is on its way
        if awaited:
            await pool.wait_closed()
        else:
            pool.close()
        for each in opening:
            with pytest.raises(RetryError, match="closed"):
                await each
        await until(lambda: broker.connections == 0)
        with pytest.raises(RetryError, match="closed"):
            await pool.get(broker.address)
