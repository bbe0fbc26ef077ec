"""A bounded number of sockets, each with a seat; a new socket replaces the oldest idle socket.

A connection is idle on the binary port before the end of its handshake, and on the web port between requests or before
the head of a request has arrived. Loop only.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Seats:
    """The seats of one listener, or of several that share them.

    extra: sockets that may be open beyond the seats.
    """

    def __init__(self, most: int, extra: int = 32) -> None:
        self.most, self.extra = most, extra
        self.evicted = 0
        """Idle connections that were closed for a new connection, since the start."""
        self._taken = 0
        self._leaving: set[Seat] = set()
        self._idle: OrderedDict[Seat, Callable[[], object]] = OrderedDict()
        self._on_room: list[Callable[[], None]] = []

    @property
    def taken(self) -> int:
        """Open sockets, including sockets that are being closed for a new connection."""
        return self._taken

    @property
    def left(self) -> int:
        """The number of free seats; negative when more seats were taken than exist."""
        return self.most - self._taken + len(self._leaving)

    def take(self) -> Seat:
        """Return a seat for a new socket. When no seat is free, close the connection that is idle for longest."""
        if self.left <= 0:
            self.evict()
        self._taken += 1
        return Seat(self)

    def evict(self) -> bool:
        """Close the connection that is idle for longest; return False when no connection is idle."""
        if not self._idle:
            return False
        seat, close = self._idle.popitem(last=False)
        self._leaving.add(seat)
        self.evicted += 1
        close()
        return True

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a seat is free again."""
        self._on_room.append(callback)

    def _left(self, seat: Seat) -> None:
        self._idle.pop(seat, None)
        self._leaving.discard(seat)
        self._taken -= 1
        waiting, self._on_room = self._on_room, []
        for callback in waiting:
            callback()


class Seat:
    """The seat of one socket, from `Seats.take` to `leave`."""

    __slots__ = ("_left", "_seats", "is_extra")

    def __init__(self, seats: Seats) -> None:
        self.is_extra = seats.left < 0
        """Whether the seat was taken when no seat was free."""
        self._seats = seats
        self._left = False

    def idle(self, close: Callable[[], object]) -> None:
        """Mark the connection idle: the seats may call `close` at any time, to make room."""
        seats = self._seats
        if not self._left and self not in seats._leaving:  # noqa: SLF001 - the other half of this class
            seats._idle[self] = close  # noqa: SLF001 - the same
            seats._idle.move_to_end(self)  # noqa: SLF001 - the same

    def busy(self) -> None:
        """Mark the connection busy: it keeps its seat."""
        self._seats._idle.pop(self, None)  # noqa: SLF001 - the other half of this class

    def leave(self) -> None:
        """The socket is closed; safe to call twice."""
        if not self._left:
            self._left = True
            self._seats._left(self)  # noqa: SLF001 - the other half of this class
