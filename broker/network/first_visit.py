"""Reports the first connection to listening sockets, without accepting the connection.

The libraries of the web port take a sixth of the memory of an idle broker, and their imports delay the receipts of the
first clients. So the broker loads them when the first HTTP client connects. This client waits in the backlog meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Iterable

__all__ = ["FirstVisit"]


class FirstVisit:
    """Calls `on_visit` once, in a turn of the loop in which a connection is in a backlog. Loop only."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listening: Iterable[socket.socket], on_visit: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._watched = [each.fileno() for each in listening]
        self._on_visit = on_visit
        for number in self._watched:
            loop.add_reader(number, self._visited)

    def stop(self) -> None:
        """Look no further. Call before the sockets close; safe to call twice."""
        while self._watched:
            self._loop.remove_reader(self._watched.pop())

    def _visited(self) -> None:
        self.stop()
        self._on_visit()
