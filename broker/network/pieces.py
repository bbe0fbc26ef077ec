"""Bytes that go to TLS in pieces, the next when the peer has read the pieces before.

TLS encrypts the bytes of a write at once, whether the peer reads or not, and its buffer keeps its greatest size until
the connection ends.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["ENCRYPTED_HIGH_BYTES", "PIECE_BYTES", "Pieces"]

PIECE_BYTES: Final = 64 * 1024
"""Larger writes take TLS up to eight times as long for a byte: OpenSSL copies the bytes that wait with each record."""
ENCRYPTED_HIGH_BYTES: Final = 128 * 1024
"""With more encrypted bytes that wait for it, a peer counts as slow."""


class Pieces:
    """Written bytes, in order, that TLS does not have yet. `size`: their number."""

    __slots__ = ("_rest", "size")

    def __init__(self) -> None:
        self.size = 0
        self._rest: deque[bytes | memoryview] = deque()

    def add(self, data: bytes) -> None:
        if data:
            self._rest.append(data)
            self.size += len(data)

    def take(self) -> bytes | memoryview:
        """Remove the next piece. Precondition: `size` is not 0."""
        data = self._rest.popleft()
        if len(data) > PIECE_BYTES:
            view = memoryview(data)
            self._rest.appendleft(view[PIECE_BYTES:])
            data = view[:PIECE_BYTES]
        self.size -= len(data)
        return data

    def take_all(self) -> list[bytes | memoryview]:
        """Remove all bytes."""
        found = list(self._rest)
        self._rest.clear()
        self.size = 0
        return found
