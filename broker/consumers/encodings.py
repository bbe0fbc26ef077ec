"""Keeps MESSAGE frames of one consumer that fit other consumers too: fan-out need not encode a span for each consumer.

Consumers of several subscriptions of a topic mostly get the same spans within one turn, and the rest of their frames is
mostly equal too: clients number their consumers from 0 in each connection. The broker therefore keeps the frames of the
last few large spans, and sends the same bytes to a consumer whose frames would be equal. The output buffers of all
these connections then share one object.

Frames are kept from the third consumer on. Frames that are released at once leave their memory to the next frames; kept
frames take fresh pages for each span, which costs more than one or two encodings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.protocol import speed

if TYPE_CHECKING:
    from magnetar.storage.slab import Slab

__all__ = ["KEPT_FROM", "MOST_BYTES", "SHARED_FROM_BYTES", "Encodings", "FreeDescriptor"]

SHARED_FROM_BYTES = 8 * 1024
"""The frames of smaller spans are not kept: encoding them is as fast as finding them."""
MOST_BYTES = 8 << 20
"""The most bytes of kept frames and slabs; a single larger pair of frames and slab is kept alone."""

KEPT_FROM = 3
"""Frames are kept from this number of consumers with equal frames on, the present consumer included."""
MOST_COUNTED = 256
"""The most spans whose consumers are counted; the oldest is dropped first."""

_Key = tuple[int, int, int, int, int, int, int]
_MadeKey = tuple[int, int, _Key]


class FreeDescriptor(Protocol):
    """The sending half of a connection."""

    def free_descriptor(self) -> int:
        """Like `Output.free_descriptor`."""
        ...


class Encodings:
    """The frames that were kept last; the oldest are dropped first. For use by one event loop only."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._frames: dict[_Key, tuple[Slab, bytes]] = {}
        """The frames, with their slab: while a slab is held, no other slab has its identity."""
        self._made: dict[_MadeKey, int] = {}
        """How often frames were made without being kept, by ledger and first entry as well: the slab is not held, and
        a later slab in the same place of memory has the same identity.
        """

    def frames(self, consumer_id: int, slab: Slab, i: int, j: int, partition: int, mode: int, epoch: int) -> bytes:
        """Return the frames of ``speed.encode_messages`` for entries that were never delivered before."""
        key = (id(slab), i, j, consumer_id, partition, mode, epoch)
        found = self._frames.get(key)
        if found is not None:
            return found[1]
        data = speed.encode_messages(consumer_id, slab.data, slab.offsets, i, j, partition, mode, epoch, None)
        made_key = (slab.ledger_id, slab.first_entry_id, key)
        made = self._made.pop(made_key, 0) + 1
        if made == KEPT_FROM:
            self._keep(key, slab, data)
            return data
        if len(self._made) == MOST_COUNTED:
            del self._made[next(iter(self._made))]
        self._made[made_key] = made
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
        """Bytes of the kept frames and of their slabs; a slab counts once for each of its spans."""
        return self._held_bytes
