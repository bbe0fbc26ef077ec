"""Deadlines that come in time, late, and late again."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.deadlines import Deadline, Patience, deadline
from tests.bookkeeper.sim_cluster import simulated


async def late(until_s):
    """The process stands still until this time of the loop."""
    asyncio.get_running_loop().now_s = until_s
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def made(*arguments):
    loop = asyncio.get_running_loop()
    came = []
    return Deadline(loop, arguments[0], lambda: came.append(loop.time()), *arguments[1:]), came


@simulated
async def test_a_deadline_comes_once():
    _, came = made(4)
    await asyncio.sleep(3.9)
    assert came == []
    await asyncio.sleep(100)
    assert came == [4]


@pytest.mark.parametrize("early_s", [1, 4.5])
@simulated
async def test_a_cancelled_deadline_never_comes(early_s):
    timer, came = made(4)
    await late(early_s)
    timer.cancel()
    await asyncio.sleep(100)
    assert came == []


@simulated
async def test_a_late_deadline_comes_again_after_a_quarter_of_its_time():
    _, came = made(4)
    await late(4.5)
    await asyncio.sleep(100)
    assert came == [5.5]


@simulated
async def test_a_deadline_that_is_late_twice_comes():
    _, came = made(4)
    await late(9)
    await late(20)
    assert came == [20]


@simulated
async def test_a_part_is_late_by_the_measure_of_the_whole():
    _, came = made(1, 10)
    await late(1.4)
    assert came == [1.4]
    _, came = made(1, 10)
    await late(3)
    await asyncio.sleep(100)
    assert came == [5.5]


@simulated
async def test_a_block_that_takes_too_long_fails():
    with pytest.raises(TimeoutError):
        async with deadline(4):
            await asyncio.sleep(5)
    assert asyncio.get_running_loop().time() == 4


@simulated
async def test_a_block_ends_by_an_answer_that_came_meanwhile():
    answer = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_at(4.6, answer.set_result, "late")
    asyncio.get_running_loop().call_soon(setattr, asyncio.get_running_loop(), "now_s", 4.5)
    async with deadline(4):
        assert await answer == "late"
    await asyncio.sleep(100)


@simulated
async def test_a_block_without_an_answer_fails_although_its_deadline_was_late():
    asyncio.get_running_loop().call_soon(setattr, asyncio.get_running_loop(), "now_s", 4.5)
    with pytest.raises(TimeoutError):
        async with deadline(4):
            await asyncio.sleep(50)
    assert asyncio.get_running_loop().time() == 5.5


@simulated
async def test_a_cancelled_block_stays_cancelled():
    async def block():
        async with deadline(4):
            await asyncio.sleep(5)

    task = asyncio.ensure_future(block())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_wait_behind_a_standstill_has_half_of_its_limit():
    patience = Patience(4.0)
    assert not patience.is_over(3.9, 0.0)
    assert patience.is_over(4.0, 0.0)
    patience.checked(100.0, 90.0)
    assert not patience.is_over(101.9, 0.0)
    assert patience.is_over(102.0, 0.0)
    assert not patience.is_over(104.9, 101.0)


def test_checks_that_are_always_late_end_a_wait():
    patience = Patience(4.0)
    ends = []
    for now_s in (10.0, 20.0, 30.0):
        patience.checked(now_s, 9.0)
        ends.append(patience.is_over(now_s, 0.0))
    assert ends == [False, False, True]


@pytest.mark.parametrize("between", [1, 2, 3])
def test_checks_that_are_late_again_and_again_end_a_wait(between):
    patience, now_s, late_s = Patience(4.0), 0.0, 0.0
    for number in range(3 * (between + 1)):
        late_s = 0.0 if number % (between + 1) else 9.0
        now_s += 1.0 + late_s
        patience.checked(now_s, late_s)
    assert patience.is_over(now_s, 0.0)


def test_small_delays_of_checks_leave_a_limit_as_it_is():
    patience = Patience(4.0)
    patience.checked(3.0, 0.9)
    assert patience.is_over(4.0, 0.0)


def test_a_standstill_renews_the_patience_again_behind_a_quiet_limit():
    patience = Patience(4.0)
    for now_s in (10.0, 20.0, 30.0):
        patience.checked(now_s, 9.0)
    patience.checked(43.9, 10.0)
    assert patience.is_over(43.9, 33.0)
    patience.checked(58.0, 10.0)
    assert not patience.is_over(58.0, 47.0)
