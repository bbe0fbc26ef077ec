"""Cuts work whose size a peer chooses into slices, between which the loop serves others.

The size of a slice is a number of items, not a time, so that the same input is cut at the same places in every run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

T = TypeVar("T")
SLICE_ITEMS = 256
ITEMS_IN_ONE_TURN = 16
_SORTED_AT_A_TIME = 4096
IN_SLICES = "slices"
"""Reason to stop reading a connection: a command is handled in slices, and later commands wait for its end."""
PUBLISH_RATE = "publish-rate"
"""The beginning of reasons to stop reading a connection: its last SEND has used up a rate."""


def stop_commands(holds: Iterable[str]) -> bool:
    """Whether one of these reasons to stop reading also stops the commands that have been read."""
    return any(reason == IN_SLICES or reason.startswith(PUBLISH_RATE) for reason in holds)


async def give_way() -> None:
    """Let all callbacks of the loop run that are ready now."""
    await asyncio.sleep(0)


async def sliced(items: Sequence[T], size: int = SLICE_ITEMS) -> AsyncIterator[Sequence[T]]:
    """Yield the items in their order, at most `size` at a time, with a turn of the loop between two slices."""
    for start in range(0, len(items), size):
        if start:
            await give_way()
        yield items[start : start + size]


async def in_turns(items: Sequence[T]) -> AsyncIterator[T]:
    """Yield the items, with a turn of the loop after every ITEMS_IN_ONE_TURN items. Use it where the body of the loop
    awaits but may never suspend, for example over the ten thousand loaded partitions of a topic.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_IN_ONE_TURN == 0:
            await give_way()


class WeighedTurn:
    """The work of a turn of the loop whose items take unequal time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0

    async def spend(self, work: int) -> None:
        """Count work that is done; give way when the turn has as much as it may."""
        self._done += work
        if self._done >= self._most:
            self._done = 0
            await give_way()


async def all_ended(calls: Iterable[Awaitable[object]]) -> None:
    """Await the calls together. Return when all have ended; then raise the first error of a call."""
    for found in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


async def sorted_in_slices(texts: Sequence[str], room: Callable[[int], Awaitable[None]] | None = None) -> list[str]:
    """Return the texts sorted. Each turn of the loop sorts a slice, so that the last turn only merges sorted runs.

    room: waits until the present round of the event loop has room for sorting so many texts.
    """
    runs: list[str] = []
    async for part in sliced(texts, _SORTED_AT_A_TIME):
        if room is not None:
            await room(len(part))
        runs += sorted(part)
    if room is not None:
        await room(len(runs))
    runs.sort()
    return runs
