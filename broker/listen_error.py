"""Explains why a listener cannot open, for the operator that configured its address."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINTS = {
    errno.EADDRINUSE: "another process listens there; stop it or set another port, 0 takes a free one",
    errno.EACCES: "ports below 1024 need a right of their own (CAP_NET_BIND_SERVICE)",
    errno.EADDRNOTAVAIL: "bindAddress must be an address of this machine, or 0.0.0.0 for all of them",
}


@contextlib.contextmanager
def told_by_setting(key: str, host: str, port: int) -> Iterator[None]:
    """A failure to listen inside names the setting, the address and the remedy.

    Raises: OSError, with the errno it had (that of the resolver where bindAddress is no address).
    """
    try:
        yield
    except OSError as e:
        # asyncio and the resolver write sentences of their own; the system's text is the one people know.
        of_the_system = e.errno is not None and e.errno in errno.errorcode
        reason = os.strerror(e.errno or 0) if of_the_system else f"bindAddress: {e.strerror or e}"
        hint = f" ({_HINTS[e.errno]})" if e.errno in _HINTS else ""
        raise OSError(e.errno, f"{key}: cannot listen on {host} port {port}: {reason}{hint}") from e
