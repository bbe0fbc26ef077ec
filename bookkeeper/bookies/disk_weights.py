"""Weights of bookies by the free space of their disks, as in Apache BookKeeper's weighted placement.

The client reads the free space of every writable bookie at long intervals, and of a new bookie at once. When a bookie
did not answer, the next interval is shorter.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import TYPE_CHECKING

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.deadlines import deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
    from magnetar.bookkeeper.metadata.ports import BookieRegistry
    from magnetar.bookkeeper.options import ClientOptions

__all__ = ["DiskWeights", "weights"]

log = structlog.get_logger(__name__)

_MOST = 3.0
"""Upper bound of a bookie's weight; the median weight is 1.0."""


def weights(free: Mapping[str, int]) -> dict[str, float]:
    """Return each bookie's weight: its free bytes relative to the median. A bookie without free bytes gets the weight
    of the bookie with the fewest free bytes above 0. Pure.
    """
    least = min((each for each in free.values() if each > 0), default=0)
    if not least:
        return dict.fromkeys(free, 1.0)
    median = statistics.median(free.values()) or float(least)
    return {bookie: min(max(each, least) / median, _MOST) for bookie, each in free.items()}


class DiskWeights:
    """``weight`` gives the weight of a bookie; ``run`` keeps the weights up to date until its task is cancelled.

    ask: reads the free bytes of a bookie; may raise OSError, ValueError.
    """

    def __init__(
        self, registry: BookieRegistry, options: ClientOptions, ask: Callable[[BookieAddress], Awaitable[int]]
    ) -> None:
        self._registry, self._options, self._ask = registry, options, ask
        self._free: dict[str, int] = {}
        self._weights: dict[str, float] = {}
        self._changed = asyncio.Event()

    def weight(self, bookie: str) -> float:
        """Return the bookie's weight; 1.0 for a bookie that has not answered yet."""
        return self._weights.get(bookie, 1.0)

    async def run(self) -> None:
        """Read the free space of all writable bookies after each interval, and that of a new bookie at once."""
        loop = asyncio.get_running_loop()
        stop = self._registry.on_change(self._changed.set)
        try:
            while True:
                self._changed.clear()
                due_s = loop.time() + self._options.disk_info_interval_s
                complete = await self._refresh(list(self._registry.writable))
                if not complete:
                    due_s = loop.time() + self._options.disk_info_retry_s
                while await self._changed_before(due_s):
                    self._changed.clear()
                    await self._refresh([each for each in self._registry.writable if each not in self._free])
        finally:
            stop()

    async def _changed_before(self, due_s: float) -> bool:
        try:
            async with asyncio.timeout_at(due_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _refresh(self, bookies: list[str]) -> bool:
        """Read the free space of these bookies and compute all weights; return whether every bookie answered."""
        answers = await asyncio.gather(*map(self._read, bookies))
        writable = self._registry.writable
        known = self._free | {bookie: free for bookie, free in zip(bookies, answers, strict=True) if free is not None}
        self._free = {bookie: free for bookie, free in known.items() if bookie in writable}
        self._weights = weights(self._free)
        return None not in answers

    async def _read(self, bookie: str) -> int | None:
        address = self._registry.address(bookie)
        if address is None:
            return None
        try:
            async with deadline(self._options.connect_timeout_s):
                return await self._ask(address)
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: no resolver takes the host
            log.warning(events.BOOKIE_SPACE_UNKNOWN, bookie=bookie, error=str(error) or "no answer")
            return None
