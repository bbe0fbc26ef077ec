"""Coordination of brokers over a shared metadata store: nodes that live as long as a session."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

from magnetar.storage.interfaces import MetadataStore

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Coordination", "Session"]


class Session(enum.Enum):
    """The state of the session as this process knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No connection; the session may live on, and its nodes with it."""
    LOST = "lost"
    """The session ended and its ephemeral nodes are gone. A new session follows by itself (CONNECTED)."""


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
        """An ephemeral node ``prefix`` + ten digits; returns the number, never given before for this parent."""
        ...

    async def is_mine(self, path: str) -> bool:
        """Whether the node is an ephemeral node of this session."""
        ...

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Callable[[], None]:
        """Call ``callback(names)`` on the loop with the names directly below ``path``: at first and after each change
        of which there are; returns the cancel function.
        """
        ...

    async def watching(self) -> None:
        """Wait until every requested watch is in place: the store reports all changes of values that
        are read after it.
        """
        ...

    def on_session(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        """Call ``callback(state)`` on the loop after each change; returns the cancel function."""
        ...
