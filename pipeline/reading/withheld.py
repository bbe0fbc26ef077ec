"""Entries that the broker stores and sends to no consumer: markers, and messages of aborted transactions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from magnetar.pipeline.errors import CatalogError, CatalogUnavailableError
from magnetar.pipeline.offsets import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_AHEAD: Final = 32
"""The most entries that are requested for one missing message."""
_AT_ONCE: Final = 8


class Entries(Protocol):
    """The stored entries of a topic, as the admin API shows them; see `Catalog`."""

    def position_of_index(self, topic: str, index: int) -> Position | None: ...

    def withheld(self, topic: str, position: Position) -> tuple[bool, tuple[int, int] | None]: ...


class Facts(NamedTuple):
    """Whether the broker withholds an entry, and the indexes of its first and of its last message."""

    withheld: bool
    bounds: tuple[int, int] | None


_UNREADABLE = Facts(False, None)


class WithheldEntries:
    """Walks over withheld entries of one topic partition.

    Behind a withheld entry the walk requests the next entries of the same ledger, twice as many each time, side by
    side. So a run of n entries takes about n requests, most of them in parallel, instead of two per entry in sequence.
    """

    def __init__(self, entries: Entries, topic: str) -> None:
        self._entries, self._topic = entries, topic
        self._place: tuple[int, Position] | None = None
        """The next index of the walk, and the entry that presumably has this index."""
        self._ahead: dict[Position, Facts] = {}
        self._count = 1

    def behind(self, index: int, end: int) -> int | None:
        """The index behind the entry with this index; None when the broker does not withhold that entry.

        end: behind the last index of interest. Raises: CatalogUnavailableError.
        """
        if self._place is not None and self._place[0] == index:
            facts = self._facts(self._place[1], end - index)
            if facts.bounds is not None and facts.bounds[0] == index:
                return self._passed(self._place[1], facts)
        self._stop()
        position = self._entries.position_of_index(self._topic, index)
        if position is None:
            return None
        facts = self.facts(position)
        inside = facts.bounds is not None and facts.bounds[0] <= index <= facts.bounds[1]
        return self._passed(position, facts) if inside else None

    def facts(self, position: Position) -> Facts:
        """The facts of one entry, by a request; an unreadable entry counts as not withheld.

        Raises: CatalogUnavailableError.
        """
        try:
            return Facts(*self._entries.withheld(self._topic, position))
        except CatalogUnavailableError:
            raise
        except CatalogError:
            return _UNREADABLE

    def _passed(self, position: Position, facts: Facts) -> int | None:
        if not facts.withheld or facts.bounds is None:
            self._stop()  # the end of its transaction may withhold the entry later
            return None
        self._place = facts.bounds[1] + 1, Position(position.ledger_id, position.entry_id + 1)
        return facts.bounds[1] + 1

    def _stop(self) -> None:
        self._place, self._count = None, 1
        self._ahead.clear()

    def _facts(self, position: Position, most: int) -> Facts:
        if position not in self._ahead:
            count = max(1, min(self._count, most))
            next_ones = [Position(position.ledger_id, position.entry_id + k) for k in range(count)]
            self._ahead = dict(zip(next_ones, self._side_by_side(next_ones), strict=True))
            self._count = min(2 * self._count, MOST_AHEAD)
        return self._ahead.pop(position)

    def _side_by_side(self, positions: Sequence[Position]) -> list[Facts]:
        if len(positions) == 1:
            return [self.facts(positions[0])]
        with ThreadPoolExecutor(min(_AT_ONCE, len(positions))) as pool:
            return list(pool.map(self.facts, positions))
