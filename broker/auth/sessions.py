"""The identity of a connection: authenticated at CONNECT, refreshed while the connection lasts, checked for each right.

With authentication off no client has a role, and every client may do everything. For a proof that expires the broker
requests a new proof by AUTH_CHALLENGE when the client can answer (supports_auth_refresh); the answer has one tick of
authenticationRefreshCheckSeconds to come and must prove the same role. Behind a proxy that forwards the proof of its
client (authenticateOriginalAuthData) that proof counts, not the proxy's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from magnetar.broker.auth.authenticator import Authenticated, AuthenticationFailedError
from magnetar.broker.auth.authorizer import OF_WEB_SOCKETS, Identity, Target
from magnetar.broker.auth.table import COMMANDS, Need
from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import AuthorizationError, ConnectionFatalError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from magnetar.broker.auth.authenticator import Authenticator
    from magnetar.broker.auth.authorizer import Authorizer
    from magnetar.broker.auth.provider import PeerCertificate
    from magnetar.broker.settings import Settings
    from magnetar.protocol.topic_name import TopicName

log = structlog.get_logger(__name__)
REFRESH_DATA = b"PulsarAuthRefresh"


class ProvingPeer(Protocol):
    """The part of a connection that a session needs."""

    connection_id: int
    address: str
    closed: bool
    loop: asyncio.AbstractEventLoop
    features: pb.FeatureFlags

    @property
    def negotiated_version(self) -> int: ...
    def peer_certificate(self) -> PeerCertificate | None:
        """The verified certificate of a TLS client, as `ssl` describes it; None without."""
        ...

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AuthServices:
    """The state that all sessions share."""

    authenticator: Authenticator
    authorizer: Authorizer
    settings: Settings
    server_version: str
    now_ms: Callable[[], int]


class AuthSession:
    """The identity of one connection."""

    def __init__(self, conn: ProvingPeer, services: AuthServices) -> None:
        self.enabled = services.authenticator.enabled
        self.identity = Identity(None)
        self._conn: ProvingPeer | None = conn
        self._address = conn.address
        self._services = services
        self._authenticator = services.authenticator
        self._authorizer = services.authorizer
        self._method = "none"
        self._proof: Authenticated | None = None
        self._original_method = "none"
        self._original_proof: Authenticated | None = None
        self._named: str | None = None
        self._challenged = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def role(self) -> str | None:
        return self.identity.original or self.identity.role

    # --- proving -------------------------------------------------------------------------------------------------

    def needs_proof(self, command: pb.CommandConnect) -> bool:
        """Whether `begin` has a proof to check; if not, the client has no role, or the anonymous role.

        The original principal that an anonymous client names is ignored.
        """
        if not self.enabled:
            return False
        self._method = method_of(command)
        anonymous = self._authenticator.anonymous_role
        if anonymous is None or self._authenticator.provides(self._method):
            return True
        self.identity = Identity(anonymous)
        return False

    async def begin(self, command: pb.CommandConnect) -> None:
        """Prove the role CONNECT claims; raises AuthenticationError or AuthorizationError, both end the connection."""
        self._proof = await self._prove(self._method, command.auth_data)
        original = await self._original(command)
        self.identity = Identity(self._proof.role, original or None)
        self._named = original
        if not self._authorizer.valid_identity(self.identity):
            raise InvalidRolesError(wire_refusals.INVALID_ROLES)
        self._arm()

    def take(self, identity: Identity, proof: Authenticated | None) -> None:
        """Use an identity that was proven elsewhere (HTTP). The connection ends when the proof expires."""
        self.identity, self._proof = identity, proof
        if proof is not None:
            self._arm()

    async def _prove(self, method: str, data: bytes) -> Authenticated:
        certificate = None if self._conn is None else self._conn.peer_certificate()
        try:
            return await self._authenticator.authenticate(method, data, certificate)
        except AuthenticationFailedError as e:
            self._authenticator.failure_log.failed("binary", self._address, method, str(e))
            raise wire_refusals.AUTHENTICATION_FAILED.error() from e

    async def _original(self, command: pb.CommandConnect) -> str | None:
        """Return the role that a proxy represents: verified if authenticateOriginalAuthData is set, else accepted as
        named, which may be empty.
        """
        if not command.HasField("original_principal"):
            return None
        named = command.original_principal
        if not self._services.settings.authenticate_original_auth_data or named == OF_WEB_SOCKETS:
            return named
        if not command.HasField("original_auth_data"):
            raise wire_refusals.AUTHENTICATION_FAILED.error()
        self._original_method = command.original_auth_method or "none"
        self._original_proof = await self._prove(self._original_method, command.original_auth_data.encode())
        return self._original_proof.role

    # --- refreshing ----------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        seconds = self._services.settings.authentication_refresh_check_seconds
        if seconds > 0 and self._conn is not None:
            self._timer = self._conn.loop.call_later(seconds, self._on_refresh_tick)

    def _on_refresh_tick(self) -> None:
        conn = self._conn
        if conn is None or conn.closed:
            return
        self._arm()
        proof = self._original_proof or self._proof
        expires_ms = proof.expires_ms if proof is not None else None
        if self._challenged:
            log.info("connection.refused", conn=conn.connection_id, reason="no answer to AUTH_CHALLENGE")
            conn.close()
        elif expires_ms is not None and self._services.now_ms() >= expires_ms:
            named = self.identity.original if self._named is None else self._named
            is_only_named = named is not None and self._original_proof is None
            if is_only_named or not conn.features.supports_auth_refresh:
                conn.close()  # a client that is only named cannot prove its role
                return
            self._challenged = True
            version = conn.negotiated_version
            conn.write(replies.auth_challenge(self._services.server_version, version, self._method, REFRESH_DATA))

    async def answer(self, command: pb.CommandAuthResponse) -> None:
        """Check the answer to a challenge, and an unsolicited answer in the same way, always by the method of CONNECT.
        Another role closes the connection; a client without a proof at CONNECT cannot answer. Behind a proxy the answer
        is that of the proxy's client, if CONNECT had the client's proof. Where proofs are not renewed (passwords,
        certificates) the answer has no effect.
        """
        present = self._original_proof or self._proof
        if present is None:
            raise wire_refusals.AUTHENTICATION_FAILED.error()
        method = self._method if self._original_proof is None else self._original_method
        if not self._authenticator.renews(method):
            return
        proof = await self._prove(method, command.response.auth_data)
        if proof.role != present.role:
            raise ConnectionFatalError("AUTH_RESPONSE of another role")
        if self._original_proof is None:
            self._proof = proof
        else:
            self._original_proof = proof
        self._challenged = False

    def close(self) -> None:
        """Forget the connection, which has ended; rights are checked as before, for requests in progress."""
        self._conn = None
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_super_user(self) -> bool:
        """Whether role and, behind a proxy, the role it speaks for are super users."""
        return all(self._authorizer.is_super_user(role) for role in self.identity.roles)

    # --- checking rights -----------------------------------------------------------------------------------------

    def require_topic(self, command_type: int, name: TopicName, subscription: str = "") -> None:
        """Raise AuthorizationError unless the role may use the command on the topic."""
        target = Target.of_topic(name, subscription)
        self._require(COMMANDS[command_type], target, command_type)

    def require_namespace(self, command_type: int, namespace: str) -> None:
        if not self.may_namespace(command_type, namespace):
            raise wire_refusals.denied(command_type)

    def _require(self, need: Need, target: Target, command_type: int) -> None:
        if self._authorizer.allows(self.identity, need, target):
            return
        role = self._authorizer.without_prefix(self.identity, need, target)
        if role is not None:
            raise wire_refusals.SUBSCRIPTION_WITHOUT_ROLE.error(role=role, topic=target.topic)
        raise wire_refusals.denied(command_type)

    def may(self, command_type: int, name: TopicName, subscription: str = "") -> bool:
        """Whether the role still has the right; called again after a revocation."""
        target = Target.of_topic(name, subscription)
        return self._authorizer.allows(self.identity, COMMANDS[command_type], target)

    def may_namespace(self, command_type: int, namespace: str) -> bool:
        """Whether the role still has the right to the namespace. A named principal counts as a role here, as in Apache
        Pulsar 4.2: also the empty name and that of a WebSocket proxy, which count for nothing elsewhere.
        """
        target = Target(namespace.partition("/")[0], namespace)
        named = () if self._named is None else (self._named,)
        roles = dict.fromkeys((*self.identity.roles, *named))
        return all(self._authorizer.allows(Identity(role), COMMANDS[command_type], target) for role in roles)


class InvalidRolesError(AuthorizationError):
    """A proxy names no role that it represents, or a client that is no proxy names such a role."""

    closes_connection = True


def method_of(command: pb.CommandConnect) -> str:
    """The name of the authentication method; old clients send the enum instead."""
    if command.HasField("auth_method_name"):
        return command.auth_method_name
    if command.HasField("auth_method"):
        return pb.AuthMethod.Name(command.auth_method).removeprefix("AuthMethod").lower()
    return "none"
