"""Coordination of brokers over a shared metadata store: nodes that live as long as a session."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

from magnetar.storage.interfaces import MetadataStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Coordination", "Session"]


class Session(enum.Enum):
    """The state of the session as this process knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """There is no connection. The session and its nodes may still exist."""
    LOST = "lost"
    """The session ended and its ephemeral nodes are gone. The client opens a new session without a call (CONNECTED)."""


class Coordination(MetadataStore, Protocol):
    """A metadata store that other processes write to as well. ``watch`` reports their changes."""

    @property
    def session_timeout_s(self) -> float:
        """How long the service keeps a session without a connection."""
        ...

    async def create_ephemeral(self, path: str, value: bytes) -> int:
        """Create a node that vanishes with the session. Raises BadVersionError when any session has created it."""
        ...

    async def create_numbered(self, prefix: str, value: bytes = b"") -> int:
        """Create the ephemeral node ``prefix`` + ten digits; return the number, which this parent has never given
        before.
        """
        ...

    async def created_ms(self, path: str) -> int:
        """The time when the node was created, in milliseconds since 1970; 0 when there is no such node."""
        ...

    async def is_mine(self, path: str) -> bool:
        """Whether the node is an ephemeral node of this session."""
        ...

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Callable[[], None]:
        """Call ``callback(names)`` on the loop with the names of the nodes directly below ``path``: once at first, then
        after each change of the set of names. Returns the cancel function.
        """
        ...

    async def watching(self) -> None:
        """Wait until every requested watch is in place: the store reports every change of a value that is read after
        this call has returned.
        """
        ...

    async def caught_up(self) -> None:
        """Wait until the store has reported, to the watches of ``watch``, every change that was complete before the
        call; ``watch_children`` may report later. Raises StorageUnavailableError.
        """
        ...

    def change_of(self, path: str) -> Awaitable[object] | None:
        """The wait for the report of a change of this node whose notice has come to this client; None without such a
        change, also where a lost connection is the reason of the next read.
        """
        ...

    def on_session(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        """Call ``callback(state)`` on the loop after each change of the session's state; returns the cancel
        function.
        """
        ...
