"""Bounds the bytes that a round of the event loop reads from all connections together.

Entries cost the event loop two milliseconds a MiB. If each of a hundred producers could fill the shared buffer in every
round, each message of other clients would wait for a hundred such reads. The connections that read much share the
bytes of a round evenly; a connection that has read its share reads on in the next round. Reads of a few KiB do not
count: a connection with few messages reads them in any round.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

__all__ = ["READ_IN_ONE_ROUND", "ReadRounds"]

READ_IN_ONE_ROUND: Final = 8 << 20
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

    __slots__ = ("_most", "_read", "_readers", "_scheduled", "_waiting", "share")

    def __init__(self, most: int) -> None:
        self._most = most
        self._read = self._readers = 0
        self._scheduled = False
        self._waiting: deque[Callable[[], None]] = deque()
        self.share = most
        """The most bytes of the next read."""

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
