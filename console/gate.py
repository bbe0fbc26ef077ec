"""Whether the console serves a request at all. Pure."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Scope

__all__ = ["CLOSED", "is_open"]

CLOSED: Final = (
    "The console is closed on addresses that other machines reach while clients need no credentials. "
    "Set authenticationEnabled=true, or open it through the loopback address (an SSH tunnel, for example)."
)


def is_open(scope: Scope, *, authentication_enabled: bool) -> bool:
    """True where visitors prove a role, or came to a loopback address of this machine."""
    if authentication_enabled:
        return True
    server = scope.get("server")
    if not server or not server[0]:
        return False
    try:
        address = ipaddress.ip_address(server[0].partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
