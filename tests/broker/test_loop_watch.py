"""The watch over the loop: its counts, and the place in the code that it reports."""

import asyncio
import gc
import sys
import time

import pytest
import uvloop

from magnetar.broker import loop_watch
from magnetar.broker.loop_watch import LoopWatch, Stall, outermost, place_of
from tests.waiting import until


@pytest.fixture
async def watch():
    found = LoopWatch()
    found.start()
    await asyncio.sleep(3 * loop_watch.BEAT_S)
    yield found
    found.stop()
    found.stop()


def busy(seconds):
    """Work that takes so much time of this thread, under any load of the machine."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Logged:
    """Takes the watch's log lines, however other tests have set up logging."""

    def __init__(self):
        self.lines = []

    def warning(self, event, **fields):
        self.lines.append((event, fields))


async def test_a_slow_callback_is_counted_and_its_place_told(watch, monkeypatch):
    logged = Logged()
    monkeypatch.setattr(loop_watch, "log", logged)
    asyncio.get_running_loop().call_soon(busy, 0.3)
    await until(lambda: watch.figures.slow_callbacks)
    assert watch.figures.longest_callback_ms > 200
    assert "busy" in str(logged.lines)


@pytest.fixture
def no_collections():
    """No collection of garbage meanwhile: beside the objects of other tests a full collection is a slow callback."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
async def test_short_callbacks_are_not(watch):
    for _ in range(20):
        busy(0.001)
        await asyncio.sleep(0.005)
    assert watch.figures.slow_callbacks == 0


@pytest.mark.usefixtures("no_collections")
async def test_many_short_callbacks_in_one_turn_are_no_slow_callback(watch):
    for _ in range(150):
        asyncio.get_running_loop().call_soon(busy, 0.002)
    await until(lambda: watch.figures.long_turns)
    assert watch.figures.slow_callbacks == 0


async def test_a_call_that_keeps_the_interpreter_is_a_slow_callback(watch):
    began = time.thread_time()
    while time.thread_time() - began < 0.2:
        sum(range(10_000_000))
    await until(lambda: watch.figures.slow_callbacks + watch.figures.long_turns)
    assert watch.figures.slow_callbacks


@pytest.mark.parametrize("enabled", [True, False])
async def test_no_collection_begins_while_the_watch_reads_frames(enabled, monkeypatch):
    during, saw = [], Stall.saw

    def noting(stall, stack, now_s):
        during.append(gc.isenabled())
        saw(stall, stack, now_s)

    monkeypatch.setattr(Stall, "saw", noting)
    watch = LoopWatch()
    (gc.enable if enabled else gc.disable)()
    try:
        watch.start()
        await asyncio.sleep(3 * loop_watch.BEAT_S)
        busy(0.2)
        await until(lambda: watch.figures.slow_callbacks)
        watch.stop()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
    assert during
    assert not any(during)


@pytest.mark.parametrize(("busy_s", "words"), [(0.001, "was stopped"), (0.9, "did not release")])
def test_a_stopped_process_is_not_taken_for_a_call_that_computes(busy_s, words, monkeypatch):
    logged, watch = Logged(), LoopWatch()
    monkeypatch.setattr(loop_watch, "log", logged)
    watch._report(1.0, busy_s, None)
    assert words in logged.lines[0][1]["place"]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_callback_is_found_in_the_stacks_of_both_loops(new_loop):
    seen = {}

    def look():
        seen["frame"] = outermost(inner(), base[0])

    def inner():
        return sys._getframe()

    def beat():
        base.append(sys._getframe().f_back)

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_later(0, beat)
        await asyncio.sleep(0.01)
        loop.call_soon(look)
        await asyncio.sleep(0.01)

    base = []
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert seen["frame"].f_code.co_name == "look"


def test_the_longest_stay_in_one_call_counts():
    def loop(see):
        return callback(see)

    def callback(see):
        return see(sys._getframe())

    stacks = []
    base = sys._getframe()
    loop(stacks.append)
    loop(stacks.append)
    one, two = stacks
    stall = Stall(base)
    for at, stack in ((0.0, one), (0.01, one), (0.02, two), (0.03, two), (0.07, two), (0.08, base), (0.09, None)):
        stall.saw(stack, at)
    assert stall.longest_s == pytest.approx(0.05)
    assert "callback" in stall.place
    assert place_of(base).startswith("tests/broker/test_loop_watch.py:")
