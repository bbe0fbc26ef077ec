"""The output that waits for a peer: its size, whether the peer reads, and its share of memory.

A peer with more than WRITE_HIGH_BYTES of waiting output counts as slow: its consumers get no more messages and its
requests wait. TIGHT_BYTES is the limit before the handshake, and while the memory account is over a share of this
connection. The broker reads the size of the transport's buffer before writes of WEIGHED_BYTES and more, thus once per
burst of messages.

Over TLS bytes go in pieces (`pieces.py`), a peer counts as slow with ENCRYPTED_HIGH_BYTES of encrypted output, and
encrypted bytes that wait for the socket count.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from magnetar.broker.network.pieces import ENCRYPTED_HIGH_BYTES, PIECE_BYTES, Pieces
from magnetar.broker.network.tls_gate import RECORDS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from magnetar.broker.memory_account import MemoryShare

WRITE_HIGH_BYTES = 1 << 20
TIGHT_BYTES = 64 * 1024
WEIGHED_BYTES = 16 * 1024
_LEFT = getattr(select, "POLLRDHUP", 0)  # Linux alone reports the end of a stream ahead of its unread bytes


class Output:
    """The sending half of one connection."""

    __slots__ = (
        "_fd",
        "_high",
        "_in_pieces",
        "_is_tight",
        "_is_weighed",
        "_mark",
        "_on_writable",
        "_records",
        "_rest",
        "_share",
        "_since_mark",
        "_transport",
        "writable",
    )

    def __init__(self, transport: asyncio.Transport, share: MemoryShare) -> None:
        self.writable = True
        self._transport: asyncio.Transport | None = transport
        self._fd = plain_descriptor(transport)
        self._records = transport.get_extra_info(RECORDS)
        self._in_pieces = self._fd < 0 and transport.get_extra_info("socket") is not None
        self._rest = Pieces()
        self._share = share
        self._on_writable: list[Callable[[], None]] = []
        self._mark: int | None = None
        self._since_mark = 0
        self._is_tight = self._is_weighed = False
        self._high = TIGHT_BYTES
        self._limit(TIGHT_BYTES)

    def admit(self) -> None:
        """Set the limit of a peer that has ended its handshake."""
        self._high = WRITE_HIGH_BYTES
        if not self._is_tight:
            self._limit(WRITE_HIGH_BYTES)

    def close(self) -> None:
        """Forget the socket, which is closed, and call those that wait for room: the connection writes no more."""
        self._transport = self._records = None
        self._rest.take_all()
        self.call_waiting()

    def end(self) -> None:
        """Close the transport when it has sent the waiting bytes; the rest of a long answer is dropped."""
        size, rest = self._rest.size, self._rest.take_all()
        if self._transport is not None:
            if rest and size <= WRITE_HIGH_BYTES:
                self._transport.writelines(rest)
            self._transport.close()

    def _limit(self, high: int) -> None:
        if self._in_pieces:
            high = min(high, ENCRYPTED_HIGH_BYTES)
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=high, low=high // 4)

    def write(self, data: bytes) -> bool:
        """Send the bytes; return False when the output that waits for a slow peer exceeds the limit of one connection:
        the caller then closes the connection.
        """
        waiting = self.waiting_bytes
        if waiting >= TIGHT_BYTES:
            self._weigh(waiting + len(data))
        elif self._is_weighed:
            self._forget()
        self._since_mark += len(data)
        if self._in_pieces and (len(data) > PIECE_BYTES or not self.writable):
            self._rest.add(data)
            self._write_rest()
        elif self._transport is not None:
            self._transport.write(data)
        return self.writable or not self._share.is_over_own

    def write_long(self, data: bytes) -> None:
        """Send a long answer. A peer that does not take it at once counts as slow: so the account has its bytes."""
        if self._transport is None or self._transport.is_closing():
            return
        self._since_mark += len(data)
        self._is_tight = True
        self._limit(TIGHT_BYTES)
        if self._in_pieces:
            self._rest.add(data)
            self._write_rest()
        else:
            self._transport.write(data)
        if self.writable:
            self._forget()

    def _write_rest(self) -> None:
        """Pass pieces on as long as the peer takes them."""
        while self._rest.size and self.writable and self._transport is not None:
            self._transport.write(self._rest.take())

    def write_now(self, data: bytes) -> bool:
        """Send a short answer in this call, not at the end of the turn of the event loop as a transport may do.

        Returns False, without effect, for TLS, and where earlier bytes wait or the socket takes none: then the caller
        uses `write`.
        """
        fd = self.free_descriptor()
        if fd < 0 or self._transport is None:
            return False
        try:
            sent = os.write(fd, data)
        except OSError:
            return False  # the transport meets the error in its next write
        if sent < len(data):
            self._transport.write(data[sent:])
        return True

    def free_descriptor(self) -> int:
        """The descriptor of the socket, for bytes that go to the system in this call; -1 for TLS, and where earlier
        bytes wait.
        """
        transport = self._transport
        if self._fd < 0 or transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return -1
        return self._fd

    def _weigh(self, size: int) -> None:
        self._is_weighed = True
        self._share.set("output", size)
        if self._share.is_over and not self._is_tight:
            self._is_tight = True
            self._limit(TIGHT_BYTES)

    def _forget(self) -> None:
        self._is_weighed = False
        self._share.set("output", 0)
        if self._is_tight and not self._share.is_over:
            self._is_tight = False
            self._limit(self._high)

    @property
    def waiting_bytes(self) -> int:
        if self._transport is None:
            return 0
        encrypted = 0 if self._records is None else self._records.get_write_buffer_size()
        return self._transport.get_write_buffer_size() + encrypted + self._rest.size

    def paused(self) -> None:
        """Count the peer as slow: the transport holds more than its limit."""
        self.writable = False
        self._mark, self._since_mark = None, 0
        self._weigh(self.waiting_bytes)

    def resumed(self) -> None:
        """Count the peer as fast again, unless it does not take the rest of a long answer."""
        self.writable = True
        self._write_rest()
        if self.writable:
            self._forget()
            self.call_waiting()

    def is_stuck(self) -> bool:
        """Whether the peer read no waiting byte since the last call. Updates the memory account, too."""
        waiting = self.waiting_bytes
        if waiting >= TIGHT_BYTES:
            self._weigh(waiting)
        else:
            self._forget()
        if self.writable:
            return False
        mark, written = self._mark, self._since_mark
        self._mark, self._since_mark = waiting, 0
        return mark is not None and waiting >= mark + written

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once, as soon as the peer has read enough or is gone; never when it is gone already, because its
        consumers, which leave in turns, would stay with the callback.
        """
        if self._transport is not None:
            self._on_writable.append(callback)

    def peer_has_left(self) -> bool:
        """Whether the peer has ended its stream, as far as the system reports that while the socket is not read."""
        socket = self._transport.get_extra_info("socket") if self._transport is not None else None
        if socket is None or socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(socket.fileno(), _LEFT)
        return bool(poll.poll(0))

    def call_waiting(self) -> None:
        callbacks, self._on_writable = self._on_writable, []
        for callback in callbacks:
            callback()


def plain_descriptor(transport: asyncio.Transport) -> int:
    """The descriptor of a socket whose bytes are those of the connection; -1 with TLS, or without a socket."""
    socket = transport.get_extra_info("socket")
    if socket is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    descriptor: int = socket.fileno()
    return descriptor
