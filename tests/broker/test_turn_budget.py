"""The budget of a turn in calls of the broker's Python functions, which the load of the machine does not change.

An allowance is some percent above the counted figure (`bench/turn_bench.py` prints it). A change that needs more calls
states its reason here; a change that makes a turn cheaper lowers the allowance.
"""

import asyncio
import os

import pytest

from bench import turn_bench
from magnetar.protocol import speed

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("MAGNETAR_PURE")), reason="the allowances are those of the compiled helper"
)
ALLOWED = [
    pytest.param(1, 0, 81, id="one-message"),
    pytest.param(1, 1, 144, id="one-message-and-its-delivery"),
    pytest.param(200, 0, 88, id="a-run"),
    pytest.param(200, 1, 196, id="a-run-and-its-delivery"),
]
TURNS = 60


@pytest.mark.parametrize(("run", "consumers", "most"), ALLOWED)
async def test_a_turn_takes_no_more_calls_than_allowed(
    run: int, consumers: int, most: int, monkeypatch: pytest.MonkeyPatch
):
    async with turn_bench.started(consumers) as (_, peers):
        reads = [
            b"".join(turn_bench.send(first + i, 100) for i in range(run)) for first in range(0, 2 * TURNS * run, run)
        ]
        await turn_bench.turns(peers, reads[:TURNS])  # creates the first ledger and runs all code once
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        with monkeypatch.context() as still:  # on a busy machine the timers of some seconds would count as well
            still.setattr(loop, "time", lambda: now_s)
            calls = await turn_bench.calls_a_turn(peers, reads[TURNS:])
    assert calls <= most
    assert calls > most * 0.7, "much cheaper than allowed: take the allowance down"


async def test_runs_are_copied_once(monkeypatch: pytest.MonkeyPatch):
    """All but the first runs of a connection become records in the bytes that they were cut into."""
    copies = []
    stamp = speed.stamp
    monkeypatch.setattr(speed, "stamp", lambda *given: copies.append(given[4]) or stamp(*given))
    async with turn_bench.started() as (_, peers):
        for first in range(200, 200 + 30 * 50, 50):
            await turn_bench.turns(peers, [b"".join(turn_bench.send(first + i, 1000) for i in range(50))])
    assert len(copies) <= 4, "the first run, and those in which the index grows by a byte"
