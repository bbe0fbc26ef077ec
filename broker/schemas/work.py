"""Bounds the work on a schema, and runs long work beside the event loop.

A peer chooses the text of a schema. Its size, depth and number of values are checked before any walk over it, and every
walk counts its steps. A walk of more than a few milliseconds runs in one thread beside the loop; the thread sleeps
between portions of its steps, so that the loop never waits long for the interpreter.
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
"""Limit of the steps of one check over all compared versions: a second or two of the thread."""
INLINE_BYTES: Final = 16 << 10
INLINE_STEPS: Final = 2000
_PORTION_STEPS: Final = 1000
_PAUSE_S: Final = 0.0005


class SchemaWorkError(Exception):
    """The walk needs more steps than its limit."""


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
    """Return the number of values in a JSON value and their depth; stop counting beyond MAX_VALUES or MAX_DEPTH."""
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
    """Runs checks: small checks at once on the loop, other checks one after the other in a thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, size: int, check: Callable[[SchemaWork], T]) -> T:
        """Run `check`, which reads `size` bytes, and return its result. Raises the errors of `check`, and
        SchemaWorkError beyond MAX_STEPS.
        """
        if size <= INLINE_BYTES:
            try:
                return check(SchemaWork(INLINE_STEPS))
            except SchemaWorkError:
                pass  # a small text may define a large schema: check it in the thread
        async with self._turn:
            return await asyncio.to_thread(check, SchemaWork(pauses=True))
