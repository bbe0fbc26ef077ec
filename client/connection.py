"""One connection to a broker: the handshake, requests and their answers, PING. Pushed commands go to subscribers.

A broker whose machine is gone, or that a cut network separates, sends nothing that ends the connection. So the
connection sends a PING from time to time, as the clients of Apache Pulsar do, and ends when nothing comes back.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Protocol, cast

from magnetar import __version__
from magnetar.client.errors import BusyError, ForeignPeerError, RefusedError, RetryError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.answers import Answer, AnswerCutter
from magnetar.protocol.errors import MalformedAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.client.address import Address, Credentials

_TYPE = pb.BaseCommand
CLIENT_VERSION = f"Magnetar-tools-{__version__}"
TIMEOUT_S = 30.0
KEEP_ALIVE_S = 30.0
"""Time between two PINGs; the broker has as long to send anything."""
_LAST_WORD_S = 1.0
_DEFAULT_MAX_MESSAGE_BYTES = 5 * 1024 * 1024

# Errors that a repetition cannot cure. All other errors are temporary: brokers restart, topics move, names are freed.
_LASTING = {
    pb.AuthenticationError,
    pb.AuthorizationError,
    pb.NotAllowedError,
    pb.TopicTerminatedError,
    pb.TopicNotFound,
    pb.IncompatibleSchema,
    pb.InvalidTopicName,
    pb.UnsupportedVersionError,
    pb.ProducerFenced,
}


def refusal(code: int, message: str) -> RefusedError | RetryError:
    """Return the error for a ServerError of the broker: RetryError when a repetition may succeed."""
    text = f"{pb.ServerError.Name(code)}: {message}"
    return RefusedError(f"the broker refused: {text}") if code in _LASTING else BusyError(text)


class Cutter(Protocol):
    """Cuts the stream of a connection into commands."""

    def feed(self, data: bytes) -> list[Answer]:
        """Return the commands that `data` completes. Raises: MalformedAnswerError."""
        ...


class BrokerConnection(asyncio.Protocol):
    """A connection to a broker, made by `open_connection`. Use it on its event loop only.

    subscribers: command type -> function that is called with each such Answer (SEND_RECEIPT, MESSAGE, ...).
    on_lost: called once when the connection ends, with the reason.
    """

    def __init__(self, credentials: Credentials, *, entry_metadata: bool = False) -> None:
        self._entry_metadata = entry_metadata
        self.subscribers: dict[int, Callable[[Answer], None]] = {}
        self.on_lost: Callable[[RetryError], None] = lambda _: None
        self.max_message_bytes = _DEFAULT_MAX_MESSAGE_BYTES
        self.lost: RetryError | RefusedError | None = None
        self._credentials = credentials
        self._cutter: Cutter = AnswerCutter()
        self._waiting: dict[int, asyncio.Future[pb.BaseCommand]] = {}
        self._last_request = 0
        self._transport: asyncio.Transport | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()
        self._heard = True
        """Whether the broker has sent anything since the last PING, or nothing was read meanwhile."""
        self._is_paused = False
        self._next_ping: asyncio.TimerHandle | None = None

    async def handshake(self) -> None:
        """Send CONNECT and wait for the answer. Raises: RefusedError when the broker refuses the client, RetryError."""
        method, data = self._credentials.auth()
        self.write(
            requests.connect(CLIENT_VERSION, auth_method=method, auth_data=data, entry_metadata=self._entry_metadata)
        )
        try:
            await asyncio.wait_for(self._connected, TIMEOUT_S)
        except TimeoutError:
            raise RetryError(f"no answer to CONNECT within {TIMEOUT_S:.0f} s") from None
        self._next_ping = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._keep_alive)

    def _keep_alive(self) -> None:
        """Send a PING, and again in KEEP_ALIVE_S; end the connection when nothing came since the last PING."""
        assert self._transport is not None, "open_connection has made it"
        if self.lost is not None or self._transport.is_closing():
            return
        if not self._heard:
            self._fail(RetryError(f"the broker has not answered a PING for {KEEP_ALIVE_S:.0f} s"))
            self._transport.abort()
            return
        self._heard = self._is_paused
        self.write(requests.ping())
        self._next_ping = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._keep_alive)

    async def ask(self, build: Callable[[int], bytes]) -> pb.BaseCommand:
        """Send a request made by build(request_id), return its answer.

        Raises: RefusedError, RetryError, also for an ERROR answer.
        """
        self._last_request += 1
        request_id = self._last_request
        future: asyncio.Future[pb.BaseCommand] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self.write(build(request_id))
            return await asyncio.wait_for(future, TIMEOUT_S)
        except TimeoutError:
            raise RetryError(f"no answer within {TIMEOUT_S:.0f} s") from None
        finally:
            self._waiting.pop(request_id, None)

    def tell(self, build: Callable[[int], bytes]) -> None:
        """Send a request made by build(request_id) and ignore its answer; do nothing when the connection is gone."""
        if self.lost is None:
            self._last_request += 1
            self.write(build(self._last_request))

    def write(self, data: bytes) -> None:
        """Send bytes; the transport buffers them without limit. Raises: `lost` when the connection is gone."""
        if self.lost is not None:
            raise self.lost
        assert self._transport is not None, "open_connection has made it"
        self._transport.write(data)

    async def wait_writable(self) -> None:
        """Return when the transport accepts more bytes. Raises: `lost` when the connection is gone."""
        if self._drained is not None:
            await asyncio.shield(self._drained)  # other callers wait for the same
        if self.lost is not None:
            raise self.lost

    def cut_with(self, make: Callable[[AnswerCutter], Cutter]) -> None:
        """Replace the cutter for all later bytes; `make` gets the present cutter. Call at most once."""
        assert isinstance(self._cutter, AnswerCutter), "once"
        self._cutter = make(self._cutter)

    def pause_reading(self) -> None:
        """Stop reading from the socket: the broker stops pushing when the socket buffers are full."""
        self._is_paused = self._heard = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again after `pause_reading`."""
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """End the connection; safe to call twice."""
        if self._transport is not None:
            self._transport.close()

    async def wait_closed(self) -> None:
        """End the connection and return when its socket is closed, by force if the peer is slow.

        Call it before the event loop ends: TLS still has to send its closing alert.
        """
        if self._transport is None:
            return
        self._transport.close()
        try:
            await asyncio.wait_for(self._ended.wait(), _LAST_WORD_S)
        except TimeoutError:
            self._transport.abort()
            await self._ended.wait()

    # --- called by the transport ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is no subclass

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            answers = self._cutter.feed(data)
        except MalformedAnswerError as error:
            self._fail(ForeignPeerError(f"the peer does not speak Pulsar's protocol ({error})"))
            self.close()
            return
        for answer in answers:
            self._handle(answer)

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(RetryError(f"the connection to the broker was lost{f': {exc}' if exc else ''}"))
        self.resume_writing()
        if self._next_ping is not None:
            self._next_ping.cancel()
        self._ended.set()

    # --- answers -------------------------------------------------------------------------------------------------

    def _handle(self, answer: Answer) -> None:
        command = answer.command
        kind = command.type
        if kind == _TYPE.PING:
            self.write(requests.pong())
        elif kind == _TYPE.CONNECTED:
            if command.connected.HasField("max_message_size"):
                self.max_message_bytes = command.connected.max_message_size
            if not self._connected.done():
                self._connected.set_result(None)
        elif kind == _TYPE.AUTH_CHALLENGE:
            self.write(requests.auth_response(CLIENT_VERSION, *self._credentials.auth()))
        elif kind in self.subscribers:
            self.subscribers[kind](answer)
        elif kind == _TYPE.ERROR:
            self._refused(command.error)
        else:
            self._answered(command)

    def _answered(self, command: pb.BaseCommand) -> None:
        for field, value in command.ListFields():
            if field.name != "type":
                future = self._waiting.get(getattr(value, "request_id", -1))
                if future is not None and not future.done():
                    future.set_result(command)

    def _refused(self, error: pb.CommandError) -> None:
        reason = refusal(error.error, error.message)
        future = self._waiting.get(error.request_id)
        if future is not None:
            if not future.done():
                future.set_exception(reason)
        elif not self._connected.done():
            self._connected.set_exception(reason)

    def _fail(self, reason: RetryError | RefusedError) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        waiting: list[asyncio.Future[Any]] = [self._connected, *self._waiting.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(reason)
        if not self._connected.cancelled():
            self._connected.exception()  # mark the exception as retrieved: the caller may have stopped waiting
        self.on_lost(reason if isinstance(reason, RetryError) else RetryError(str(reason)))


async def open_connection(
    address: Address, credentials: Credentials, *, entry_metadata: bool = False
) -> BrokerConnection:
    """Connect and shake hands.

    Args:    entry_metadata: allow the broker to send broker entry metadata before each entry.
    Raises:  RetryError when no broker answers at the address, RefusedError, InputError for TLS files.
    """
    loop = asyncio.get_running_loop()
    context = credentials.tls_context() if address.tls else None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, connection = await loop.create_connection(
                lambda: BrokerConnection(credentials, entry_metadata=entry_metadata),
                address.host,
                address.port,
                ssl=context,
            )
    except TimeoutError:
        raise RetryError(f"{address} does not answer") from None
    except ssl.SSLError as error:
        raise ForeignPeerError(f"TLS with {address} failed: {error}; see --tls-trust-certs and the port") from error
    except OSError as error:
        raise RetryError(f"{address}: {str(error) or 'the peer closed the connection'}") from error
    try:
        await connection.handshake()
    except RetryError as error:
        was_lost = connection.lost is error
        connection.close()
        if address.tls or not was_lost:
            raise
        raise RetryError(f"{error}, before an answer of {address} (a port with TLS needs pulsar+ssl://)") from error
    except BaseException:
        connection.close()
        raise
    return connection
