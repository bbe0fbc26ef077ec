"""How often an entry was given back by REDELIVER_UNACKNOWLEDGED_MESSAGES (Shared and Key_Shared).

In memory only. Counted when the client asks; not when its consumer closes or its connection is lost. Dropped on ack, by
SEEK and when the last consumer leaves (Apache Pulsar 4.2.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyroaring import BitMap

    from magnetar.storage.position import Position


class RedeliveryTracker:
    """Redelivery counts by position; entries without a count cost nothing."""

    __slots__ = ("_ledgers",)

    def __init__(self) -> None:
        self._ledgers: dict[int, dict[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def increment_all(self, ledger_id: int, entry_ids: BitMap) -> None:
        """Count a redelivery of each of the entries, at least one entry."""
        counts = self._ledgers.setdefault(ledger_id, {})
        if counts:
            counts.update([(entry_id, counts.get(entry_id, 0) + 1) for entry_id in entry_ids])
        else:
            counts.update(dict.fromkeys(entry_ids, 1))

    def get(self, ledger_id: int, entry_id: int) -> int:
        counts = self._ledgers.get(ledger_id)
        return 0 if counts is None else counts.get(entry_id, 0)

    def counts(self, ledger_id: int, first_entry_id: int, count: int) -> list[int] | None:
        """The counts of consecutive entries, None when all are 0."""
        counts = self._ledgers.get(ledger_id)
        if counts is None:
            return None
        found = [counts.get(entry_id, 0) for entry_id in range(first_entry_id, first_entry_id + count)]
        return found if any(found) else None

    def remove(self, ledger_id: int, entry_id: int) -> None:
        counts = self._ledgers.get(ledger_id)
        if counts is not None and counts.pop(entry_id, None) is not None and not counts:
            del self._ledgers[ledger_id]

    def remove_all(self, ledger_id: int, entry_ids: BitMap) -> None:
        counts = self._ledgers.get(ledger_id)
        if counts is None:
            return
        for entry_id in entry_ids if len(entry_ids) < len(counts) else [e for e in counts if e in entry_ids]:
            counts.pop(entry_id, None)
        if not counts:
            del self._ledgers[ledger_id]

    def drop_up_to(self, position: Position) -> None:
        for ledger_id in [x for x in self._ledgers if x <= position.ledger_id]:
            counts = self._ledgers.pop(ledger_id)
            if ledger_id == position.ledger_id:
                left = {entry_id: count for entry_id, count in counts.items() if entry_id > position.entry_id}
                if left:
                    self._ledgers[ledger_id] = left

    def clear(self) -> None:
        self._ledgers.clear()
