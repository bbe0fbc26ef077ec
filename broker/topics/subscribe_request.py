"""The request of CommandSubscribe to a topic."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.position import Position


@dataclass(slots=True)
class SubscribeRequest:
    """The request of CommandSubscribe to the topic, with plain values."""

    subscription: str
    durable: bool = True
    from_earliest: bool = False
    start: Position | None = None  # of a non-durable subscription: the entry to read first
    rollback_s: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    read_compacted: bool = False
    replicated: bool | None = None

    def within(self, last: Position) -> SubscribeRequest:
        """This request for a log with that last entry: a start further behind the entry does not count.

        The initial position counts in its place. "Latest" is such a start, whatever its entry id is.
        """
        if self.start is None or self.start.previous() <= last:
            return self
        return replace(self, start=None)
