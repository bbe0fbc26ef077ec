"""Work whose size a peer chooses, cut into slices between which the loop serves others.

A slice is counted in items, not in time: the same input gives way at the same places in every run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

T = TypeVar("T")
SLICE_ITEMS = 256
ITEMS_IN_ONE_TURN = 16
_SORTED_AT_A_TIME = 4096
IN_SLICES = "slices"
"""Reason to read nothing from a connection: a command is handled in slices, and those behind it wait for its end."""


async def give_way() -> None:
    """Let everything run that is ready now."""
    await asyncio.sleep(0)


async def sliced(items: Sequence[T], size: int = SLICE_ITEMS) -> AsyncIterator[Sequence[T]]:
    """The items in their order, at most `size` at a time, with a turn of the loop between two slices."""
    for start in range(0, len(items), size):
        if start:
            await give_way()
        yield items[start : start + size]


async def in_turns(items: Sequence[T]) -> AsyncIterator[T]:
    """The items, with a turn of the loop after every few: a loop whose body awaits may suspend nowhere, as for the ten
    thousand loaded partitions of a topic.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_IN_ONE_TURN == 0:
            await give_way()


async def sorted_in_slices(texts: Sequence[str]) -> list[str]:
    """The texts in order. Each turn of the loop sorts a slice, so that the last turn only merges runs."""
    runs: list[str] = []
    async for part in sliced(texts, _SORTED_AT_A_TIME):
        runs += sorted(part)
    runs.sort()
    return runs
