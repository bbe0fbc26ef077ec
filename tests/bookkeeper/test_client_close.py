"""A client closes while its callers wait: each call ends with a typed error, at once."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.errors import BookKeeperError
from magnetar.bookkeeper.options import LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated

E3 = LedgerOptions(3, 3, 2)
SOON_S = 2.0


async def opened(client, written):
    return await client.open(written.ledger_id)


async def read(client, written):
    reader = await client.open(written.ledger_id, recover_first=False)
    return [each async for each in reader.entries()]


async def appended(client, _written):
    writer = await client.create(E3)
    await writer.append(b"x")
    await writer.close()


@pytest.mark.parametrize("call", [opened, read, appended])
def test_calls_end_with_a_typed_error(call):
    ends = {run_until_closed(call, after_s / 1000) for after_s in range(40)}
    assert ends <= {"done", "ClientClosedError", "LedgerClosedError"}
    assert "ClientClosedError" in ends


def run_until_closed(call, after_s):
    found = []

    @simulated
    async def run():
        cluster = SimCluster(3)
        writer = await cluster.join().client.create(E3)
        await writer.append_many([b"x"] * 20)
        client = cluster.join().client
        calling = asyncio.ensure_future(call(client, writer))
        await asyncio.sleep(after_s)
        await client.close()
        done, _ = await asyncio.wait([calling], timeout=SOON_S)
        found.append(_end(calling) if done else "waits")
        calling.cancel()
        await cluster.close()

    run()
    return found[0]


def _end(calling):
    if calling.cancelled():
        return "cancelled"
    error = calling.exception()
    assert error is None or isinstance(error, BookKeeperError), repr(error)
    return "done" if error is None else type(error).__name__
