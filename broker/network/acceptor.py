"""Accepts the connections of one listening socket, as many as there are seats.

The acceptor accepts a bounded number of connections per turn of the event loop. At the limit it closes the connection
that is idle for longest (`Seats`). When none is idle, the acceptor admits a few more connections to send them the
reason of the refusal; all others wait in the system's backlog. Without descriptors (EMFILE) or memory for a socket, the
acceptor pauses for a moment and closes an idle connection. TLS handshakes have a deadline, and turns
(`tls_greeting.py`), as have the records of open connections (`tls_gate.py`).
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ssl
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.network.round_turns import RoundTurns
from magnetar.broker.network.tls_gate import READ_BYTES, TlsGate
from magnetar.broker.network.tls_greeting import HANDSHAKES_IN_ONE_ROUND, wait_greeting

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from magnetar.broker.network.seats import Seat, Seats
    from magnetar.broker.tasks import TaskSet

log = structlog.get_logger(__name__)
_A_TURN: Final = 64
_PAUSE_S: Final = 0.1
_RECORDS_OF_CONNECTIONS: Final = 2
"""How many connections with many TLS records have a turn in a round of the event loop."""
_PLAIN: Final = frozenset({"wrong version number", "http request", "https proxy request"})
"""Reasons of OpenSSL for a first message without TLS."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """One listening socket, from `start` to `close`.

    make: returns the protocol of a new connection, which calls `leave` of its seat when the connection is lost.
    handshake_s: how long the first message of a TLS client may take, and the handshake behind the message.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        seats: Seats,
        make: Callable[[Seat], asyncio.BaseProtocol],
        tasks: TaskSet,
        *,
        context: ssl.SSLContext | None = None,
        handshake_s: float = 30.0,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._seats = seats
        self._make = make
        self._tasks = tasks
        self._context = context
        self._handshake_s = handshake_s
        self._handshakes = RoundTurns(HANDSHAKES_IN_ONE_ROUND)
        self._records = RoundTurns(_RECORDS_OF_CONNECTIONS)
        self._room = memoryview(bytearray(READ_BYTES if context is not None else 0))
        self._reading = False
        self._closed = False

    @property
    def port(self) -> int:
        number: int = self._listening.getsockname()[1]
        return number

    def start(self) -> None:
        """Accept from now on; nothing happens after `close`."""
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.add_reader(self._listening.fileno(), self._on_readable)

    def close(self) -> None:
        """Accept no more and close the listening socket; safe to call twice."""
        if not self._closed:
            self._pause()
            self._closed = True
            self._listening.close()

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._listening.fileno())

    def _on_readable(self) -> None:
        for _ in range(_A_TURN):
            if self._seats.taken >= self._seats.most + self._seats.extra:
                self._pause()
                self._seats.when_room(self.start)
                self._seats.evict()
                return
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                self._cannot_accept(e)
                return
            accepted.setblocking(False)
            seat = self._seats.take()
            task = self._tasks.spawn(self._connect(accepted, seat), "connection.accept")
            task.add_done_callback(functools.partial(_ended, accepted=accepted, seat=seat))
            if self._context is not None:
                seat.idle(task.cancel)  # idle until the protocol has the connection: a TLS handshake may be slow

    def _cannot_accept(self, error: OSError) -> None:
        log.warning("accept.failed", reason=error.strerror or str(error), open=self._seats.taken)
        if error.errno in _EXHAUSTED:
            self._seats.evict()
        self._pause()
        self._loop.call_later(_PAUSE_S, self.start)

    async def _connect(self, accepted: socket.socket, seat: Seat) -> None:
        address = "" if self._context is None else _address_of(accepted)
        try:
            if self._context is not None:
                await self._greet(accepted, self._context, seat, address)
            else:
                await self._loop.connect_accepted_socket(lambda: self._make(seat), accepted)
        except ssl.SSLError as e:
            log.info("tls.refused", address=address, port=self.port, reason=_reason_of(e))
            _give_up(accepted, seat)
        except OSError as e:  # the TLS handshake took too long, or the peer is gone
            log.debug("accept.lost", reason=str(e))
            _give_up(accepted, seat)

    async def _greet(self, accepted: socket.socket, context: ssl.SSLContext, seat: Seat, address: str) -> None:
        """Return when the connection has its protocol, behind the TLS handshake."""
        async with asyncio.timeout(self._handshake_s):
            await wait_greeting(self._loop, accepted)
        await self._handshakes.wait(address.rpartition(":")[0])
        gate = TlsGate(
            self._loop, self._make(seat), context, self._handshake_s, self._records, self._room, self._handshakes
        )
        await self._loop.connect_accepted_socket(lambda: gate, accepted)
        try:
            await gate.ready
        except BaseException:
            gate.close()
            raise


def _address_of(accepted: socket.socket) -> str:
    try:
        peer = accepted.getpeername()
    except OSError:  # gone already
        return ""
    return f"/{peer[0]}:{peer[1]}"


def _reason_of(error: ssl.SSLError) -> str:
    """The reason of a failed handshake, without the place in the library."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return "no TLS: a client of the plain port" if reason in _PLAIN else reason


def _ended(task: asyncio.Task[None], accepted: socket.socket, seat: Seat) -> None:
    """Free the seat after a task that was cancelled, also before its start, or that failed by a bug in the protocol."""
    if task.cancelled() or task.exception() is not None:
        _give_up(accepted, seat)


def _give_up(accepted: socket.socket, seat: Seat) -> None:
    seat.leave()
    accepted.close()
