"""Passes a session's commands to the broker and the answers back: a `Connection` whose transport is the session's
socket.

`Connection` applies its rules: rights of each command, limits, the publish gate, the memory account, waiting output.
When the connection pauses reading, the link stops reading the socket. Bytes that wait in the socket count as output of
the connection, so a peer that does not read gets no more messages. The link cuts the connection's output into commands,
and delivers them in the next turn of the event loop, never inside a call of the connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.broker.auth.sessions import AuthSession
from magnetar.broker.handlers.request_turns import PATTERN_COMMANDS
from magnetar.broker.network.connection import PROTOCOL_VERSION, Connection
from magnetar.broker.network.feed import feed
from magnetar.broker.websocket.errors import RequestFailedError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.answers import Answer, AnswerCutter

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.auth.authorizer import Identity
    from magnetar.broker.auth.provider import Authenticated
    from magnetar.broker.handlers.client import ClientServices
    from magnetar.broker.network.connection_resources import ConnectionResources

_TYPE = pb.BaseCommand
ANSWER_WITHIN_S = 30.0
CLIENT_VERSION = "Pulsar-WebSocket"
_ANSWERS = {
    _TYPE.SUCCESS: "success",
    _TYPE.ERROR: "error",
    _TYPE.PRODUCER_SUCCESS: "producer_success",
    _TYPE.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    _TYPE.WATCH_TOPIC_LIST_SUCCESS: "watchTopicListSuccess",
    _TYPE.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
}


class Socket(Protocol):
    """The part of the WebSocket that the link needs."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def unsent_bytes(self) -> int:
        """The written bytes that wait for the peer, but for bytes that are encrypted already."""

    def limit_output(self, high: int | None, low: int | None) -> None:
        """Call `Link.paused` when more than `high` bytes wait, and `Link.resumed` with `low` bytes."""

    def hold_reading(self, reason: str) -> None: ...

    def release_reading(self, reason: str) -> None: ...

    def end(self, code: int, reason: str) -> None:
        """Close the WebSocket after the bytes written before."""


class Link:
    """One session's connection inside the broker.

    subscribers: command type (SEND_RECEIPT, MESSAGE, ...) -> function that the link calls with each such Answer.
    """

    def __init__(self, resources: ConnectionResources, services: ClientServices, socket: Socket, *, tls: bool) -> None:
        self.subscribers: dict[int, Callable[[Answer], None]] = {}
        self.connection = Connection(resources, services, tls=tls)
        self._cutter = AnswerCutter()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_request = 0
        self._transport = _LinkTransport(socket, self._on_bytes)
        self.connection.connection_made(self._transport)

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def admit(self, identity: Identity, proof: Authenticated | None) -> None:
        """Authenticate the connection as this role. When the proof expires, the connection ends."""
        connection = self.connection
        connection.auth = AuthSession(connection, connection.services.auth)
        connection.auth.take(identity, proof)
        connection.peer_version = PROTOCOL_VERSION
        connection.client_version = CLIENT_VERSION
        connection.admit()

    async def room_for_pattern(self) -> None:
        """Return when the round of the event loop has room for the compilation of a pattern."""
        await self.connection.services.request_turns.room(self.connection.loop, PATTERN_COMMANDS)

    def compiled(self, commands: int) -> None:
        """Count a compilation that took as long as so many commands."""
        self.connection.services.request_turns.count(self.connection.loop, commands)

    def send(self, frame: bytes) -> None:
        """Pass a command to the broker. Precondition: the caller is not inside a call of the connection."""
        feed(self.connection, frame)

    async def ask(self, build: Callable[[int], bytes]) -> Any:
        """Send the request that build(request_id) makes, and return the command of its answer.

        Raises: RequestFailedError with the error of the broker; with ServiceNotReady when the connection ends, or when
        no answer comes within ANSWER_WITHIN_S.
        """
        self._last_request += 1
        request_id = self._last_request
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self.send(build(request_id))
            if self.closed:
                raise RequestFailedError(pb.ServiceNotReady, "the connection is closed")
            answer = await asyncio.wait_for(future, ANSWER_WITHIN_S)
        except TimeoutError:
            raise RequestFailedError(pb.ServiceNotReady, "no answer in time") from None
        finally:
            self._waiting.pop(request_id, None)
        if answer is None:  # an exception of the future would be in a cycle with this frame
            raise RequestFailedError(pb.ServiceNotReady, "the connection is closed")
        if isinstance(answer, pb.CommandError) or (
            isinstance(answer, pb.CommandPartitionedTopicMetadataResponse) and answer.HasField("error")
        ):
            raise RequestFailedError(answer.error, answer.message)
        return answer

    def _on_bytes(self, data: bytes) -> None:
        for answer in self._cutter.feed(data):
            kind = answer.command.type
            if kind == _TYPE.PING:
                self.send(requests.pong())  # the socket's own deadlines detect a dead peer
            elif (subscriber := self.subscribers.get(kind)) is not None:
                subscriber(answer)
            elif kind in _ANSWERS:
                command = getattr(answer.command, _ANSWERS[kind])
                future = self._waiting.get(command.request_id)
                if future is not None and not future.done():
                    future.set_result(command)

    def paused(self) -> None:
        """The peer does not read fast enough: stop the broker's output until `resumed`."""
        self.connection.pause_writing()

    def resumed(self) -> None:
        self.connection.resume_writing()

    def lost(self, error: Exception | None) -> None:
        """The socket is closed: end the connection and fail waiting requests. Safe to call twice."""
        if not self._transport.gone:
            self._transport.end()
            self.connection.connection_lost(error)
            self.subscribers = {}
        for future in self._waiting.values():
            if not future.done():
                future.set_result(None)


def _drop(_data: bytes) -> None:
    """Take the place of the link's function when the socket is closed."""


class _LinkTransport(asyncio.Transport):
    """The transport of the connection: passes written frames to the link, and all other calls to the socket."""

    def __init__(self, socket: Socket, deliver: Callable[[bytes], None]) -> None:
        super().__init__()
        self.gone = False
        self._socket = socket
        self._deliver = deliver
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._waiting.append(bytes(data))
        self._waiting_bytes += len(data)

    def end(self) -> None:
        """Deliver nothing more, and forget the link."""
        self.gone = True
        self._deliver = _drop

    def _hand_over(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not self.gone:
            self._deliver(b"".join(waiting))

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + self._socket.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.limit_output(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return default  # the socket carries WebSocket frames, not the bytes of the connection
        return self._socket.transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._socket.hold_reading("broker")

    def resume_reading(self) -> None:
        self._socket.release_reading("broker")

    def is_closing(self) -> bool:
        return self.gone or self._socket.transport.is_closing()

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._socket.end, 1011, "the broker closed the session")

    def abort(self) -> None:
        self._socket.transport.abort()
