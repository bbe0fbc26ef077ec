"""The handshake, authentication and keep-alive: CONNECT, AUTH_RESPONSE, PING, PONG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import structlog

from magnetar.broker.auth.sessions import AuthSession, ProvingPeer
from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import ConnectionFatalError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from magnetar.broker.handlers.client import ClientServices


log = structlog.get_logger(__name__)
_ENTRY_METADATA_SINCE = 18
_MOST_VERSION_CHARS = 1024


class ConnectingClient(ProvingPeer, Protocol):
    """A connection before and during its handshake."""

    services: ClientServices
    auth: AuthSession | None
    peer_version: int
    client_version: str
    knows_entry_metadata: bool
    wants_entry_metadata: bool

    def admit(self) -> None:
        """Take other commands from now on: the handshake is complete."""
        ...

    def on_pong(self) -> None:
        """Note that the client answered a PING."""
        ...


def on_connect(conn: ConnectingClient, command: pb.CommandConnect) -> Coroutine[Any, Any, None] | None:
    """Note the client's version and features, and authenticate the client; afterwards the connection takes other
    commands. Raises ConnectionFatalError for a second CONNECT.

    A proof is checked only after the connection has handled all bytes read together with CONNECT, as in Apache Pulsar
    4.2: a command in the same read comes before the end of the handshake.
    """
    if conn.auth is not None:
        raise ConnectionFatalError("second CONNECT")
    conn.auth = AuthSession(conn, conn.services.auth)
    conn.peer_version = command.protocol_version
    conn.client_version = command.client_version[:_MOST_VERSION_CHARS]
    conn.features.CopyFrom(command.feature_flags)
    conn.features.DiscardUnknownFields()  # the connection keeps the features until it ends
    if conn.auth.needs_proof(command):
        return _prove(conn, conn.auth, command)
    _connected(conn)
    return None


async def _prove(conn: ConnectingClient, auth: AuthSession, command: pb.CommandConnect) -> None:
    if conn.closed:
        return
    await auth.begin(command)
    if not conn.closed:
        _connected(conn)


def _connected(conn: ConnectingClient) -> None:
    settings = conn.services.settings
    conn.knows_entry_metadata = (
        conn.peer_version >= _ENTRY_METADATA_SINCE and conn.features.supports_broker_entry_metadata
    )
    conn.wants_entry_metadata = conn.knows_entry_metadata and settings.exposing_broker_entry_metadata_to_client_enabled
    conn.admit()
    conn.write(
        replies.connected(
            server_version=conn.services.auth.server_version,
            protocol_version=conn.negotiated_version,
            max_message_size=settings.max_message_size,
            topic_watchers=settings.enable_broker_topic_list_watcher,
        )
    )
    log.debug("connection.established", conn=conn.connection_id, address=conn.address, client=conn.client_version)


def on_auth_response(conn: ConnectingClient, command: pb.CommandAuthResponse) -> Coroutine[Any, Any, None] | None:
    """Check the client's answer to a challenge, also an unsolicited answer."""
    response = command.response
    if not (response.HasField("auth_data") and response.HasField("auth_method_name")):
        raise ConnectionFatalError("AUTH_RESPONSE without data or method")
    if conn.auth is None or not conn.auth.enabled:
        conn.write(replies.error(-1, *wire_refusals.AUTHENTICATION_FAILED.answer()))
        conn.close()
        return None
    return conn.auth.answer(command)


def on_ping(conn: ConnectingClient, _command: pb.CommandPing) -> None:
    conn.write(replies.pong())


def on_pong(conn: ConnectingClient, _command: pb.CommandPong) -> None:
    conn.on_pong()
