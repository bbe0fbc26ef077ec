"""Sets of positions as ranges: which part of a log the index is complete for. Immutable, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PositionRanges"]

Range = tuple[Position, Position]
"""First and last position, both within."""


class PositionRanges:
    """Ascending ranges that neither overlap nor touch within a ledger."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        joined: list[Range] = []
        for first, last in sorted(r for r in ranges if r[0] <= r[1]):
            if joined and first <= joined[-1][1].next():
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        self.ranges = tuple(joined)

    def __contains__(self, position: Position) -> bool:
        return any(first <= position <= last for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionRanges) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return "+".join(f"[{first}..{last}]" for first, last in self.ranges) or "none"

    @property
    def end(self) -> Position | None:
        """The last position within."""
        return self.ranges[-1][1] if self.ranges else None

    def with_range(self, first: Position, last: Position) -> PositionRanges:
        return PositionRanges((*self.ranges, (first, last)))

    def without(self, first: Position, last: Position) -> PositionRanges:
        left: list[Range] = []
        for start, end in self.ranges:
            if end < first or start > last:
                left.append((start, end))
                continue
            left += ((start, min(end, first.previous())), (max(start, last.next()), end))
        return PositionRanges(r for r in left if r[0] <= r[1])

    def gaps_up_to(self, last: Position) -> tuple[Range, ...]:
        """Return the ranges between these ranges, and the range behind the last range up to ``last``."""
        starts = [end.next() for _, end in self.ranges]
        ends = [start.previous() for start, _ in self.ranges[1:]] + [last]
        return tuple((a, b) for a, b in zip(starts, ends, strict=False) if a <= b)

    def from_ledger(self, ledger_id: int) -> PositionRanges:
        """Return the ranges without positions in earlier ledgers."""
        start = Position(ledger_id, -1)
        return PositionRanges((max(first, start), last) for first, last in self.ranges)

    def within(self, other: PositionRanges) -> PositionRanges:
        """The intersection of both."""
        return PositionRanges(
            (max(a, c), min(b, d)) for a, b in self.ranges for c, d in other.ranges if max(a, c) <= min(b, d)
        )
