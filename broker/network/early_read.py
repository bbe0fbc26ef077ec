"""Reads the next SEND of a producer before the books of the last SEND are kept.

A producer that waits for each receipt sends its next message some microseconds behind a receipt. The broker has time
for the books of the last message while the disk writes the next, so it waits these microseconds for the next SEND. Only
a read of exactly one SEND is handled early: any other command may look at the books, and waits for a turn of its
connection in a later round of the loop.
"""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.network.output import plain_descriptor
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from magnetar.broker.network.read_buffer import ReadBuffer
    from magnetar.storage.interfaces import NextMessage

    Receive = Callable[[memoryview, float], int]
    """Receives bytes like `receive_within`."""

__all__ = ["EarlyRead", "receive_within"]

_MOST_BYTES = 40 * 1024
"""The most bytes of an early read. The journal gives no early notice of messages of 32 KiB and more."""
_SEND = bytes([0x08, pb.BaseCommand.SEND])
"""The first bytes of the command of a SEND frame, behind its two sizes: field 1, the type of the command."""
_COMMAND_AT = 8


class Reader(Protocol):
    """The reading half of a connection."""

    closed: bool

    @property
    def is_reading(self) -> bool: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int, *, later: bool = False) -> None:
        """Take new bytes. `later`: handle their commands in a later round of the loop."""
        ...


class EarlyRead:
    """Reads one message of a connection without TLS outside of the transport. Loop only."""

    __slots__ = ("_buffer", "_reader", "_receive", "_transport")

    def __init__(
        self, reader: Reader, buffer: ReadBuffer, transport: asyncio.Transport, receive: Receive | None = None
    ) -> None:
        self._reader, self._buffer, self._transport = reader, buffer, transport
        descriptor = plain_descriptor(transport)
        self._receive = receive or (partial(receive_within, descriptor) if descriptor >= 0 else None)

    @property
    def function(self) -> NextMessage | None:
        """The early read; None where the connection cannot read early."""
        return self._read if self._receive is not None else None

    def _read(self, wait_s: float) -> bool:
        """Handle the next SEND, and nothing else; wait at most so many seconds for its bytes, without sleeping. Return
        whether bytes have come.
        """
        reader = self._reader
        assert self._receive is not None
        if reader.closed or self._transport.is_closing() or not reader.is_reading or self._buffer.held_bytes:
            return False
        room = reader.get_buffer(_MOST_BYTES)[:_MOST_BYTES]
        count = self._receive(room, wait_s)
        if not count:
            return False
        is_send = room[_COMMAND_AT : _COMMAND_AT + len(_SEND)] == _SEND
        reader.buffer_updated(count, later=not is_send or count != 4 + int.from_bytes(room[:4], "big"))
        return True


def receive_within(descriptor: int, room: memoryview, wait_s: float) -> int:
    """Receive bytes of a socket; wait at most so many seconds for the first, without sleeping. Return their count; 0
    also at the end of the connection and after an error, which the transport meets in its next read.
    """
    end_s = perf_counter() + wait_s
    while True:
        try:
            return os.readv(descriptor, [room])
        except BlockingIOError:
            if perf_counter() >= end_s:
                return 0
        except OSError:
            return 0
