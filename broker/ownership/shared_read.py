"""Shares one read among callers that need its result at the same time or shortly after."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from magnetar.broker.tasks import awaited

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["SharedRead"]

T = TypeVar("T")


class SharedRead(Generic[T]):
    """``get`` returns a result of `read` that is at most `fresh_s` seconds old. All waiting callers get the error of a
    failed read, which is not kept.
    """

    def __init__(self, read: Callable[[], Coroutine[object, object, T]], fresh_s: float) -> None:
        self._read, self._fresh_s = read, fresh_s
        self._running: asyncio.Task[T] | None = None
        self._value: tuple[float, T] | None = None

    async def get(self) -> T:
        """Raises the errors of `read`."""
        now_s = asyncio.get_running_loop().time()
        if self._value is not None and now_s - self._value[0] < self._fresh_s:
            return self._value[1]
        if self._running is None:
            self._running = awaited(self._run(now_s), "shared read")
        return await asyncio.shield(self._running)

    async def _run(self, now_s: float) -> T:
        try:
            value = await self._read()
        finally:
            self._running = None
        self._value = (now_s, value)
        return value
