"""Opens sessions: parses the path, authenticates and authorizes the client, reads the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import structlog

from magnetar.broker.auth.authenticator import AuthenticationFailedError
from magnetar.broker.auth.authorizer import Identity, Target
from magnetar.broker.compat import rest_refusals, wire_refusals
from magnetar.broker.network.round_turns import RoundTurns, host_of
from magnetar.broker.websocket.consumer_session import ConsumerSession
from magnetar.broker.websocket.errors import SessionRefusedError
from magnetar.broker.websocket.link import Link
from magnetar.broker.websocket.parameters import ConsumerParameters, ProducerParameters, ReaderParameters
from magnetar.broker.websocket.producer_session import ProducerSession
from magnetar.broker.websocket.reader_session import ReaderSession
from magnetar.broker.websocket.session import NEEDS, Place, SessionPath, parse_path
from magnetar.broker.websocket.topics_path import TOPICS_PATH, parse_topics_path
from magnetar.broker.websocket.topics_session import TopicsSession
from magnetar.broker.websocket.web_socket import WebSocket

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from magnetar.broker.auth.provider import Authenticated
    from magnetar.broker.handlers.client import ClientServices
    from magnetar.broker.network.connection_resources import ConnectionResources
    from magnetar.broker.websocket.session import Session

log = structlog.get_logger(__name__)
_KINDS: Final[dict[str, tuple[Any, Any]]] = {
    "producer": (ProducerSession, ProducerParameters),
    "consumer": (ConsumerSession, ConsumerParameters),
    "reader": (ReaderSession, ReaderParameters),
    "topics": (TopicsSession, ConsumerParameters),
}
_BEARER: Final = "Bearer "
_SESSIONS_IN_ONE_ROUND: Final = 8
"""How many sessions with many frames in a read have a turn in a round of the event loop."""


class WebSocketService:
    """The sessions of one broker."""

    def __init__(self, resources: ConnectionResources, services: ClientServices) -> None:
        self._resources = resources
        self._services = services
        self._open: dict[WebSocket, None] = {}
        self._turns = RoundTurns(_SESSIONS_IN_ONE_ROUND)

    def __len__(self) -> int:
        """The number of sessions, including sessions that are opening or closing."""
        return len(self._open)

    def serve(
        self,
        transport: asyncio.Transport,
        head: bytes,
        path: str,
        query: str,
        headers: Mapping[str, str],
        certificate: dict[str, Any] | None,
        on_gone: Callable[[], None],
    ) -> WebSocket:
        """Return the protocol that takes over a connection after a request for a WebSocket.

        head: the request's line and headers as bytes; path (still percent-encoded), query and headers (lower-case
        names) are its parsed parts. on_gone: called when the connection is lost.
        """
        settings = self._resources.settings

        def gone() -> None:
            self._open.pop(socket, None)
            on_gone()

        socket = WebSocket(
            transport,
            settings.web_socket_max_text_frame_size,
            settings.web_socket_session_idle_timeout_millis / 1000,
            settings.web_socket_ping_duration_seconds,
            self._turns,
            gone,
        )
        self._open[socket] = None

        async def open_session(socket: WebSocket) -> Session:
            return await self._session(socket, path, query, headers, certificate)

        self._resources.tasks.spawn(socket.open(head, open_session), "websocket.open")
        return socket

    async def _session(
        self,
        socket: WebSocket,
        path: str,
        query: str,
        headers: Mapping[str, str],
        certificate: dict[str, Any] | None,
    ) -> Session:
        parameters: dict[str, str] = {}
        for key, value in parse_qsl(query, keep_blank_values=True):
            parameters.setdefault(key, value)
        found = parse_topics_path(path, parameters) if path.startswith(TOPICS_PATH) else parse_path(path)
        session_class, parameters_class = _KINDS[found.kind]
        chosen = parameters_class.of(parameters)
        identity, proof = await self._identify(headers, parameters.get("token"), certificate)
        self._authorize(identity, found)
        if socket.is_gone:  # the client left during the check of its password
            raise SessionRefusedError(503, "the client is gone")
        tls = socket.transport.get_extra_info("ssl_object") is not None
        socket.link = link = Link(self._resources, self._services, socket, tls=tls)
        if link.closed:
            raise SessionRefusedError(503, "no room for another connection")
        link.admit(identity, proof)
        share = self._resources.memory.share(host_of(socket.transport), lambda: socket.release_reading("memory"))
        socket.account(share, self._resources.settings.keep_alive_interval_seconds)
        session: Session = session_class(
            Place(self._resources, self._services.auth.now_ms, link, socket, found, share), chosen
        )
        try:
            await session.open()
        except BaseException:
            session.close()
            raise
        log.debug("websocket.opened", kind=found.kind, topic=str(found.topic), conn=link.connection.connection_id)
        return session

    async def _identify(
        self, headers: Mapping[str, str], token: str | None, certificate: dict[str, Any] | None
    ) -> tuple[Identity, Authenticated | None]:
        """Authenticate the client by its headers, its certificate, or the token in the query of a browser, which cannot
        set headers. Raises SessionRefusedError.
        """
        auth = self._services.auth
        if not auth.authenticator.enabled:
            return Identity(None), None
        authorization = headers.get("authorization")
        if authorization is None and token is not None:
            authorization = token if token.startswith(_BEARER) else _BEARER + token
        try:
            proof = await auth.authenticator.authenticate_http(authorization, certificate)
        except AuthenticationFailedError as e:
            log.info("websocket.refused", reason=str(e))
            raise SessionRefusedError(401, wire_refusals.AUTHENTICATION_FAILED.text) from e
        identity = Identity(proof.role, headers.get("x-original-principal") or None)
        if not auth.authorizer.valid_identity(identity, itself=True):
            raise SessionRefusedError(rest_refusals.ROLES_INVALID.status, rest_refusals.ROLES_INVALID.text)
        return identity, proof

    def _authorize(self, identity: Identity, path: SessionPath) -> None:
        for topic in path.topics or (path.topic,):
            target = Target.of_topic(topic, path.subscription)
            if not self._services.auth.authorizer.allows(identity, NEEDS[path.kind], target):
                raise SessionRefusedError(403, "Not authorized")

    def close(self) -> None:
        """End all sessions, because the broker stops."""
        for socket in list(self._open):
            socket.end(1001, "the broker stops")
