import asyncio
import threading

import pytest

from magnetar.delayed.index_thread import IndexThread


async def test_work_is_done_by_one_thread_that_is_not_the_loops():
    off_loop = IndexThread(trim=lambda: None)
    names = await asyncio.gather(*(off_loop(lambda: threading.current_thread().name) for _ in range(5)))
    assert len(set(names)) == 1 and names[0] != threading.current_thread().name
    off_loop.close()


async def test_errors_of_the_work_are_raised_in_the_caller():
    off_loop = IndexThread(trim=lambda: None)

    def fail():
        raise ValueError("told so")

    with pytest.raises(ValueError, match="told so"):
        await off_loop(fail)
    assert await off_loop(lambda: 5) == 5
    off_loop.close()


async def test_freed_memory_is_given_back_now_and_then():
    now, trims = [100.0], []
    off_loop = IndexThread(lambda: trims.append(now[0]), lambda: now[0])
    for now[0] in (101.0, 104.9, 105.0, 106.0, 111.0):
        await off_loop(lambda: None)
    assert trims == [105.0, 111.0]
    off_loop.close()


async def test_the_systems_own_way_of_giving_back_does_not_fail(monkeypatch):
    off_loop = IndexThread()
    monkeypatch.setattr(off_loop, "_trimmed_s", -1e9)
    assert await off_loop(lambda: 1) == 1
    off_loop.close()
