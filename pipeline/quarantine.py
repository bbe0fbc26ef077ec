"""Quarantine: entries and messages that could not be read, with position and reason, counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from magnetar.pipeline.errors import CorruptEntryError

if TYPE_CHECKING:
    from magnetar.pipeline.damage import Quarantined, Reason

MAX_KEPT: Final = 1000
"""Positions kept by one Quarantine; all are counted."""
ON_CORRUPT: Final = ("fail", "quarantine")
ON_ENCRYPTED: Final = ("deliver", "fail", "quarantine")


class Quarantine:
    """Collects unreadable positions, or raises for the first.

    entries: the first MAX_KEPT positions. counts: all positions by reason. messages: the number of missing messages.
    """

    def __init__(self, on_corrupt: str = "fail") -> None:
        if on_corrupt not in ON_CORRUPT:
            raise ValueError(f"onCorrupt is {' or '.join(ON_CORRUPT)}, not {on_corrupt!r}")
        self._fail = on_corrupt == "fail"
        self.entries: list[Quarantined] = []
        self.counts: Counter[Reason] = Counter()
        self.messages = 0

    def __len__(self) -> int:
        return self.counts.total()

    def add(self, found: Quarantined) -> None:
        """Count a position. Raises: CorruptEntryError when `onCorrupt` is `fail`."""
        if self._fail:
            raise CorruptEntryError(found)
        self.report(found)

    def report(self, found: Quarantined) -> None:
        """Count a position and never raise: for messages without damage (chunks that were never published)."""
        self.counts[found.reason] += 1
        self.messages += found.messages
        if len(self.entries) < MAX_KEPT:
            self.entries.append(found)
