"""Listening sockets of an address and port."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

_BACKLOG: Final = 1024


async def bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """A non-blocking listening socket for each address that `host` resolves to, all on one port; 0 takes a free one.

    Raises: OSError with the system's errno, or the resolver's; nothing listens then.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            each = socket.socket(family, kind, protocol)
            sockets.append(each)
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((address[0], port or _port(sockets), *address[2:]))
            each.listen(_BACKLOG)
    except OSError as e:
        for each in sockets:
            each.close()
        raise OSError(e.errno, os.strerror(e.errno) if e.errno else str(e)) from e
    return sockets


def _port(sockets: list[socket.socket]) -> int:
    """The port that the first of several addresses got."""
    return sockets[0].getsockname()[1] if len(sockets) > 1 else 0
