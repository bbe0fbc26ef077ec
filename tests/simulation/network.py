"""A connection between a simulated client and a broker's `Connection`, byte by byte, with the faults of real networks.

Bytes take time, arrive in pieces, wait while the receiver does not read. A link may be *cut* (bytes under way are lost,
both ends notice), *half-open* (no bytes arrive any more and neither end notices) or *stuck* (the client does not read,
so the broker's output waits).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.timers import Timers

WINDOW_BYTES = 64 << 10
"""Bytes that the sockets between both ends hold."""


class Link(asyncio.Transport):
    """The transport that the broker's ``connection`` writes to; ``on_bytes`` and ``on_end`` are the client's."""

    def __init__(
        self,
        connection: Any,
        timers: Timers,
        chance: Random,
        latency_s: float,
        on_bytes: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__()
        self.timers, self.chance, self.latency_s = timers, chance, latency_s
        self.on_bytes, self.on_end = on_bytes, on_end
        self.is_over = self.half_open = self.stuck = False
        self.most_waiting_bytes = 0
        self._held = self._closing = self._paused = self._is_cut = False
        self._high, self._low = 64 << 10, 16 << 10
        self._in, self._out = bytearray(), bytearray()
        self._moving_in = self._moving_out = False
        self._written = 0
        self._marks: deque[tuple[int, float]] = deque()
        """(bytes written until then, time) of each write of the broker."""
        self._port = chance.randrange(1024, 65536)
        self.connection = connection
        self.connection.connection_made(self)

    # --- the client's end ------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if not self._is_dead():
            self._in += data
            self._move_in()

    def hang_up(self) -> None:
        """The client closes its socket: bytes that it sent arrive before the end."""
        self._after(self._end)

    def cut(self) -> None:
        """Bytes under way are lost."""
        self._is_cut = True
        self._in.clear()
        self._out.clear()
        self._after(self._end)

    def written_at_s(self, offset: int) -> float:
        """When the broker wrote the byte before this offset of its output. Calls must pass ascending offsets."""
        while self._marks[0][0] < offset:
            self._marks.popleft()
        return self._marks[0][1]

    def receive_early(self, room: memoryview, wait_s: float) -> int:
        """The client gets its answers at once and sends its next bytes, mostly; for ``EarlyRead``."""
        del wait_s
        if self.stuck or self._is_dead() or self.chance.random() < 0.2:
            return 0
        data, self._out = bytes(self._out), bytearray()
        if data:
            self.on_bytes(data)
        whole = min(len(self._in), len(room))
        count = whole if self.chance.random() < 0.9 else self.chance.randint(0, whole)
        room[:count] = self._in[:count]
        del self._in[:count]
        return count

    def read_again(self) -> None:
        self.stuck = False
        self._move_out()

    # --- the broker's end (asyncio.Transport) ----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", self._port) if name == "peername" else default

    def write(self, data: Any) -> None:
        if self._closing or self.is_over or self._is_cut:
            return
        self._out += data
        self._written += len(data)
        self._marks.append((self._written, asyncio.get_running_loop().time()))
        waiting = len(self._out)
        self.most_waiting_bytes = max(self.most_waiting_bytes, waiting)
        if waiting > WINDOW_BYTES + self._high and not self._paused:
            self._paused = True
            self.connection.pause_writing()
        self._move_out()

    def is_closing(self) -> bool:
        return self._closing or self.is_over

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._out or self._is_dead():
                self._soon(self._end)

    def abort(self) -> None:
        self._closing = True
        self._out.clear()
        self._soon(self._end)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = self._high if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(0, len(self._out) - WINDOW_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def is_reading(self) -> bool:
        return not self._held

    def pause_reading(self) -> None:
        self._held = True

    def resume_reading(self) -> None:
        self._held = False
        self._move_in()

    def _is_dead(self) -> bool:
        return self.half_open or self.is_over or self._is_cut

    # --- on the way ------------------------------------------------------------------------------------------------

    def _after(self, call: Callable[[], None]) -> None:
        self.timers.after(self.chance.uniform(0.5, 1.5) * self.latency_s, call)

    def _soon(self, call: Callable[[], None]) -> None:
        self.timers.after(0, call)

    def _move_in(self) -> None:
        if self._in and not self._moving_in and not self._held and not self._is_dead():
            self._moving_in = True
            self._after(self._arrive_at_broker)

    def _arrive_at_broker(self) -> None:
        self._moving_in = False
        if self._held or self._is_dead():
            return
        piece = len(self._in) if self.chance.random() < 0.7 else self.chance.randint(1, max(1, len(self._in)))
        while piece and self._in and not self._held and not self.is_over:
            piece -= self._give(piece)
        self._move_in()

    def _give(self, piece: int) -> int:
        """Hand over as many bytes as the connection has room for."""
        room = self.connection.get_buffer(-1)
        count = min(len(room), len(self._in), piece)
        room[:count] = self._in[:count]
        del self._in[:count]
        self.connection.buffer_updated(count)
        return count

    def _move_out(self) -> None:
        if self._out and not self._moving_out and not self.stuck and not self._is_dead():
            self._moving_out = True
            self._after(self._arrive_at_client)

    def _arrive_at_client(self) -> None:
        self._moving_out = False
        if self.stuck or self._is_dead():
            return
        count = len(self._out) if self.chance.random() < 0.7 else self.chance.randint(1, max(1, len(self._out)))
        data = bytes(self._out[:count])
        del self._out[:count]
        if self._paused and len(self._out) <= WINDOW_BYTES + self._low:
            self._paused = False
            self.connection.resume_writing()
        if data:  # else an early read has taken the bytes
            self.on_bytes(data)
        if self._closing and not self._out:
            self._soon(self._end)
        self._move_out()

    def _end(self) -> None:
        """Report the end of the connection to both ends; on a half-open link only to the broker."""
        if self.is_over:
            return
        self.is_over = True
        self._in.clear()
        self._out.clear()
        self.connection.connection_lost(None)
        if not self.half_open:
            self._after(self.on_end)

    def process_gone(self) -> None:
        """The broker's process has ended; the first answer of its machine reports that to the client's system."""
        self.is_over = True
        if not self.half_open:
            self._after(self.on_end)


class StreamLink(Link):
    """A link to a connection that accepts bytes at any time."""

    def _give(self, piece: int) -> int:
        data = bytes(self._in[:piece])
        del self._in[:piece]
        self.connection.data_received(data)
        return len(data)
