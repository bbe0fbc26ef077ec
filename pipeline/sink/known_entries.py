"""The entries of a producer that the broker has accepted in an earlier attempt."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from magnetar.pipeline.sink.message import Chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.pipeline.sink.message import Entry


class KnownEntries:
    """Keeps the newest entries, in order: all that may have waited for receipts when the earlier attempt ended, so that
    the broker may have accepted them and failed to store them.

    Every attempt makes the same entries, because only the rows determine their ends.

    Args: pending_bytes: the most bytes that wait for receipts.
    """

    def __init__(self, pending_bytes: int) -> None:
        self._pending_bytes = pending_bytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def add(self, packed: Entry | Chunks) -> int:
        """Add the next entry; returns the number of messages that need no further proof.

        A chunked message needs none: deduplication would not drop its chunks before the last.
        """
        if isinstance(packed, Chunks):
            return 1
        self._entries.append(packed)
        self._bytes += len(packed.data)
        proven = 0
        while self._bytes - len(self._entries[0].data) >= self._pending_bytes:
            oldest = self._entries.popleft()
            self._bytes -= len(oldest.data)
            proven += oldest.messages
        return proven

    def entries(self) -> Sequence[Entry]:
        """The entries to send again, in order."""
        return self._entries
