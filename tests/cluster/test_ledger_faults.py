"""Crashes and hangs of real bookies and of a real ZooKeeper under a ledger that is being written."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.errors import LedgerFencedError
from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from tests.cluster.conftest import LONG
from tests.waiting import until

E3 = LedgerOptions(3, 3, 2)
ROUNDS = 5 if LONG else 1


def uri(cluster):
    return f"zk+hierarchical://{cluster.zookeeper}/ledgers"


class Adding:
    """Adds entries, `at_once` at the same time, until it is stopped; remembers the acknowledged entries."""

    def __init__(self, writer, at_once=50):
        self.writer, self.acknowledged, self.longest_s = writer, {}, 0.0
        self.stopped = False
        self._tasks = [asyncio.ensure_future(self._run(number)) for number in range(at_once)]

    async def _run(self, number):
        loop, count = asyncio.get_running_loop(), 0
        while not self.stopped:
            payload, began = f"{number}:{count}".encode(), loop.time()
            self.acknowledged[await self.writer.append(payload)] = payload
            self.longest_s = max(self.longest_s, loop.time() - began)
            count += 1

    async def more(self, count=500):
        """Wait until so many more entries are acknowledged."""
        wanted = len(self.acknowledged) + count

        def there():
            for task in self._tasks:
                if task.done():
                    task.result()
            return len(self.acknowledged) >= wanted

        await until(there, 240, f"{count} more receipts", every=0.02)

    async def end(self):
        self.stopped = True
        await asyncio.gather(*self._tasks)
        return self.acknowledged


async def check(cluster, writer, acknowledged):
    """Check that another client finds each acknowledged entry at its position."""
    async with await BookKeeper.connect(uri(cluster)) as other:
        reader = await other.open(writer.ledger_id)
        found = {entry.entry_id: bytes(entry.payload) async for entry in reader.entries()}
    assert {entry_id: found.get(entry_id) for entry_id in acknowledged} == acknowledged
    assert sorted(found) == list(range(len(found)))


@pytest.mark.timeout(600)
async def test_adds_go_on_while_bookies_are_killed_and_come_back(cluster):
    async with await BookKeeper.connect(uri(cluster)) as client:
        writer = await client.create(E3)
        adding = Adding(writer)
        await adding.more()
        for number in range(ROUNDS):
            name = f"b{number % 3 + 1}"
            await asyncio.to_thread(cluster.kill, name)
            await adding.more()
            await asyncio.to_thread(cluster.start, name)
            await adding.more()
        acknowledged = await adding.end()
        assert writer.failure is None
        await check(cluster, writer, acknowledged)


@pytest.mark.timeout(600)
async def test_a_bookie_that_hangs_delays_no_acknowledgement(cluster):
    async with await BookKeeper.connect(uri(cluster), ClientOptions(add_timeout_s=2)) as client:
        writer = await client.create(E3)
        adding = Adding(writer)
        await adding.more()
        await asyncio.to_thread(cluster.stop, "b2")
        with contextlib.ExitStack() as stack:
            stack.callback(cluster.go_on, "b2")
            await adding.more(1000)
        acknowledged = await adding.end()
        await check(cluster, writer, acknowledged)


@pytest.mark.timeout(600)
async def test_bookies_that_forgot_a_fence_do_not_let_the_old_writer_go_on(cluster):
    async with await BookKeeper.connect(uri(cluster)) as old, await BookKeeper.connect(uri(cluster)) as new:
        writers = [await old.create(E3) for _ in range(3)]
        await asyncio.gather(*(new.open(writer.ledger_id) for writer in writers))
        for name in ("b1", "b2", "b3"):
            await asyncio.to_thread(cluster.kill, name)
        for name in ("b1", "b2", "b3"):
            await asyncio.to_thread(cluster.start, name)
        for writer in writers:
            with pytest.raises(LedgerFencedError):
                await writer.append(b"lost for every reader")


@pytest.mark.timeout(600)
@pytest.mark.skipif(not LONG, reason="takes half a minute: make cluster")
async def test_adds_go_on_without_zookeeper_and_a_recovery_after_it(cluster):
    async with await BookKeeper.connect(uri(cluster)) as client:
        writer = await client.create(E3)
        adding = Adding(writer)
        await adding.more()
        await asyncio.sleep(1)
        await asyncio.to_thread(cluster.kill, "zk")
        await adding.more(2000)
        await asyncio.sleep(3)
        await asyncio.to_thread(cluster.start, "zk")
        await adding.more()
        acknowledged = await adding.end()
        await check(cluster, writer, acknowledged)
