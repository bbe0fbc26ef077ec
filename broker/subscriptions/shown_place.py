"""The moves of a subscription's cursor by requests since the load, as the internal statistics show them.

Apache Pulsar keeps a cursor that a request has moved where the request put it, until consumers read: before the first
entry after a reset to the start, with the words of its class of positions after a SEEK to a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ShownPlace"]


class ShownPlace:
    """was_reset: whether a request, not acknowledgements, moved the cursor. is_active: whether a request created the
    subscription in a way that leaves the cursor active, and no consumer has joined since.
    """

    was_reset = is_active = False
    _is_before_first = False
    _words = ""
    _mark_delete: Position | None = None

    def reset(self, target: Position, mark_delete: Position) -> None:
        """Note that a request has put the cursor at `target`, so that its mark-delete position is `mark_delete`."""
        self.was_reset, self._words = True, ""
        self._mark_delete, self._is_before_first = mark_delete, target == EARLIEST

    def sought(self, ack_set: Sequence[int] | None) -> None:
        """Note that the last reset was a SEEK to the message that the cursor reads next."""
        self._words = f" (ackSet with long[] size of {len(ack_set)})" if ack_set else " (ackSet is null)"

    def skipped(self) -> None:
        """Note that a request has moved the cursor over any number of entries, none included."""
        self.was_reset, self._is_before_first = True, False

    def continued(self) -> None:
        """Note that the cursor reads from the entry behind its mark-delete position."""
        self._mark_delete = None

    def joined(self) -> None:
        """Note that a first consumer has joined."""
        self.is_active = False
        self.continued()

    def is_before_first(self, mark_delete: Position) -> bool:
        """Whether the cursor, whose mark-delete position is `mark_delete`, stands before the first entry."""
        return self._is_before_first and self._mark_delete == mark_delete

    def words(self, mark_delete: Position) -> str:
        """The words behind the read position of the cursor."""
        return self._words if self._mark_delete == mark_delete else ""
