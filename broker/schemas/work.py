"""How much work a schema may be, and where it is done.

A schema is a text of a peer's choosing. Its size, its depth and its number of values are bounded before it is walked,
every walk counts its steps, and walks of more than a few milliseconds run in one thread beside the loop, which sleeps
between portions so that the loop never waits for it for long.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
MAX_DEFINITION_BYTES: Final = 1 << 20
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 300
MAX_NAME_CHARACTERS: Final = 1024
MAX_STEPS: Final = 1_000_000
"""Steps of one check, over all versions it compares with: a second or two of the thread."""
INLINE_BYTES: Final = 16 << 10
INLINE_STEPS: Final = 2000
_PORTION_STEPS: Final = 1000
_PAUSE_S: Final = 0.0005


class SchemaWorkError(Exception):
    """The walk needs more steps than it was given."""


class SchemaWork:
    """Counts the steps of one check; raises SchemaWorkError at the limit."""

    __slots__ = ("_left", "_next_pause", "_pauses")

    def __init__(self, limit: int = MAX_STEPS, *, pauses: bool = False) -> None:
        """pauses: sleep between portions, for a thread beside the loop."""
        self._left = limit
        self._pauses = pauses
        self._next_pause = limit - _PORTION_STEPS if pauses else -1

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < self._next_pause or self._left < 0:
            self._over()

    def _over(self) -> None:
        if self._left < 0:
            raise SchemaWorkError
        self._next_pause = max(0, self._left - _PORTION_STEPS)
        time.sleep(_PAUSE_S)


def count_values(value: Any, work: SchemaWork) -> tuple[int, int]:
    """How many values a JSON value is made of, and how deep they nest; ends early past either limit."""
    count, depth = 1, 0
    level: list[Any] = [value]
    while level and depth <= MAX_DEPTH and count <= MAX_VALUES:
        depth += 1
        following: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                following += each.values()
            elif isinstance(each, list):
                following += each
        work.spend(1 + len(following) // 8)
        count += len(following)
        level = following
    return count, depth


class SchemaBench:
    """Runs checks: small checks at once, others one after the other in a thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, size: int, check: Callable[[SchemaWork], T]) -> T:
        """Run `check`, which looks at `size` bytes; returns or raises as it does. Raises SchemaWorkError past
        MAX_STEPS.
        """
        if size <= INLINE_BYTES:
            try:
                return check(SchemaWork(INLINE_STEPS))
            except SchemaWorkError:
                pass  # small, but folded: the unfolded schema is checked beside the loop
        async with self._turn:
            return await asyncio.to_thread(check, SchemaWork(pauses=True))
