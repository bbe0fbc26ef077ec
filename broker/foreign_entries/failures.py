"""Entries of a topic that could not be converted: the number of attempts, and the time of the next attempt.

All subscriptions of a topic share one book: the same bytes fail in the same way. Until the time of the next attempt the
failure stands, and the broker calls no converter for the entry. The book is bounded: beyond its limit it drops the
failure whose last attempt is the oldest, and the attempts of that entry count from 1 again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.converters.outcome import park_delay_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.converters.outcome import ConversionFailure
    from magnetar.storage.position import Position

MAX_FAILURES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure. `retry_at_ms`: the time of the next attempt, on the clock of the book."""

    failure: ConversionFailure
    attempts: int
    retry_at_ms: int


class FailureBook:
    """Failures by position."""

    def __init__(self, now_ms: Callable[[], int], limit: int = MAX_FAILURES) -> None:
        self._now_ms = now_ms
        self._limit = limit
        self._failed: OrderedDict[Position, Failed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def __contains__(self, position: object) -> bool:
        """Whether the entry has failed before."""
        return position in self._failed

    def standing(self, position: Position) -> Failed | None:
        """The failure of an entry whose next attempt is not due yet; None when the broker may try the entry."""
        found = self._failed.get(position)
        return None if found is None or found.retry_at_ms <= self._now_ms() else found

    def last(self, position: Position) -> Failed | None:
        """The last failure of the entry, whether the next attempt is due or not; None when the book has no failure."""
        return self._failed.get(position)

    def add(self, position: Position, failure: ConversionFailure) -> Failed:
        """Record a failed attempt; returns the failure with its number of attempts and the time of the next attempt."""
        before = self._failed.pop(position, None)
        attempts = 1 if before is None else before.attempts + 1
        failed = Failed(failure, attempts, self._now_ms() + park_delay_ms(attempts))
        self._failed[position] = failed
        if len(self._failed) > self._limit:
            self._failed.popitem(last=False)
        return failed

    def remove(self, position: Position) -> None:
        """Drop the failure of an entry whose conversion succeeded."""
        self._failed.pop(position, None)
