"""The door of the console: whether it serves a request at all, and the credentials of the visitor.

The visitor types the credentials into the login form once, and a cookie of the browser's session keeps them: the value
of the `Authorization` header, base64url. Scripts cannot read the cookie, other sites cannot send it (SameSite=Strict),
and the browser sends it to /ui alone. The broker stores no credentials.
"""

from __future__ import annotations

import base64
import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Scope


__all__ = ["CLOSED", "MOST_BYTES", "cookie", "forget_cookie", "header_of", "is_open"]

CLOSED: Final = (
    "The console is closed on addresses that other machines reach while clients need no credentials. "
    "Set authenticationEnabled=true, or open it through the loopback address (an SSH tunnel, for example)."
)
NAME: Final = "magnetar_ui"
_BEGIN: Final = f"{NAME}="
MOST_BYTES: Final = 3000
"""The bound of the header's value; a browser keeps 4096 bytes of a cookie."""


def cookie(authorization: str, *, secure: bool) -> str:
    """The `Set-Cookie` value that keeps these credentials until the browser ends.

    secure: whether the visitor came through TLS; the browser then sends the cookie through TLS only.
    Raises: ValueError for credentials that no cookie can hold.
    """
    raw = authorization.encode("utf-8")
    if len(raw) > MOST_BYTES:
        raise ValueError(f"credentials of {len(raw)} bytes; a cookie holds {MOST_BYTES}")
    value = base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
    return f"{NAME}={value}; {_attributes(secure=secure)}"


def forget_cookie(*, secure: bool) -> str:
    """The `Set-Cookie` value that removes the cookie."""
    return f"{NAME}=; Max-Age=0; {_attributes(secure=secure)}"


def header_of(cookies: str) -> str | None:
    """The `Authorization` value in a `Cookie` header; None if the header is missing or comes from another program."""
    values = [pair.strip().removeprefix(_BEGIN) for pair in cookies.split(";") if pair.strip().startswith(_BEGIN)]
    value = values[-1] if values else ""
    if not value:
        return None
    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4), b"-_", validate=True).decode("utf-8")
    except ValueError:  # no base64, no ASCII, no UTF-8
        return None
    return text if text and text.isprintable() else None


def _attributes(*, secure: bool) -> str:
    return "Path=/ui; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")


def is_open(scope: Scope, *, authentication_enabled: bool) -> bool:
    """True when the broker authenticates visitors, or the request came to a loopback address of this machine."""
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
