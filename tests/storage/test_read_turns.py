"""The connections that wait for the log."""

from __future__ import annotations

import asyncio

from magnetar.storage.read_turns import ReadTurns


def test_a_turn_resumes_each_waiting_connection_once():
    turns, resumed = ReadTurns(), []
    turns.is_held = True
    turns.wait(lambda: resumed.append("first"))
    turns.wait(lambda: resumed.append("second"))
    assert resumed == []
    turns.begin()
    assert resumed == ["first", "second"]
    assert not turns.is_held
    turns.begin()
    assert resumed == ["first", "second"]


def test_a_connection_may_wait_again_while_the_turn_begins():
    turns, resumed = ReadTurns(), []

    def resume() -> None:
        resumed.append("first")
        turns.wait(lambda: resumed.append("again"))

    turns.wait(resume)
    turns.begin()
    assert resumed == ["first"]
    turns.begin()
    assert resumed == ["first", "again"]


async def test_a_connection_that_cannot_read_keeps_no_other_waiting():
    turns, resumed, problems = ReadTurns(), [], []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context["exception"]))
    error = OSError("no memory to watch the socket")

    def fails() -> None:
        raise error

    turns.wait(fails)
    turns.wait(lambda: resumed.append("second"))
    turns.begin()
    assert resumed == ["second"]
    assert problems == [error]
