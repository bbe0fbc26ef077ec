"""Callers at the same moment share a read."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.ownership.shared_read import SharedRead
from tests.model.virtual_loop import VirtualLoop


def played(work):
    loop = VirtualLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def test_many_share_one_read_until_it_is_old():
    reads = []

    async def read():
        reads.append(None)
        await asyncio.sleep(0.01)
        return len(reads)

    async def work():
        shared = SharedRead(read, fresh_s=0.2)
        assert await asyncio.gather(*(shared.get() for _ in range(50))) == [1] * 50
        await asyncio.sleep(0.1)
        assert await shared.get() == 1
        await asyncio.sleep(0.1)
        assert await shared.get() == 2

    played(work())


def test_a_failure_reaches_all_waiting_callers_and_is_not_kept():
    failing = True

    async def read():
        await asyncio.sleep(0.01)
        if failing:
            raise OSError
        return 7

    async def work():
        nonlocal failing
        shared = SharedRead(read, fresh_s=0.2)
        answers = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in answers] == [OSError] * 3
        failing = False
        assert await shared.get() == 7

    played(work())


def test_a_cancelled_caller_does_not_cancel_the_others():
    async def read():
        await asyncio.sleep(1)
        return 7

    async def work():
        shared = SharedRead(read, fresh_s=0.2)
        first, second = asyncio.ensure_future(shared.get()), asyncio.ensure_future(shared.get())
        await asyncio.sleep(0.1)
        first.cancel()
        assert await second == 7
        with pytest.raises(asyncio.CancelledError):
            await first

    played(work())
