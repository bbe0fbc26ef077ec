"""Deadlines of waits for answers.

A process that was suspended finds its deadlines passed before it reads the answers that came meanwhile. So a deadline
that comes late ends nothing at once: it comes again after a part of its time, once, and the sockets are read first.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["Deadline", "Patience", "deadline"]

_LATE = 1 / 20
"""A deadline is late by more than this part of its time."""
_SECOND_CHANCE = 1 / 4
"""A late deadline comes again after this part of its time."""
_COUNTS = 1 / 4
"""A standstill counts for a limit from this part of the limit on."""
_RENEWALS = 2
"""So many standstills in a row renew the patience; a loop that is always late still ends its waits."""


class Deadline:
    """Calls `act` after `delay_s`, which is a part of the whole time `of_s` where the wait is checked several times."""

    __slots__ = ("_act", "_due_s", "_loop", "_of_s", "_timer", "late_s")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_s: float, act: Callable[[], None], of_s: float | None = None
    ) -> None:
        self._loop, self._act, self._of_s = loop, act, delay_s if of_s is None else of_s
        self.late_s = 0.0
        """How late the deadline came, if it came too late."""
        self._due_s = loop.time() + delay_s
        self._timer = loop.call_at(self._due_s, self._come)

    def cancel(self) -> None:
        self._timer.cancel()

    def _come(self) -> None:
        late_s = self._loop.time() - self._due_s
        if late_s > _LATE * self._of_s:
            self.late_s = late_s
            self._timer = self._loop.call_later(_SECOND_CHANCE * self._of_s, self._act)
        else:
            self._act()


class Patience:
    """The limit of waits that are checked at least four times within the limit. Behind a standstill of this process
    that makes a check late by a quarter of the limit, half of the limit remains: the services that it waits for may
    have stood still too, and need time.

    Standstills with less than a limit between them renew the patience twice together. So a wait ends within twice its
    limit and three checks, apart from the standstills.
    """

    __slots__ = ("_last_s", "_limit_s", "_renewals", "_resumed_s")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._renewals = 0
        self._last_s = self._resumed_s = float("-inf")

    def checked(self, now_s: float, late_s: float) -> None:
        """Note a check, and by how much its deadline came late."""
        if late_s < _COUNTS * self._limit_s:
            return
        follows = now_s - late_s - self._last_s < self._limit_s
        self._renewals = self._renewals + 1 if follows else 1
        self._last_s = now_s
        if self._renewals <= _RENEWALS:
            self._resumed_s = now_s

    def is_over(self, now_s: float, since_s: float) -> bool:
        """Whether a wait that began at `since_s` has reached the limit."""
        return now_s - max(since_s, self._resumed_s - self._limit_s / 2) >= self._limit_s


@contextlib.asynccontextmanager
async def deadline(length_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError when the block takes longer: like ``asyncio.timeout``, but for a late deadline."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = Deadline(loop, length_s, lambda: scope.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()
