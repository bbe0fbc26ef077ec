from __future__ import annotations

import asyncio
import gc

from structlog.testing import capture_logs

from magnetar.storage.errors import StorageFullError
from magnetar.storage.managed.background import Background


async def test_failures_are_logged_and_waited_for():
    background = Background("name")
    gate = asyncio.Event()

    async def chain():
        await gate.wait()
        background.start(fail(StorageFullError("full")), "expected")
        background.start(fail(RuntimeError("bug")), "unexpected")

    async def fail(error):
        await asyncio.sleep(0)
        raise error

    with capture_logs() as logs:
        background.start(chain(), "chain")
        background.start(asyncio.Event().wait(), "cancelled")
        asyncio.get_running_loop().call_soon(gate.set)
        await asyncio.sleep(0)
        for task in background._tasks:
            if "cancelled" in task.get_name():
                task.cancel()
        await background.wait_idle()
        await asyncio.sleep(0)
    assert sorted((entry["event"], entry["task"]) for entry in logs) == [
        ("background.crashed", "name unexpected"),
        ("background.failed", "name expected"),
    ]


async def test_a_failure_behind_the_cancellation_of_its_caller_is_logged():
    """The task goes on without its caller; the event loop must not find an exception that no code has taken."""
    background, gate = Background("name"), asyncio.Event()
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))

    async def save():
        await gate.wait()
        raise StorageFullError("full")

    caller = asyncio.ensure_future(background.uninterrupted(save(), "save list"))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()
    del caller
    gate.set()
    with capture_logs() as logs:
        await background.wait_idle()
        await asyncio.sleep(0)
        gc.collect()
    assert problems == []
    assert [(entry["event"], entry["task"]) for entry in logs] == [("background.failed", "name save list")]
