"""Picks the consumers of a slab's entries by their keys, many entries a call: compiled, or the pure twin, chosen as in
`speed.py`; tests/broker/dispatchers/test_picking.py compares both.

`pick` decides like `key_shared_plan.py`, for new entries of one message each while no hash drains.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.storage.slab import Slab

    Owner = tuple[int, Consumer | None]

__all__ = ["COMPILED", "Hand", "Picked", "pick", "pure_pick"]

Picked = tuple[bytes, bytes]
"""Indexes of picked entries within their slab, ascending, and the key hashes of these entries: native int64."""
_NOT_LOOKED_UP = (-1, -1)


class Hand:
    """The entries of a read on their way to consumers."""

    __slots__ = (
        "earlier",
        "first_of_hash",
        "in_order",
        "left",
        "owner_of",
        "owners",
        "picked",
        "refused",
        "room_of",
        "waiting",
    )

    def __init__(
        self,
        owners: dict[int, Owner],
        owner_of: Callable[[int], Owner],
        room_of: Callable[[Consumer], int],
        waiting: Mapping[int, object],
        first_of_hash: Callable[[int], tuple[int, int] | None],
        *,
        in_order: bool,
    ) -> None:
        self.owners = owners
        """Hash and owner by Murmur hash of a key; `owner_of` returns missing pairs, and may add them here."""
        self.owner_of = owner_of
        self.room_of = room_of
        """How many entries a consumer can take."""
        self.in_order = in_order
        """Whether an entry must not overtake an earlier entry of its hash."""
        self.waiting = waiting if in_order else {}
        """A dict whose keys include all hashes of entries in the replay queue; it may have further keys."""
        self.first_of_hash = first_of_hash
        """First position in the replay queue with this hash."""
        self.earlier: dict[int, tuple[int, int] | None] = {}
        """First positions by hash, filled on demand."""
        self.left: dict[Consumer, int] = {}
        """Entries each consumer can still take."""
        self.refused: set[int] = set()
        """Hashes of which an entry of this read waits."""
        self.picked: dict[Consumer, list[tuple[Slab, Picked]]] = {}
        """The picked entries of each consumer, in order."""


def pure_pick(
    murmurs: bytes, parts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, hand: Hand, /
) -> tuple[dict[Consumer, Picked], list[int], list[int]]:
    """Pick entries of a slab with these Murmur hashes (native int64), in these ranges of indexes.

    Returns (the picked entries of each consumer, the ids of the entries that wait, their key hashes). When an entry has
    no owner, or its owner has no room, the entry and, in order, all later entries of its hash wait.
    Raises ValueError for a range outside of the hashes.
    """
    owners, left, refused, waiting_of_hash, earlier = hand.owners, hand.left, hand.refused, hand.waiting, hand.earlier
    picked: dict[Hashable, tuple[array[int], array[int]]] = {}
    waiting: list[int] = []
    waiting_hashes: list[int] = []
    of_entries = memoryview(murmurs).cast("q")
    for i, j in parts:
        if not 0 <= i <= j <= len(of_entries):
            raise ValueError("no such entries")
        for k in range(i, j):
            key_hash, consumer = owners.get(of_entries[k]) or hand.owner_of(of_entries[k])
            if consumer is not None and key_hash not in refused:
                room = left.get(consumer)
                if room is None:
                    room = left[consumer] = hand.room_of(consumer)
                before = None
                if key_hash in waiting_of_hash and (before := earlier.get(key_hash, _NOT_LOOKED_UP)) is _NOT_LOOKED_UP:
                    before = earlier[key_hash] = hand.first_of_hash(key_hash)
                if room > 0 and (before is None or before > (ledger_id, first_entry_id + k)):
                    left[consumer] = room - 1
                    given = picked.get(consumer)
                    if given is None:
                        given = picked[consumer] = array("q"), array("q")
                    given[0].append(k)
                    given[1].append(key_hash)
                    continue
            waiting.append(first_entry_id + k)
            waiting_hashes.append(key_hash)
            if hand.in_order:
                refused.add(key_hash)
    of_consumers = {consumer: (indexes.tobytes(), hashes.tobytes()) for consumer, (indexes, hashes) in picked.items()}
    return of_consumers, waiting, waiting_hashes  # type: ignore[return-value] # keys are consumers


COMPILED = False
pick = pure_pick

if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.broker.dispatchers._picking import pick as _compiled
    except ImportError:  # no compiler at install time: the twin serves
        pass
    else:
        COMPILED = True
        pick = _compiled
