"""Opens the listening sockets of an address and port; errors give the operator the setting and the remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator


_BACKLOG: Final = 1024
_HINTS = {
    errno.EADDRINUSE: "another process listens there; stop it or set another port, 0 takes a free one",
    errno.EACCES: "ports below 1024 need a right of their own (CAP_NET_BIND_SERVICE)",
    errno.EADDRNOTAVAIL: "bindAddress must be an address of this machine, or 0.0.0.0 for all of them",
}


async def bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Return a non-blocking listening socket for each address of `host`, all on one port; 0 takes a free port.

    Raises: OSError with the errno of the system or the resolver; no socket listens then.
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
    """Return the port of the first socket."""
    return sockets[0].getsockname()[1] if len(sockets) > 1 else 0


@contextlib.contextmanager
def told_by_setting(key: str, host: str, port: int) -> Iterator[None]:
    """Raise a failure to listen in the block with a text that names the setting, the address and the remedy.

    Raises: OSError, with the errno of the failure (that of the resolver if bindAddress is no address).
    """
    try:
        yield
    except OSError as e:
        # asyncio and the resolver have texts of their own; users recognize the text of the system.
        of_the_system = e.errno is not None and e.errno in errno.errorcode
        reason = os.strerror(e.errno or 0) if of_the_system else f"bindAddress: {e.strerror or e}"
        hint = f" ({_HINTS[e.errno]})" if e.errno in _HINTS else ""
        if host.startswith("["):
            hint = " (write an IPv6 address without brackets)"
        raise OSError(e.errno, f"{key}: cannot listen on {host} port {port}: {reason}{hint}") from e
