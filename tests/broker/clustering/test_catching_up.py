"""Requests with unknown names share the runs that bring memory up to date."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.clustering import catching_up
from magnetar.broker.clustering.catching_up import CatchingUp
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.tasks import TaskSet
from magnetar.storage.errors import StorageUnavailableError
from tests.waiting import until


class Store:
    """Answers each run when the test allows."""

    def __init__(self):
        self.runs = []

    async def catch_up(self):
        self.runs.append(asyncio.get_running_loop().create_future())
        await self.runs[-1]


@pytest.fixture
async def tasks():
    made = TaskSet()
    yield made
    await made.close()


async def test_a_storm_of_requests_takes_two_runs(tasks):
    store = Store()
    catching = CatchingUp(store.catch_up, tasks)
    first = asyncio.create_task(catching.wait())
    await until(lambda: len(store.runs) == 1)
    storm = [asyncio.create_task(catching.wait()) for _ in range(1000)]
    await asyncio.sleep(0)
    store.runs[0].set_result(None)
    await first
    await until(lambda: len(store.runs) == 2)
    assert not any(each.done() for each in storm)  # the first run may have begun before the change
    store.runs[1].set_result(None)
    await asyncio.gather(*storm)
    assert (len(store.runs), len(tasks)) == (2, 0)


async def test_a_request_behind_a_run_begins_another(tasks):
    store = Store()
    catching = CatchingUp(store.catch_up, tasks)
    for number in range(3):
        waiting = asyncio.create_task(catching.wait())
        await until(lambda number=number: len(store.runs) == number + 1)
        store.runs[-1].set_result(None)
        await waiting


async def test_requests_of_an_outage_are_told_to_try_again(tasks):
    store = Store()
    catching = CatchingUp(store.catch_up, tasks)
    waiting = [asyncio.create_task(catching.wait()) for _ in range(2)]
    await until(lambda: store.runs)
    store.runs[0].set_exception(StorageUnavailableError("away"))
    for each in waiting:
        with pytest.raises(ServiceNotReadyError):
            await each
    again = asyncio.create_task(catching.wait())
    await until(lambda: len(store.runs) == 2)
    store.runs[1].set_result(None)
    await again


async def test_a_run_without_an_end_holds_no_request(tasks, monkeypatch):
    monkeypatch.setattr(catching_up, "_WITHIN_S", 0.001)
    with pytest.raises(ServiceNotReadyError):
        await CatchingUp(Store().catch_up, tasks).wait()


async def test_a_broker_that_stops_answers_the_requests_that_wait(tasks):
    store = Store()
    catching = CatchingUp(store.catch_up, tasks)
    first = asyncio.create_task(catching.wait())
    await until(lambda: store.runs)
    second = asyncio.create_task(catching.wait())
    await asyncio.sleep(0)
    await tasks.close()
    for each in (first, second):
        with pytest.raises(ServiceNotReadyError, match="stopping"):
            await each


async def test_a_request_that_is_cancelled_leaves_the_others(tasks):
    store = Store()
    catching = CatchingUp(store.catch_up, tasks)
    gone, stays = (asyncio.create_task(catching.wait()) for _ in range(2))
    await until(lambda: store.runs)
    gone.cancel()
    await asyncio.sleep(0)
    store.runs[0].set_result(None)
    await stays
