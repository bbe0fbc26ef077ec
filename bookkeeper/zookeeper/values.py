"""Values of a ZooKeeper session: nodes, versions, watch events, the operations of a transaction."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ANY_VERSION",
    "Check",
    "Create",
    "Delete",
    "Node",
    "NodeStat",
    "Operation",
    "SessionState",
    "Set",
    "WatchEvent",
    "WatchKind",
    "ZooKeeperOptions",
]

ANY_VERSION = -1
"""ZooKeeper's value for any version."""


class SessionState(enum.Enum):
    """State of the session, as this process sees it.

    CONNECTED -> SUSPENDED (connection lost; the session may still exist on the server) -> CONNECTED (same session) or
    LOST (expired: the ephemeral nodes are gone) -> CONNECTED (a new session, opened automatically). CLOSED is final.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


class NodeStat(NamedTuple):
    """The fields of ZooKeeper's ``Stat`` that the callers use."""

    version: int
    """Data version: 0 at creation, incremented with each set."""
    children_version: int
    ephemeral_owner: int
    """Session id of the owner; 0 for a persistent node."""
    created_ms: int
    modified_ms: int
    creation_zxid: int
    """Transaction that created the node: differs when a node was deleted and created again."""
    modified_zxid: int
    children: int


class Node(NamedTuple):
    value: bytes
    stat: NodeStat

    @property
    def version(self) -> int:
        return self.stat.version


class WatchKind(enum.Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    UNKNOWN = "unknown"
    """The connection was lost, and the watch with it: read the node again once the session is connected."""


class WatchEvent(NamedTuple):
    """A one-shot watch fired."""

    kind: WatchKind
    path: str


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a transaction: create a node. Its parent must exist, or an earlier operation must create it."""

    path: str
    value: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    value: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """The transaction fails unless the node has this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """Addresses, deadlines and security of a ZooKeeper session.

    ``servers`` is ``host:port,host:port`` with an optional chroot (``.../pulsar``).
    """

    servers: str
    session_timeout_ms: int = 30_000
    """The requested value; the server decides."""
    connect_timeout_s: float = 30.0
    request_timeout_s: float = 30.0
    """Deadline of each operation, including its time in the queue and while the session is suspended."""
    max_outstanding: int = 10_000
    """Limit of operations without an answer; further operations wait in order."""
    max_waiting: int = 20_000
    """Limit of operations that wait or have no answer yet (about 3 KB each); further operations fail at once."""
    max_request_bytes: int = 1_048_575
    """The server's ``jute.maxbuffer``: the server drops the connection of a client that sends a larger request, so the
    session refuses larger requests.
    """
    max_reconnect_delay_s: float = 0.5
    """Longest pause between two attempts to reconnect. Keep it far below the session timeout, else sessions expire."""
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """(scheme, credential) pairs, for example ("digest", "user:password")."""
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The keywords of kazoo's ``sasl_options`` (mechanism, username, password, ...); SASL needs the package pure-sasl.
    """
    tls: bool = False
    tls_ca_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True
    tls_verify_names: bool = True
    """Whether a server's certificate has to name its address; only with ``tls_verify``."""
