"""The needs of a topic's compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from magnetar.broker.compaction.compacted_reader import LedgersOfLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.position import Position

__all__ = ["CompactedLog", "CompactionShown"]


class CompactedLog(LedgersOfLog, Protocol):
    """The log that a compaction reads, with the cursors on it."""

    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def cursors(self) -> Mapping[str, ManagedCursor]: ...
    async def open_cursor(self, name: str, initial: Literal["earliest"]) -> ManagedCursor: ...
    async def delete_cursor(self, name: str) -> None: ...
    def new_read_cursor(self, start: Position) -> ManagedCursor: ...
    def next_valid(self, position: Position) -> Position | None: ...


class CompactionShown(Protocol):
    """The subscriptions of the topic, which show the subscription `__compaction`."""

    def adopt(self, cursor: ManagedCursor, *, read: bool) -> None:
        """Show the cursor of compaction as a subscription; `read`: a run begins to read."""
        ...

    def compaction_read(self, messages: int, size_bytes: int) -> None:
        """Count the messages that a run read, and their bytes."""
        ...
