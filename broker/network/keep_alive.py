"""Ends connections whose peer is gone, stuck or makes no progress.

Once per keepAliveIntervalSeconds the keep-alive checks a connection. It closes the connection when

    the handshake is not done                        one interval after it was opened
    PING was not answered and nothing else came      while its socket was read for the whole interval
    the peer has read nothing of waiting output      for a whole interval
    a large frame has not grown by PROGRESS_BYTES    within an interval
    it waited for memory                             for a whole interval

so every connection ends within two intervals of its last progress. Otherwise it sends PING. Apache Pulsar's
KeepAliveHandler has the first two rules.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.network.gone import GONE
from magnetar.protocol import replies

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.network.output import Output
    from magnetar.broker.network.read_buffer import ReadBuffer

PROGRESS_BYTES = 64 * 1024
"""The bytes of a large frame that must arrive within an interval: 2 KiB a second by default."""


class Watched(Protocol):
    """The part of a connection that the keep-alive watches."""

    connected: bool
    closed: bool

    @property
    def is_reading(self) -> bool:
        """Whether nothing holds back the reading of its socket."""

    @property
    def waits_for_memory(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def refuse(self, reason: str) -> None:
        """Log the reason and close the connection after the written bytes are sent."""

    def lost(self, reason: str) -> None:
        """Log the reason and close the connection at once."""

    def refresh(self) -> None:
        """Remove outdated state. Called at each check of a connection that stays open."""


class KeepAlive:
    """The periodic checks of a connection, from `start` to `stop`."""

    def __init__(self, conn: Watched, incoming: ReadBuffer, outgoing: Output, loop: asyncio.AbstractEventLoop) -> None:
        self.heard = True
        """The connection sets it when bytes have arrived."""
        self._conn: Watched = conn
        self._incoming = incoming
        self._outgoing = outgoing
        self._loop = loop
        self._interval_s: Callable[[], int] = lambda: 0
        self._timer: asyncio.TimerHandle | None = None
        self._ping_open = False
        self._frame: tuple[int, int] = (0, 0)
        self._waited = False
        self._waiters: list[asyncio.Future[bool]] = []

    def start(self, interval_s: Callable[[], int]) -> None:
        """Begin the checks; the first check is after one interval. An interval of 0 disables them."""
        self._interval_s = interval_s
        self._arm()

    def stop(self) -> None:
        """End the checks and release the waiters for a sign of life: the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(False)
        self._conn = GONE

    def _arm(self) -> None:
        if self._interval_s() > 0:
            self._timer = self._loop.call_later(self._interval_s(), self.look)

    def look(self) -> None:
        """Close the connection or send PING."""
        conn = self._conn
        if conn.closed:
            return
        if not conn.connected:
            conn.refuse("no handshake in time")
            return
        reason = self._reason_to_end()
        if reason is not None:
            conn.lost(reason)
            return
        self._ping_open, self.heard = True, False
        conn.write(replies.ping())
        conn.refresh()
        self._arm()

    def _reason_to_end(self) -> str | None:
        waited, self._waited = self._waited, self._conn.waits_for_memory
        number, filled = self._frame
        self._frame = self._incoming.large_frames, self._incoming.filled_bytes
        if self._outgoing.is_stuck():
            return "does not read"
        if waited and self._waited and not self.heard:
            return "no memory for its input"
        if self._conn.is_reading:
            if self._ping_open and not self.heard:
                return "no answer to PING"
            if filled and self._frame[0] == number and self._frame[1] < filled + PROGRESS_BYTES:
                return "a frame that does not arrive"
        return None

    def on_pong(self) -> None:
        self._ping_open = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(True)

    async def check(self, timeout_ms: int) -> bool:
        """PING the peer; False, and the connection closed, when it does not answer within the time (0: never asks)."""
        if self._conn.closed:
            return False
        if timeout_ms <= 0:
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiters.append(waiter)
        self._conn.write(replies.ping())
        try:
            return await asyncio.wait_for(waiter, timeout_ms / 1000)
        except TimeoutError:
            self._conn.lost("not alive")
            return False
