import asyncio
import signal
import subprocess
import sys

import pytest

from magnetar.broker import shutdown
from magnetar.broker.shutdown import EXIT_HANGS, Step, Stop, run_steps
from magnetar.broker.tasks import TaskSet


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(shutdown, "LEAST_S", 0.02)


async def stubborn():
    """Does not let itself be cancelled."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if stubborn.ends:
                raise


stubborn.ends = False


class Run:
    def __init__(self):
        self.done = []

    def step(self, name, coroutine=None):
        async def run():
            if coroutine is not None:
                await coroutine()
            self.done.append(name)

        return Step(name, run)


async def fails():
    raise OSError("no")


async def hangs():
    await asyncio.Event().wait()


async def test_steps_run_in_order():
    run, tasks = Run(), TaskSet()
    assert await run_steps([run.step("a"), run.step("b")], 60, tasks) == []
    assert run.done == ["a", "b"]


@pytest.mark.parametrize("trouble", [fails, hangs, stubborn])
async def test_whatever_a_step_does_the_next_one_runs(trouble):
    run, tasks = Run(), TaskSet()
    bad = await run_steps([run.step("a"), run.step("b", trouble), run.step("c")], 0, tasks)
    assert bad == ["b"] and run.done == ["a", "c"]
    stubborn.ends = True
    try:
        await tasks.close()
    finally:
        stubborn.ends = False


async def test_the_time_is_shared():
    now = [0.0]
    run, tasks = Run(), TaskSet()

    async def long():
        now[0] += 100
        await asyncio.sleep(0)

    assert await run_steps([run.step("a", long), run.step("b", hangs)], 60, tasks, lambda: now[0]) == ["b"]


def test_a_process_whose_stop_hangs_is_ended_and_says_where():
    program = (
        "import time\nfrom magnetar.broker.shutdown import end_process_after\n"
        "end_process_after(0.2, lambda: 0)\ntime.sleep(600)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == shutdown.EXIT_HANGS
    assert "the stop hangs" in done.stderr and "File" in done.stderr


def test_a_stop_that_hangs_ends_the_process_also_where_no_thread_can_start():
    program = (
        "import threading, time\nfrom magnetar.broker.shutdown import end_process_after\n"
        'def refused(thread): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = refused\n"
        "end_process_after(0.2, lambda: 0)\ntime.sleep(600)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=50, check=False)
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize(
    "begin", ["TaskSet().spawn(task(), 'x')", "Background('x').start(task(), 'y')", "loop.call_soon(fails)"]
)
def test_a_process_without_memory_for_a_callback_or_a_task_ends_and_reports_it(begin):
    program = f"""
import asyncio
from magnetar.broker.shutdown import log_or_end
from magnetar.broker.tasks import TaskSet
from magnetar.storage.managed.background import Background

def fails(): raise MemoryError
async def task(): fails()
async def run():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_or_end)
    kept = {begin}
    await asyncio.sleep(600)

asyncio.run(run())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == shutdown.EXIT_NO_MEMORY, done.stderr
    assert "refuses memory" in done.stderr


async def test_a_stop_that_is_requested_before_the_start_begins_with_it():
    stop, runs = Stop(), []

    async def run():
        assert stop.begin()
        assert not stop.begin()
        runs.append("run")
        stop.end()

    stop.request(0)
    stop.request(EXIT_HANGS)
    stop.request(1)
    assert not runs
    stop.allow(run)
    assert await stop.wait() == EXIT_HANGS
    stop.request(0)
    await asyncio.sleep(0)
    assert runs == ["run"]
