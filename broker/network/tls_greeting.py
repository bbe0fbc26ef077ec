"""Waits for the first message of a TLS client, the ClientHello.

A ClientHello of some hundred bytes, which a client need not even compute, costs the broker a signature: half a
millisecond with a key of RSA-2048, three with RSA-4096. So a handshake begins when the whole ClientHello waits in the
socket, and a round of the event loop begins few handshakes (`HANDSHAKES_IN_ONE_ROUND`): other clients wait for a few
signatures, not for one of each new connection. Until then a connection costs a socket, but no buffers for TLS.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

HANDSHAKES_IN_ONE_ROUND: Final = 4
_HEAD_BYTES: Final = 9
"""The head of a TLS record (type, version, length), and of the message in it (type, length)."""
_HANDSHAKE_RECORD: Final = 22
_CLIENT_HELLO: Final = 1
_LARGEST_RECORD: Final = 5 + (1 << 14)


class SplitGreetingError(ConnectionError):
    """A ClientHello comes in several TLS records; no client of Apache Pulsar sends such a message."""


def greeting_bytes(head: bytes) -> int:
    """Return how many bytes have to arrive before the handshake begins, given the first bytes of the connection. For
    other bytes than a ClientHello the handshake, which fails, may begin at once. Raises SplitGreetingError.
    """
    if head and head[0] != _HANDSHAKE_RECORD:
        return len(head)
    if len(head) < _HEAD_BYTES:
        return _HEAD_BYTES
    record, message = 5 + int.from_bytes(head[3:5]), _HEAD_BYTES + int.from_bytes(head[6:9])
    if head[5] != _CLIENT_HELLO or record > _LARGEST_RECORD:
        return len(head)
    if message > record:
        raise SplitGreetingError("a ClientHello in several records")
    return record


async def wait_greeting(loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
    """Return when the whole ClientHello has arrived, or when the connection has ended. Raises SplitGreetingError."""
    wanted = 1
    while True:
        await _wait_readable(loop, client)
        found = client.recv(max(wanted, _HEAD_BYTES), socket.MSG_PEEK)
        needed = greeting_bytes(found[:_HEAD_BYTES])
        if len(found) >= needed or len(found) < wanted:
            break  # complete, or the system reports readiness early: the connection has ended
        wanted = needed
        try:  # the system wakes the reader when so many bytes have arrived
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
        except OSError:
            break
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _wait_readable(loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
    readable = loop.create_future()

    def on_readable() -> None:
        loop.remove_reader(client.fileno())
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(client.fileno(), on_readable)
    try:
        await readable
    finally:
        if not readable.done() or readable.cancelled():
            loop.remove_reader(client.fileno())
