"""Bounds the bytes that a round of the event loop reads from all connections together.

Entries cost the event loop two milliseconds a MiB. If each of a hundred producers could fill the shared buffer in every
round, each message of other clients would wait for a hundred such reads. The connections that read much share the
bytes of a round evenly; a connection that has read its share reads on in the next round. The bytes of small reads do
not count: a connection with few messages reads them in any round. But thousands of connections with a small SEND each
add up too, so a round that has handled READS_IN_ONE_ROUND reads leaves the commands of further reads to later rounds.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

__all__ = ["READS_IN_ONE_ROUND", "READ_IN_ONE_ROUND", "ReadRounds"]

READ_IN_ONE_ROUND: Final = 8 << 20
READS_IN_ONE_ROUND: Final = 512
_LEAST_SHARE: Final = 16 * 1024
_MOST_READERS: Final = READ_IN_ONE_ROUND // _LEAST_SHARE


class ReadingConnection(Protocol):
    """The part of a connection that reads in rounds."""

    loop: AbstractEventLoop

    def hold_reading(self, reason: str) -> None: ...
    def release_reading(self, reason: str) -> None: ...


class ReadRounds:
    """The reads of this round of the event loop. Loop only.

    most: the bytes that a connection may read in a round beside few others.
    """

    __slots__ = ("_counts", "_most", "_read", "_readers", "_scheduled", "_waiting", "reads", "share")
    few: Final = 256
    """As many reads, of this round or earlier rounds, are handled without a look at the round."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._read = self._readers = 0
        self._scheduled = False
        self._waiting: deque[Callable[[], None]] = deque()
        self.share = most
        """The most bytes of the next read."""
        self.reads = 0
        """Reads since the end of the last round that counted its reads."""
        self._counts = False

    def received(self, connection: ReadingConnection, size: int) -> None:
        """Count a read of more than a few KiB; hold the reading of a connection that has read its share."""
        if self.count(connection.loop, size):
            connection.hold_reading("round")
            self.wait(lambda: connection.release_reading("round"))

    def count(self, loop: AbstractEventLoop, size: int) -> bool:
        """Count a read of more than a few KiB; return whether its connection has read its share, and has to `wait`."""
        if not self._scheduled:
            self._schedule(loop)
        self._readers += 1
        self._read += size
        used_up = self.share < self._most and size >= self.share
        if self._read >= READ_IN_ONE_ROUND:
            self.share, used_up = _LEAST_SHARE, True
        return used_up

    def is_crowded(self, loop: AbstractEventLoop) -> bool:
        """Whether this round has handled as many reads as it may. Call behind each read from the `few`th on."""
        if not self._counts:  # the end of this round sets `reads` back
            self._counts, self.reads = True, self.few
            loop.call_soon(self._count_anew)
        return self.reads > self.few + READS_IN_ONE_ROUND

    def _count_anew(self) -> None:
        self._counts, self.reads = False, 0

    def wait(self, read_on: Callable[[], None]) -> None:
        """Call `read_on` in a later round; only after a `count` in this round."""
        self._waiting.append(read_on)

    def _schedule(self, loop: AbstractEventLoop) -> None:
        self._scheduled = True
        loop.call_soon(self._next, loop)

    def _next(self, loop: AbstractEventLoop) -> None:
        """Begin a round: connections have the shares of as many readers as the last round had, or as wait."""
        self._scheduled = False
        self.share = max(_LEAST_SHARE, min(self._most, READ_IN_ONE_ROUND // max(self._readers, len(self._waiting), 1)))
        self._read = self._readers = 0
        for _ in range(min(len(self._waiting), _MOST_READERS)):
            read_on = self._waiting.popleft()
            try:
                read_on()
            except Exception as error:  # noqa: BLE001 - a connection that cannot read must not keep others waiting
                loop.call_exception_handler({"message": "a connection cannot read on", "exception": error})
        if self._waiting or self.share < self._most:  # the next round may have fewer readers
            self._schedule(loop)
