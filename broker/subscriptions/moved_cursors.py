"""Places of cursors whose ledgers were consumed when the topic was loaded.

Apache Pulsar moves such a cursor before the first entry of the next ledger. Here the cursor stays, since both places
have the same entries behind them; clients and administrators see the place of Apache Pulsar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.managed.ledger_map import LedgerSlot

__all__ = ["LoadedCursor", "OpenedAt", "is_consumed", "shown_mark_delete"]


class OpenedAt(NamedTuple):
    """The place of a subscription's cursor when the broker opened the cursor."""

    mark_delete: Position
    acknowledged: int
    """Entries acknowledged behind mark-delete."""
    with_topic: bool
    """At the load of the topic; not set for a subscription created later."""
    was_consumed: bool
    """Whether mark-delete was the last entry of a ledger at the load, so that Apache Pulsar moved the cursor."""


class LoadedCursor(Protocol):
    """A subscription: where its cursor is, and was when the topic was loaded (None: created later)."""

    @property
    def loaded_at(self) -> Position | None: ...
    def mark_delete_for_client(self) -> Position: ...


def is_consumed(slots: Sequence[LedgerSlot], position: Position) -> bool:
    """Whether the position is the last entry of its ledger."""
    return any(slot.ledger_id == position.ledger_id and slot.entries == position.entry_id + 1 > 0 for slot in slots)


def shown_mark_delete(slots: Sequence[LedgerSlot], subscription: LoadedCursor) -> Position:
    """The mark-delete position as Apache Pulsar has it. Precondition: the topic has an open ledger."""
    position = subscription.mark_delete_for_client()
    is_listed = any(slot.ledger_id == position.ledger_id for slot in slots)
    if position != subscription.loaded_at or (is_listed and not is_consumed(slots, position)):
        return position
    following = next((slot.ledger_id for slot in slots if slot.ledger_id > position.ledger_id), None)
    return position if following is None else Position(following, -1)
