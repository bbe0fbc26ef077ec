"""A transport that puts what is written in one turn of the loop on the wire at once, as Jetty does.

Node's client counts on it: a request of its whose body was not announced gets two answers, the second about that body.
Found in one piece it gives the connection up; found later it has put the next request on it.
"""

import asyncio
from typing import Any


class CorkedTransport:
    """Wraps a transport; all but writing and closing is that transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)

    def flush(self) -> None:
        """Send what waits; nothing when the connection is gone."""
        waiting, self._waiting = self._waiting, []
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))

    def close(self) -> None:
        """Close behind what was written."""
        self.flush()
        self._transport.close()
