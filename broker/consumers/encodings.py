"""MESSAGE frames made for a consumer that fit other consumers too: fan-out encodes a span once.

Consumers of several subscriptions of a topic are mostly given the same spans within one turn, and their frames are
mostly equal beside the entries: clients number their consumers from 0 in each connection. So the last few large spans
are kept as they were sent, and a consumer whose frames would be equal is sent the same bytes. They wait in the output
of all these connections as one object, too.

Frames are kept from the third consumer on. Frames that are released at once leave their memory to the next frames; kept
frames take fresh pages for each span, which costs more than one or two encodings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import speed

if TYPE_CHECKING:
    from magnetar.storage.slab import Slab

__all__ = ["KEPT_FROM", "MOST_BYTES", "SHARED_FROM_BYTES", "Encodings"]

SHARED_FROM_BYTES = 8 * 1024
"""Smaller spans are encoded as fast as they are found."""
MOST_BYTES = 8 << 20
"""The bound of kept frames and slabs, beside a single larger pair."""

KEPT_FROM = 3
"""Consumers that were given equal frames, the present consumer included."""
MOST_COUNTED = 256
"""Spans whose consumers are counted, oldest out first."""

_Key = tuple[int, int, int, int, int, int, int]


class Encodings:
    """The frames that were made last, oldest out first. One event loop only."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._frames: dict[_Key, tuple[Slab, bytes]] = {}
        """The frames, with their slab: while a slab is held, no other slab has its identity."""
        self._made: dict[_Key, int] = {}
        """How often frames were made without being kept. A slab of the same identity may add to the count of an earlier
        slab, whose only effect is that its frames are kept too soon.
        """

    def frames(self, consumer_id: int, slab: Slab, i: int, j: int, partition: int, mode: int, epoch: int) -> bytes:
        """Return the frames of ``speed.encode_messages`` for entries that were never delivered before."""
        key = (id(slab), i, j, consumer_id, partition, mode, epoch)
        found = self._frames.get(key)
        if found is not None:
            return found[1]
        data = speed.encode_messages(consumer_id, slab.data, slab.offsets, i, j, partition, mode, epoch, None)
        made = self._made.pop(key, 0) + 1
        if made == KEPT_FROM:
            self._keep(key, slab, data)
            return data
        if len(self._made) == MOST_COUNTED:
            del self._made[next(iter(self._made))]
        self._made[key] = made
        return data

    def _keep(self, key: _Key, slab: Slab, data: bytes) -> None:
        more = len(data) + slab.kept_bytes
        while self._frames and self._held_bytes + more > self._most_bytes:
            old_slab, old = self._frames.pop(next(iter(self._frames)))
            self._held_bytes -= len(old) + old_slab.kept_bytes
        self._frames[key] = slab, data
        self._held_bytes += more

    @property
    def held_bytes(self) -> int:
        """Frames, and the slabs they were made of: a slab counts with each of its spans."""
        return self._held_bytes
