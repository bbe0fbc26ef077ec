"""When the loop polls, and the poll of the compiled helper on real descriptors."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from magnetar.storage.embedded.journal.busy_poll import REST_S, Pauses, Polled, QuickLaps, open_poll

SHORT_S, LONG_S = REST_S / 2, REST_S * 2
FIRST_RESTS, FIRST_PAUSE, MOST_PAUSE, WORTH = 8, 4, 16, 8


def rest(laps: QuickLaps, count: int) -> None:
    for _ in range(count):
        laps.rested(SHORT_S)


def test_short_rests_behind_each_other_begin_the_polling():
    laps = QuickLaps()
    rest(laps, FIRST_RESTS - 1)
    assert not laps.are_quick
    laps.rested(LONG_S)
    rest(laps, FIRST_RESTS - 1)
    assert not laps.are_quick, "a long rest counts from the start"
    rest(laps, 1)
    assert laps.are_quick


def test_a_long_rest_ends_the_polling():
    laps = QuickLaps()
    rest(laps, 2 * FIRST_RESTS)
    laps.rested(LONG_S)
    assert not laps.are_quick


def pause(pauses: Pauses) -> int:
    """The laps until the next poll."""
    for count in range(2 * MOST_PAUSE):
        if pauses.may_try():
            return count
    raise AssertionError("the pause never ends")


def test_attempts_that_do_not_fail_have_no_pause():
    pauses = Pauses()
    assert [pause(pauses) for _ in range(3)] == [0] * 3


def test_each_failure_doubles_the_pause():
    pauses, found = Pauses(), []
    assert pause(pauses) == 0
    for _ in range(5):
        pauses.failed()
        found.append(pause(pauses))
    assert found == [FIRST_PAUSE, 8, MOST_PAUSE, MOST_PAUSE, MOST_PAUSE]


def test_a_failure_behind_many_attempts_without_one_has_the_first_pause():
    pauses = Pauses()
    pause(pauses)
    pauses.failed()
    assert [pause(pauses) for _ in range(WORTH)] == [FIRST_PAUSE] + [0] * (WORTH - 1)
    pauses.failed()
    assert pause(pauses) == 2 * FIRST_PAUSE, "too few attempts"
    assert [pause(pauses) for _ in range(WORTH)] == [0] * WORTH
    pauses.failed()
    assert pause(pauses) == FIRST_PAUSE


def test_pauses_of_other_lengths():
    pauses, found = Pauses(first=1, most=4, worth=2), []
    for _ in range(4):
        pause(pauses)
        pauses.failed()
        found.append(pause(pauses))
    assert found == [1, 2, 4, 4]


async def test_a_process_without_a_second_processor_does_not_poll(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    assert open_poll() is None


async def test_the_plain_program_does_not_poll(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    assert open_poll() is None


class TestCompiledPoll:
    pytestmark = pytest.mark.skipif(os.environ.get("MAGNETAR_PURE") is not None, reason="tests the compiled poll")

    @pytest.fixture(autouse=True)
    def _built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("magnetar.storage.embedded.journal._frame_writer")
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})

    @pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
    def test_an_event_of_the_loop_ends_the_poll(self, kind: str):
        factory = asyncio.new_event_loop
        if kind == "uvloop":
            factory = pytest.importorskip("uvloop").new_event_loop

        async def polls() -> tuple[int, int]:
            poll = open_poll()
            assert poll is not None
            loop, (reading, writing) = asyncio.get_running_loop(), os.pipe()
            came = asyncio.Event()
            loop.add_reader(reading, came.set)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            try:
                before = poll(0.0)
                os.write(writing, b"x")
                after = poll(60.0)
                await came.wait()
            finally:
                loop.remove_reader(reading)
                os.close(reading)
                os.close(writing)
            return before, after

        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(polls()) == (Polled.NOTHING, Polled.EVENT)

    async def test_other_threads_of_the_interpreter_run_during_a_poll(self):
        """The event comes from a thread that needs the interpreter lock to write."""
        poll = open_poll()
        assert poll is not None
        loop = asyncio.get_running_loop()
        outcome = Polled.DISTURBED
        while outcome == Polled.DISTURBED:  # another process took the processor meanwhile
            waker = threading.Thread(target=loop.call_soon_threadsafe, args=(int,))
            waker.start()
            outcome = Polled(poll(60.0))
            waker.join()
        assert outcome == Polled.EVENT

    async def test_a_poll_without_an_event_ends_with_its_time(self):
        poll = open_poll()
        assert poll is not None
        began = time.perf_counter()
        outcome = poll(0.002)
        assert outcome == Polled.DISTURBED or (outcome == Polled.NOTHING and time.perf_counter() - began >= 0.002)
