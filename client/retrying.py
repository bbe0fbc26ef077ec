"""Trying again what passes by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from magnetar.client.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_T = TypeVar("_T")


async def retrying(work: Callable[[], Awaitable[_T]], seconds: float) -> _T:
    """The result of `work`, repeated after each RetryError, first soon, then less often, for so many seconds.

    Raises: the last RetryError; any other error at once.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, _FIRST_PAUSE_S
    while True:
        try:
            return await work()
        except RetryError:
            if loop.time() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
