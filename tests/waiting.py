"""The helper for waiting in tests that run against a process or a socket: for a condition, never for a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T],
    seconds: float = 30,
    subject: str = "the condition",
    *,
    every: float = 0.02,
    ignoring: type[BaseException] | tuple[type[BaseException], ...] = (),
) -> T:
    """The first true value of `condition()`; fails with the `subject` after `seconds`.

    The condition is checked every so many seconds. An exception of the types in `ignoring` counts as false, all others
    end the waiting: a condition may assert that the process it looks at is alive.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if value := condition():
                return value
        except ignoring:
            pass
        assert time.monotonic() < deadline, f"{subject} did not come about in {seconds} s"
        time.sleep(every)


async def until(
    condition: Callable[[], T], seconds: float = 30, subject: str = "the condition", *, every: float = 0.002
) -> T:
    """The same on the event loop, which goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{subject} did not come about in {seconds} s"
        await asyncio.sleep(every)
    return value
