"""Damage of the compacted ledger of one topic, and the compactions that a reader starts because of the damage.

The key of a damaged entry is not known, so a reader waits there until a compaction has replaced the ledger.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["NO_DAMAGE", "CompactedDamage"]

NO_DAMAGE: Final = -1
_EVERY_S = 60.0


class CompactedDamage:
    """Pure."""

    def __init__(self) -> None:
        self.ledger_id = NO_DAMAGE
        """The compacted ledger that has a damaged entry."""
        self._failed_id = NO_DAMAGE
        """A ledger that a compaction could not replace because of its damage."""
        self._began_s = -math.inf

    def found(self, ledger_id: int) -> None:
        """Note damage of the ledger."""
        self.ledger_id = ledger_id

    def may_begin(self, ledger_id: int, now_s: float) -> bool:
        """Note damage that a reader met; return whether to start a compaction now."""
        self.found(ledger_id)
        if ledger_id == self._failed_id or now_s - self._began_s < _EVERY_S:
            return False
        self._began_s = now_s
        return True

    def stays(self) -> None:
        """Note that a compaction could not replace the ledger because of its damage."""
        self._failed_id = self.ledger_id
