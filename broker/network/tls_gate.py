"""The encrypted side of a TLS connection: passes the received records to TLS, a bounded number in a turn.

TLS handles all records of a read in one call. A record without data, such as an update of the keys, has 27 bytes and
costs ten microseconds: a read may have ten thousand of them, and the event loop reads on while they come. So a
connection with many records in one read is not read until the records have had their turns.

Behind the ClientHello a client may send certificates, which TLS parses before it knows whether to trust any of them:
two hundred certificates in 94 KiB take sixty milliseconds. So the bytes of a handshake have a limit, and turns by their
number.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.network.round_turns import host_of

if TYPE_CHECKING:
    import ssl

    from magnetar.broker.network.round_turns import RoundTurns

RECORDS_IN_ONE_TURN: Final = 128
READ_BYTES: Final = 256 * 1024
MOST_GREETING_BYTES: Final = 48 * 1024
"""Most bytes of a client before the end of the handshake: a ClientHello, and 32 KiB, as Apache Pulsar takes."""
GREETING_BYTES_A_TURN: Final = 2048
RECORDS: Final = "tls_records"
"""Name of the extra information of a transport: the transport below TLS, whose buffer TLS leaves out of its own size.
"""
_HEAD_BYTES: Final = 5


def cut_records(data: memoryview, begun: int, most: int) -> tuple[int, int]:
    """Cut the data behind `most` records, or else behind the last record whose head is complete.

    begun: how many bytes at the begin of the data belong to a record whose head was in earlier data.
    Returns: how many bytes to pass on, and `begun` for the bytes behind them.
    """
    at, size = begun, len(data)
    for _ in range(most):
        if at + _HEAD_BYTES > size:
            break
        at += _HEAD_BYTES + (data[at + 3] << 8 | data[at + 4])
    return (at, 0) if at <= size else (size, at - size)


class TlsGate(asyncio.BufferedProtocol):
    """Stands between the transport of a socket and TLS, which it makes for `inner`, the protocol of the connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inner: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        handshake_s: float,
        turns: RoundTurns,
        room: memoryview,
        handshakes: RoundTurns,
    ) -> None:
        """room: takes the bytes of a read; connections may share it. handshakes: the turns of handshakes, of which the
        ClientHello has had the first.
        """
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when the handshake is, with the error of a failed handshake."""
        self._turns = turns
        self._handshakes = handshakes
        self._greeting_bytes = 0
        self._awaits_handshake = self._is_lost = False
        self._room = room
        self._tls: Any = _protocol_of(loop)(
            loop, inner, context, self.ready, server_side=True, ssl_handshake_timeout=handshake_s
        )
        self._transport: _Transport
        self._address = ""
        self._rest = b""
        self._begun = 0

    def close(self) -> None:
        """Close a connection whose handshake is given up."""
        self._transport.abort()

    # --- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = _Transport(transport)
        self._address = host_of(transport)
        self._tls.connection_made(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest, self._is_lost = b"", True
        if exc is None and not self.ready.done():  # TLS takes an end without an error for the end of the handshake
            exc = ConnectionAbortedError("the connection was closed in the handshake")
        self._tls.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio calls it so
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        data = self._room[:nbytes]
        if self._rest:
            data = memoryview(self._rest + data)
        if self.ready.done():
            self._take(data)
        else:
            self._greet(data)

    def eof_received(self) -> Any:
        return self._tls.eof_received()

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        if not self._is_lost:  # the TLS of uvloop has no protocol any more
            self._tls.resume_writing()

    # --- the handshake -----------------------------------------------------------------------------------------------

    def _greet(self, data: memoryview) -> None:
        """Pass on the ClientHello at once, and other bytes of the handshake now or in their turn. The bytes in front of
        them count, too: these bytes may complete a message that has arrived in parts.
        """
        if not self._greeting_bytes:
            end = cut_records(data, self._begun, 1)[0]
            self._pass_greeting(data[:end])
            data = data[end:]
            if not data or self._transport.is_closing():
                return
        if not self._awaits_handshake and self._handshakes.at_once(self._cost_of_greeting(len(data))):
            self._pass_greeting(data)
            return
        self._rest = bytes(data)
        if not self._awaits_handshake:
            self._awaits_handshake = True
            self._transport.hold()
            self._handshakes.add(self._on_handshake_turn, self._address)

    def _cost_of_greeting(self, size: int) -> int:
        return 1 + min(self._greeting_bytes + size, MOST_GREETING_BYTES) // GREETING_BYTES_A_TURN

    def _on_handshake_turn(self) -> int:
        self._awaits_handshake = False
        if self._transport.is_closing():
            return 0
        data = self._rest
        cost = self._cost_of_greeting(len(data))
        self._transport.release()
        self._pass_greeting(memoryview(data))
        return cost

    def _pass_greeting(self, data: memoryview) -> None:
        """Pass on the records of the handshake; those behind its end are records like any others."""
        self._rest = b""
        while data and not self.ready.done() and not self._transport.is_closing():
            end, self._begun = cut_records(data, self._begun, 1)
            if not end:
                break
            self._greeting_bytes += end
            if self._greeting_bytes > MOST_GREETING_BYTES:
                self._transport.abort()
                return
            self._pass_on(data[:end])
            data = data[end:]
        if self.ready.done():
            self._take(data)
        else:
            self._rest = bytes(data)

    # --- records -----------------------------------------------------------------------------------------------------

    def _take(self, data: memoryview) -> None:
        end, self._begun = cut_records(data, self._begun, RECORDS_IN_ONE_TURN)
        rest = self._rest = bytes(data[end:])
        if len(rest) >= _HEAD_BYTES:
            self._transport.hold()
            self._turns.add(self._go_on, self._address)
        else:
            self._transport.release()
        self._pass_on(data[:end])

    def _pass_on(self, data: memoryview) -> None:
        while data and not self._transport.is_closing():
            room = self._tls.get_buffer(len(data))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self._tls.buffer_updated(size)
            data = data[size:]

    def _go_on(self) -> bool:
        if self._transport.is_closing():
            return False
        self._take(memoryview(self._rest))
        return True


class _Transport:
    """The transport of the socket, which is read while neither TLS nor the gate holds the reading."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._held = self._paused = False
        self.write = transport.write
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == RECORDS else self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._held:
            self._transport.resume_reading()

    def hold(self) -> None:
        if not self._held:
            self._held = True
            self._transport.pause_reading()

    def release(self) -> None:
        if self._held:
            self._held = False
            if not self._paused:
                self._transport.resume_reading()


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """How many written bytes wait for the socket, encrypted bytes with them."""
    records = transport.get_extra_info(RECORDS)
    return transport.get_write_buffer_size() + (0 if records is None else records.get_write_buffer_size())


def _protocol_of(loop: asyncio.AbstractEventLoop) -> Any:
    """The implementation of TLS that belongs to the loop."""
    if type(loop).__module__.partition(".")[0] == "uvloop":
        from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]  # noqa: PLC0415 - where uvloop is installed

        return SSLProtocol
    return sslproto.SSLProtocol
