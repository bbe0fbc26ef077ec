"""Decides which ledgers are dropped. Pure.

Pulsar's rule: only whole ledgers are dropped, oldest first, and only ledgers that every durable cursor has acknowledged
completely. Such a ledger is dropped when it is expired (the retention time since its closing is over) or over quota
(without it the topic still has the retention size); the first ledger that is neither ends the scan. With 0/0, the
default, a ledger is dropped as soon as it is consumed.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from magnetar.storage.managed.ledger_map import LedgerSlot
    from magnetar.storage.position import Position

__all__ = ["first_needed_ledger", "ledgers_to_drop"]

_LEDGER_ID, _SIZE_BYTES = attrgetter("ledger_id"), attrgetter("size_bytes")


def first_needed_ledger(slots: Sequence[LedgerSlot], mark_deletes: Iterable[Position]) -> int | None:
    """Return the id of the oldest ledger that a durable cursor still needs; None when no cursor needs a ledger.

    A cursor whose mark-delete is the last entry of a ledger does not need that ledger.
    """
    slowest = min(mark_deletes, default=None)
    if slowest is None:
        return None
    first = bisect_left(slots, slowest.ledger_id, key=_LEDGER_ID)
    for slot in slots[first : first + 2]:
        if slot.ledger_id > slowest.ledger_id or slowest.entry_id + 1 < slot.entries:
            return slot.ledger_id
    return None


def ledgers_to_drop(
    slots: Sequence[LedgerSlot],
    mark_deletes: Iterable[Position],
    retention_time_ms: int,
    retention_size_bytes: int,
    now_ms: int,
    *,
    keep_last: bool = False,
) -> list[int]:
    """Return the ids of the ledgers to drop now, ascending. A retention time or size of -1 is unlimited.

    mark_deletes: for each durable cursor the position up to which it needs no entry; keep_last: the newest ledger stays
    even when it is closed (for a terminated topic, as in Apache Pulsar 4.2.4).
    """
    needed = first_needed_ledger(slots, mark_deletes)
    kept_bytes = sum(map(_SIZE_BYTES, slots))
    dropped = []
    for slot in slots:
        if slot.ledger_id == needed or not slot.closed_at_ms or (keep_last and slot is slots[-1]):
            break
        kept_bytes -= slot.size_bytes
        expired = retention_time_ms >= 0 and now_ms - slot.closed_at_ms > retention_time_ms
        over_quota = retention_size_bytes >= 0 and kept_bytes >= retention_size_bytes
        if not (expired or over_quota):
            break
        dropped.append(slot.ledger_id)
    return dropped
