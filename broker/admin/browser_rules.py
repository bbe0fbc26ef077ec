"""Recognizes HTTP requests that a foreign web page may have sent; the broker refuses them before it reads them.

A page in a browser on this machine, or in its network, reaches the web port like any client. Two attacks use this where
no credentials are needed:

    cross-site request forgery   a page sends POSTs that need no preflight (no body, a form): its browser names the
                                 page's origin in `Origin`, or in `Sec-Fetch-Site`
    DNS rebinding                a domain of the attacker resolves to this broker: the page may read the answers too,
                                 but the browser names that name in `Host`

Clients other than browsers send neither `Origin` nor a foreign `Host`. An attacker can rebind only names that others
can own: addresses, names without a dot, names below reserved domains, the broker's own names and those of
httpAllowedHosts are allowed.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from magnetar.broker.advertised import AdvertisedAddresses

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

EVERY_HOST: Final = "*"
_RESERVED: Final = (".localhost", ".local", ".internal", ".home.arpa", ".test")
"""Domains below which no public name can be registered (RFC 6761, 6762, 8375; ICANN for .internal)."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN: Final = 100
REMEDY: Final = "add it to httpAllowedHosts if it is yours"


class BrowserRules:
    """The rules of one broker. Pure.

    allowed: names (httpAllowedHosts); own: the broker's names; checks_host: whether unauthenticated clients have any
    rights, so that a rebound name would be of use to an attacker.
    """

    def __init__(self, allowed: Iterable[str], own: Iterable[str], *, checks_host: bool) -> None:
        self._allowed = frozenset(name.lower().rstrip(".") for name in allowed)
        self._own = frozenset(name.lower().rstrip(".") for name in own if name)
        self._checks_host = checks_host and EVERY_HOST not in self._allowed
        self._checks_origin = EVERY_HOST not in self._allowed

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """The rules that follow from the settings."""
        own = {AdvertisedAddresses(settings).host, settings.bind_address}
        for text in settings.advertised_listeners:
            own.add(urlsplit(text.partition(":")[2].strip()).hostname or "")
        unproven = not settings.authentication_enabled or bool(settings.anonymous_user_role)
        return cls(settings.http_allowed_hosts, own, checks_host=unproven)

    def refusal(self, method: str, headers: Mapping[str, str], *, probe: bool) -> str | None:
        """The reason of a refusal; None for an allowed request.

        headers: by lower-case name; probe: whether the request is for metrics or health, which reveal no messages.
        """
        host = headers.get("host", "")
        if self._checks_host and not probe and not self._is_safe(_name_of(host)):
            return f"Host {host[:_SHOWN]} is no name of this broker: {REMEDY}"
        if not self._checks_origin:
            return None
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        if method in _READING:
            followed = headers.get("sec-fetch-mode") == "navigate"  # a link that the user clicked
            return f"a {site} page may not read this" if site == "cross-site" and not followed and not probe else None
        if origin is not None and not self._is_own_origin(origin, host):
            return f"Origin {origin[:_SHOWN]} is not this broker: {REMEDY}"
        if origin is None and site in ("cross-site", "same-site"):
            return f"a {site} page may not change this"
        return None

    def _is_safe(self, name: str) -> bool:
        if name in self._own or name in self._allowed or "." not in name.strip("."):
            return True
        return _is_address(name) or name.endswith(_RESERVED)

    def _is_own_origin(self, origin: str, host: str) -> bool:
        """Whether the page comes from this broker, by the same name and port, or from an allowed host."""
        _, scheme, authority = origin.partition("://")
        if not scheme:
            return False  # "null": a page that hides its origin
        return authority.lower() == host.lower() or _name_of(authority) in self._allowed


def _name_of(authority: str) -> str:
    """The host of `host:port`, lower case, without the brackets of an IPv6 address and the dot of the root."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.rpartition(":")[0].lower().rstrip(".") if ":" in authority else authority.lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
