"""MESSAGE frames that were made for one consumer and fit another: fan-out encodes a span once.

Consumers of several subscriptions of a topic are mostly given the same spans within one turn, and what their frames
hold beside the entries is mostly the same: clients number their consumers from 0 in each connection. So the last few
large spans are kept as they were sent, and a consumer whose frames would be equal is sent the same bytes. They wait in
the output of all these connections as one object, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import speed

if TYPE_CHECKING:
    from magnetar.storage.slab import Slab

__all__ = ["MOST_BYTES", "SHARED_FROM_BYTES", "Encodings"]

SHARED_FROM_BYTES = 8 * 1024
"""Smaller spans are encoded as fast as they are found."""
MOST_BYTES = 8 << 20
"""Of frames and slabs that are kept, beside one pair that is larger."""

_Key = tuple[int, int, int, int, int, int, int]


class Encodings:
    """The frames that were made last, oldest out first. One event loop only."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._frames: dict[_Key, tuple[Slab, bytes]] = {}
        """With the slab: as long as it is held, no other one has its identity."""

    def frames(self, consumer_id: int, slab: Slab, i: int, j: int, partition: int, mode: int, epoch: int) -> bytes:
        """As ``speed.encode_messages`` gives them for entries that were never delivered before."""
        key = (id(slab), i, j, consumer_id, partition, mode, epoch)
        found = self._frames.get(key)
        if found is not None:
            return found[1]
        data = speed.encode_messages(consumer_id, slab.data, slab.offsets, i, j, partition, mode, epoch, None)
        more = len(data) + slab.kept_bytes
        while self._frames and self._held_bytes + more > self._most_bytes:
            old_slab, old = self._frames.pop(next(iter(self._frames)))
            self._held_bytes -= len(old) + old_slab.kept_bytes
        self._frames[key] = slab, data
        self._held_bytes += more
        return data

    @property
    def held_bytes(self) -> int:
        """Frames, and the slabs they were made of: a slab counts with each of its spans."""
        return self._held_bytes
