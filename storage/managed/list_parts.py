"""The encoded ledgers of a stored list: a part for each ledger, kept with a closed ledger, whose facts stay.

A topic has a new ledger many times in its life, and stores the whole list each time.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.storage.managed.ledger_map import LedgerSlot

__all__ = ["encoded_ledgers"]

_ENCODED = attrgetter("encoded")


def encoded_ledgers(slots: Sequence[LedgerSlot], encode: Callable[[LedgerSlot], bytes]) -> bytes:
    """Return the parts of all ledgers, one behind the other. ``encode`` returns the part of one ledger; a slot belongs
    to the list of one layout.
    """
    parts: list[bytes] = []
    known = list(map(_ENCODED, slots))
    at = 0
    for _ in range(known.count(None)):
        new = known.index(None, at)
        slot = slots[new]
        part = encode(slot)
        if slot.closed_at_ms:
            slot.encoded = part
        parts += known[at:new]
        parts.append(part)
        at = new + 1
    parts += known[at:]
    return b"".join(parts)
