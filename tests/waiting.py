"""Waiting for a condition in tests that run against a process or a socket: for what happens, never for a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 30, what: str = "the condition") -> None:
    """Return as soon as `condition()` is true; fail with the name of it after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds} s"
        time.sleep(0.02)


async def until(condition: Callable[[], object], seconds: float = 30, what: str = "the condition") -> None:
    """The same on the event loop, which goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds} s"
        await asyncio.sleep(0.005)
