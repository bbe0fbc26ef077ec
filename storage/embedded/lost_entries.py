"""Log lines of lost entries. Loop only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from magnetar.storage.position import Position

__all__ = ["log_lost_entries", "ranges"]

_log = structlog.get_logger()
_MOST_LINES = 100


def ranges(positions: Iterable[Position]) -> Iterator[tuple[int, int, int]]:
    """(ledger id, first entry id, last entry id) of entries that follow each other in ``positions``."""
    ledger_id = first = last = -1
    for position in positions:
        if first >= 0 and position.ledger_id == ledger_id and position.entry_id == last + 1:
            last = position.entry_id
            continue
        if first >= 0:
            yield ledger_id, first, last
        ledger_id, first = position
        last = first
    if first >= 0:
        yield ledger_id, first, last


def log_lost_entries(positions: Iterable[Position]) -> None:
    """Log a line for each range of lost entries: ``ledger_id``, ``entry_id``, ``last_entry_id``. Damage may cost the
    entries of megabytes: after 100 ranges a last line has the number of entries in the other ranges, ``further``.
    """
    further = 0
    for number, (ledger_id, first, last) in enumerate(ranges(positions)):
        if number < _MOST_LINES:
            _log.error(events.ENTRY_LOST, ledger_id=ledger_id, entry_id=first, last_entry_id=last)
        else:
            further += last - first + 1
    if further:
        _log.error(events.ENTRY_LOST, further=further)
