"""Where a connection's bytes are received and cut into frames.

Receiving is synchronous on the event loop: it asks for room, fills it and reports the count before anything else runs.
So all connections share one large buffer (a big socket read is one large cut, and ten thousand idle
connections cost no buffers), and a connection keeps only its incomplete last frame, put in front of the next read. A
frame that is large for the shared buffer grows in a buffer of its own, only as fast as its bytes arrive: a peer that
announces 5 MiB and sends nothing costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import speed

if TYPE_CHECKING:
    from typing import Any

SHARED_BYTES = 1 << 20
_PRIVATE_FROM = SHARED_BYTES // 4
_STREAM_BYTES = 64 * 1024
_TRICKLE_BYTES = 4096
"""A frame that comes in small pieces is not copied again with each of them beyond this size."""


class SharedReadBuffer:
    """The one large receive buffer of a broker."""

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.bytes = bytearray(size)
        self.view = memoryview(self.bytes)


class ReadBuffer:
    """A connection's end of the shared buffer: `room` and `received` alternate, never interleaved with another
    connection.
    """

    __slots__ = ("_in_private", "_left", "_max_frame", "_private", "_shared")

    def __init__(self, shared: SharedReadBuffer, max_frame_bytes: int) -> None:
        self._shared = shared
        self._max_frame = max_frame_bytes
        self._left = b""  # an incomplete frame, small
        self._private: bytearray | None = None  # an incomplete frame, large
        self._in_private = 0

    @property
    def held_bytes(self) -> int:
        """Memory this connection holds for an incomplete frame."""
        return len(self._left) + (len(self._private) if self._private is not None else 0)

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._private is None:
            left = len(self._left)
            if left:
                self._shared.bytes[:left] = self._left
            return self._shared.view[left:]
        if self._in_private == len(self._private):
            self._private = self._private + bytearray(len(self._private))
        return memoryview(self._private)[self._in_private :]

    def received(self, count: int) -> tuple[list[Any], str | None]:
        """Take `count` new bytes; return the items of all complete frames (see `speed.cut`) and what is wrong with
        the next.
        """
        if self._private is None:
            source: bytearray = self._shared.bytes
            end = len(self._left) + count
        else:
            source = self._private
            self._in_private = end = self._in_private + count
            if end >= 4 and end < 4 + int.from_bytes(source[:4], "big") <= self._max_frame:
                return [], None
        consumed, items, error = speed.cut(source, 0, end, self._max_frame)
        if error is None:
            self._keep(source, consumed, end, count)
        return items, error

    def _keep(self, source: bytearray, consumed: int, end: int, count: int) -> None:
        left = end - consumed
        self._private = None
        self._in_private = 0
        self._left = b""
        if not left:
            return
        if left >= _PRIVATE_FROM or (left > _TRICKLE_BYTES and count < _STREAM_BYTES):
            self._private = bytearray(2 * left)
            self._private[:left] = memoryview(source)[consumed:end]
            self._in_private = left
        else:
            self._left = bytes(memoryview(source)[consumed:end])
