"""Receives the bytes of a connection and cuts them into frames.

Receiving is synchronous on the event loop: the loop gets the room, fills it and reports the count before any other
callback runs. So all connections share one large buffer: a large socket read is cut in one call, and ten thousand idle
connections need no buffers. A connection keeps only its incomplete last frame, and puts it in front of the next read. A
frame that is large for the shared buffer gets a separate buffer, which grows only as fast as the bytes arrive: a peer
that announces 5 MiB and sends nothing costs no memory.

Until `admit` raises the limits, no frame may be larger than HANDSHAKE_FRAME_BYTES, so a peer that has not proved its
role uses at most twice that memory, and no read may be larger than HANDSHAKE_READ_BYTES, because the commands of a read
that wait for their turn take ten times the memory of their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.network.read_rounds import ReadRounds
from magnetar.protocol import speed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

SHARED_BYTES = 1 << 20
HANDSHAKE_FRAME_BYTES = 64 * 1024
"""Largest frame before the handshake is done; a CONNECT with a token has a few KiB."""
HANDSHAKE_READ_BYTES = 16 * 1024
_PRIVATE_FROM = SHARED_BYTES // 4
_STREAM_BYTES = 64 * 1024
PART_FIELDS = 3
"""The rest of a run waits as an item of so many fields: the run, the place where the rest begins, the data."""
_ITEM_BYTES = 100
"""The objects of a command that waits."""
_TRICKLE_BYTES = 4096
"""Up to this size a frame that arrives in small pieces is copied with each piece."""


def memory_of(items: Iterable[Sequence[Any]]) -> int:
    """The assumed memory of commands and runs of SENDs that wait (`ReadBuffer.received`)."""
    return sum(len(item[1] if len(item) == 2 else item[2]) + _ITEM_BYTES for item in items)


def _room_for(begun: bytearray | memoryview) -> int:
    """Return the largest size of the buffer of a frame: the frame and one read behind it. Precondition: the size field
    of the frame has arrived.
    """
    return 4 + int.from_bytes(begun[:4], "big") + _STREAM_BYTES


class SharedReadBuffer:
    """The large receive buffer that all connections of a broker share."""

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.bytes = bytearray(size)
        self.view = memoryview(self.bytes)
        self.rounds = ReadRounds(size)


class ReadBuffer:
    """The use of the shared buffer by one connection. `room` and `received` alternate; no call of another connection
    comes between `room` and its `received`.
    """

    __slots__ = (
        "_in_private",
        "_left",
        "_max_frame",
        "_most",
        "_private",
        "_refused",
        "_shared",
        "_widest",
        "gap",
        "held_bytes",
        "large_frames",
    )

    def __init__(self, shared: SharedReadBuffer, max_frame_bytes: int) -> None:
        self._shared = shared
        self._max_frame = min(max_frame_bytes, HANDSHAKE_FRAME_BYTES)
        self._most = self._widest = HANDSHAKE_READ_BYTES
        self._left = b""  # an incomplete frame, small
        self._private: bytearray | None = None  # an incomplete frame, large
        self._in_private = 0
        self.held_bytes = 0
        """Memory this connection holds for an incomplete frame."""
        self._refused: tuple[int, bytearray, int, int, int] | None = None
        """Limit, bytes, their begin and end, and the count of the read, of a frame over the limit."""
        self.gap = 0
        """Bytes left free before each entry of a run, so that the entry becomes a log record without a copy."""
        self.large_frames = 0
        """The number of incomplete frames that got a separate buffer since the start of the connection."""

    @property
    def filled_bytes(self) -> int:
        """Received bytes of an incomplete large frame; 0 when there is no such frame."""
        return self._in_private

    @property
    def missing_bytes(self) -> int:
        """Bytes that an incomplete large frame still lacks; 0 when there is no such frame."""
        if self._private is None:
            return 0
        return 4 + int.from_bytes(self._private[:4], "big") - self._in_private

    def admit(self, max_frame_bytes: int) -> None:
        """Accept frames of up to `max_frame_bytes`, and large reads, from now on; call `again` for frames behind the
        present frame.
        """
        self._max_frame = max_frame_bytes
        self._most = self._widest = len(self._shared.bytes)

    def narrow(self) -> None:
        """Read half as much at a time, because a part of the last read still waits. Reads that fill their room double
        the room again.
        """
        self._most = max(self._most // 2, HANDSHAKE_READ_BYTES)

    @property
    def may_cut_again(self) -> bool:
        """Whether the last `received` refused a frame under a limit that `admit` has raised since."""
        return self._refused is not None and self._refused[0] < self._max_frame

    def again(self) -> tuple[list[Any], str | None]:
        """Cut the bytes that the last `received` refused again, under the present limit. Precondition: `may_cut_again`,
        and `keep_refused` before another connection read.
        """
        assert self._refused is not None
        _, source, start, end, count = self._refused
        return self._kept(source, end, count, speed.cut(source, start, end, self._max_frame, self.gap))

    def keep_refused(self) -> None:
        """Copy the refused bytes, because other connections will use the shared buffer. Only the limit before the
        handshake may rise.
        """
        if self._refused is not None:
            limit, source, start, end, count = self._refused
            kept = limit, source[start:end], 0, end - start, count
            self._refused = kept if limit <= HANDSHAKE_FRAME_BYTES else None

    def room(self) -> memoryview:
        """The room for the next bytes, at most the share of a connection in this round; never empty."""
        shared = self._shared
        if self._private is None:
            left = len(self._left)
            if left:
                shared.bytes[:left] = self._left
            return shared.view[left : left + (min(shared.rounds.share, self._most))]
        if self._in_private == len(self._private):
            size = min(2 * self._in_private, _room_for(self._private))
            self._private = self._private + bytearray(size - self._in_private)
            self.held_bytes = size
        return memoryview(self._private)[self._in_private : self._in_private + shared.rounds.share]

    def received(self, count: int) -> tuple[list[Any], str | None]:
        """Take `count` new bytes; return the items of all complete frames (see `speed.cut`) and the fault of the next
        frame.
        """
        self._shared.rounds.reads += 1
        if count >= self._most < self._widest:
            self._most *= 2
        if self._private is None:
            source: bytearray = self._shared.bytes
            end = len(self._left) + count
        else:
            source = self._private
            self._in_private = end = self._in_private + count
            if end >= 4 and end < 4 + int.from_bytes(source[:4], "big") <= self._max_frame:
                return [], None
        consumed, items, error = cut = speed.cut(source, 0, end, self._max_frame, self.gap)
        if consumed == end and error is None:
            self._refused, self._left, self._private, self._in_private, self.held_bytes = None, b"", None, 0, 0
            return items, None
        return self._kept(source, end, count, cut)

    def _kept(
        self, source: bytearray, end: int, count: int, cut: tuple[int, list[Any], str | None]
    ) -> tuple[list[Any], str | None]:
        """Keep the bytes behind the complete frames; return the items and the fault."""
        consumed, items, error = cut
        self._refused = None
        if error is None:
            if consumed == end:
                self._left, self._private, self._in_private, self.held_bytes = b"", None, 0, 0
            else:
                self._keep(source, consumed, end, count)
        elif source is self._shared.bytes:
            self._refused = self._max_frame, source, consumed, end, count
        return items, error

    def _keep(self, source: bytearray, consumed: int, end: int, count: int) -> None:
        left = end - consumed
        self._private = None
        self._in_private = 0
        self._left = b""
        if left >= _PRIVATE_FROM or (left > _TRICKLE_BYTES and count < _STREAM_BYTES):
            self._private = bytearray(min(2 * left, _room_for(memoryview(source)[consumed:end])))
            self._private[:left] = memoryview(source)[consumed:end]
            self._in_private = left
            self.held_bytes = len(self._private)
            self.large_frames += 1
        else:
            self._left = bytes(memoryview(source)[consumed:end])
            self.held_bytes = left
