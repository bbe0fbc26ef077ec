"""The log and the cursors of one topic as of a moment between two copies of a store. Pure.

*Before* is the copy from the moment or earlier, *behind* the copy from the moment or later. The result keeps all
entries of the copy before, and further entries of the copy behind up to the moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from magnetar.storage.managed.entry_index import LEDGER_INDEX
from magnetar.storage.managed.ledger_list import INDEX_PROPERTY
from magnetar.storage.managed.stored_layout import NO_LEDGER, CursorRecord, ListRecord
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magnetar.storage.managed.ledger_map import LedgerSlot

__all__ = ["JoinedLog", "Source", "cursors_at_earliest", "join_logs", "source_of"]


class Source(Enum):
    """The copy from which a topic comes."""

    BEFORE = "before"
    """The copy before: the copy behind lacks the topic, or has a topic that was created again, after the moment or at
    an unknown time.
    """
    BOTH = "both"
    BEHIND = "behind"
    """Created between the copy before and the moment, or deleted and created again."""
    NEITHER = "neither"
    """Created after the moment."""


def source_of(before: ListRecord | None, behind: ListRecord | None, until_ms: int) -> Source:
    """Return the source of a topic. If only the copy behind has the topic, a time of creation that is not recorded (0)
    counts as before the moment.
    """
    if behind is None:
        return Source.BEFORE if before is not None else Source.NEITHER
    if before is None:
        return Source.BEHIND if behind.created_ms <= until_ms else Source.NEITHER
    if before.created_ms == behind.created_ms:
        return Source.BOTH
    return Source.BEHIND if 0 < behind.created_ms <= until_ms else Source.BEFORE


@dataclass(slots=True)
class JoinedLog:
    """The list to store, and the ledgers whose files come from the copy behind."""

    record: ListRecord
    taken: dict[int, int] = field(default_factory=dict)
    """Ledger id -> entries to keep of it."""


def join_logs(before: ListRecord | None, behind: ListRecord, end: Position, now_ms: int) -> JoinedLog:
    """Return the log up to `end`, the first entry that is not kept.

    Precondition: every ledger in both lists is closed and has its figures. `before` is None when all ledgers come from
    the copy behind.
    """
    slots = {slot.ledger_id: slot for slot in (before.ledgers if before is not None else ()) if slot.entries}
    taken: dict[int, int] = {}
    is_cut = False
    for slot in behind.ledgers:
        kept = slot.entries if slot.ledger_id < end.ledger_id else min(slot.entries, end.entry_id)
        if slot.ledger_id > end.ledger_id:
            kept = 0
        is_cut = is_cut or kept < slot.entries
        known = slots.get(slot.ledger_id)
        if not kept or (known is not None and known.entries >= kept):
            continue
        slots[slot.ledger_id] = slot if kept == slot.entries else _cut(slot, kept, now_ms)
        taken[slot.ledger_id] = kept
    ledgers = [slots[ledger_id] for ledger_id in sorted(slots)]
    if before is not None:
        return JoinedLog(ListRecord(ledgers, before.terminated, before.properties, before.created_ms), taken)
    properties = {name: value for name, value in behind.properties.items() if not (is_cut and name == INDEX_PROPERTY)}
    terminated = None if is_cut else behind.terminated
    return JoinedLog(ListRecord(ledgers, terminated, properties, behind.created_ms), taken)


def _cut(slot: LedgerSlot, entries: int, now_ms: int) -> LedgerSlot:
    """Return the slot with fewer entries and without the noted broker index, which the cut invalidates. The caller sets
    the size once the file is measured.
    """
    properties = {name: value for name, value in slot.properties.items() if name != LEDGER_INDEX}
    return replace(slot, entries=entries, closed_at_ms=now_ms, properties=properties)


def cursors_at_earliest(
    behind: Mapping[str, CursorRecord], known: set[str], ledgers: Sequence[LedgerSlot], until_ms: int
) -> dict[str, CursorRecord]:
    """Return the subscriptions that the copy before lacks and that were created up to the moment, at the earliest
    entry.

    Neither copy has their positions at the moment, and a later position could skip a message.
    """
    earliest = Position(ledgers[0].ledger_id if ledgers else NO_LEDGER, -1)
    return {
        name: CursorRecord(
            mark_delete=earliest, cursor_properties=record.cursor_properties, created_ms=record.created_ms
        )
        for name, record in behind.items()
        if name not in known and record.created_ms <= until_ms
    }
