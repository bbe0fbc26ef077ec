"""The addresses of this broker that clients get for their connections (advertisedAddress, advertisedListeners)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

log = structlog.get_logger(__name__)

_SCHEMES: Final = {
    "pulsar": "service_url",
    "pulsar+ssl": "service_url_tls",
    "http": "http_url",
    "https": "http_url_tls",
}
_NO_HOST: Final = frozenset("/@?#[],")
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True)
class AdvertisedUrls:
    """The addresses at which a client reaches this broker; None for a listener that is not open."""

    service_url: str | None = None
    service_url_tls: str | None = None
    http_url: str | None = None
    http_url_tls: str | None = None

    @property
    def line(self) -> str:
        """An address of the binary protocol and one of HTTP, as a start prints them."""
        return f"{self.service_url or self.service_url_tls} {self.http_url or self.http_url_tls or '-'}"


class AdvertisedAddresses:
    """The advertised addresses. `bound` completes them when the listeners are bound, since a configured port may be 0.

    Raises: ValueError when advertisedAddress, advertisedListeners or internalListenerName is unusable.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        _check_host(settings.advertised_address)
        self.own = AdvertisedUrls()
        self._web_port: int | None = None
        self._listeners = parse_listeners(settings.advertised_listeners)
        internal = settings.internal_listener_name
        if self._listeners and internal and internal not in self._listeners:
            raise ValueError(f"internalListenerName: there is no {internal!r} in advertisedListeners")

    @property
    def host(self) -> str:
        """advertisedAddress, else the bind address; the machine's host name for a broker bound to all addresses."""
        if self._settings.advertised_address:
            return self._settings.advertised_address
        bind = self._settings.bind_address
        if bind in _WILDCARDS:
            import socket  # noqa: PLC0415 - only a broker bound to all addresses asks for its name

            return socket.gethostname()
        return bind

    @property
    def listeners(self) -> dict[str, AdvertisedUrls]:
        """The addresses of advertisedListeners, by name of the listener."""
        return dict(self._listeners)

    @property
    def broker_id(self) -> str:
        """host:port with the web port, or with the TLS web port if there is no other web port, as in Apache Pulsar."""
        return f"{self.host}:{self._web_port}"

    def bound(self, port: int | None, port_tls: int | None, http: int | None, http_tls: int | None) -> None:
        """Set the ports of the bound listeners."""
        for text in filter(_is_nameless, self._settings.advertised_listeners):
            log.warning("advertised_listener.ignored", address=text, reason="no name: must be <name>:<url>")
        self._web_port = http_tls if http is None else http
        self.own = self.at(port, port_tls, http, http_tls)

    def at(self, port: int | None, port_tls: int | None, http: int | None, http_tls: int | None) -> AdvertisedUrls:
        """Return the broker's own addresses with these ports. For each protocol, an address of the internal listener,
        else of any advertised listener, overrides them.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        own = AdvertisedUrls(
            f"pulsar://{host}:{port}" if port is not None else None,
            f"pulsar+ssl://{host}:{port_tls}" if port_tls is not None else None,
            f"http://{host}:{http}" if http is not None else None,
            f"https://{host}:{http_tls}" if http_tls is not None else None,
        )
        internal = self._listeners.get(self._settings.internal_listener_name)
        listeners = list(self._listeners.values()) if internal is None else [internal, *self._listeners.values()]
        for field in fields(AdvertisedUrls):
            told = [url for each in listeners if (url := getattr(each, field.name)) is not None]
            own = replace(own, **{field.name: told[0]}) if told else own
        return own

    def of(self, listener: str = "") -> AdvertisedUrls | None:
        """Return the URLs of a named listener, or of the broker itself for an empty name; None for an unknown name. A
        listener without web addresses gets the web addresses of the broker, as in Apache Pulsar.
        """
        named = self._listeners.get(listener) if listener else self.own
        if named is None:
            return None
        web, web_tls = named.http_url or self.own.http_url, named.http_url_tls or self.own.http_url_tls
        return replace(named, http_url=web, http_url_tls=web_tls)


def parse_listeners(texts: tuple[str, ...]) -> dict[str, AdvertisedUrls]:
    """Parse items `<name>:<scheme>://<host>:<port>`; return the listeners by name. A name may have an item per scheme.
    An address without a name has no effect, as in Apache Pulsar.

    Raises: ValueError that names the unusable item, by the rules of Apache Pulsar: two listeners may not share an
    address.
    """
    listeners: dict[str, AdvertisedUrls] = {}
    owners: dict[str, str] = {}
    for text in texts:
        if _is_nameless(text):
            continue
        name, url, scheme, address = _parts(text)
        known = listeners.setdefault(name, AdvertisedUrls())
        if getattr(known, _SCHEMES[scheme]) is not None:
            raise ValueError(f"advertisedListeners: {name} has two addresses of {scheme}://")
        if owners.setdefault(address, name) != name:
            raise ValueError(f"advertisedListeners: {name} and {owners[address]} have the same address {address}")
        listeners[name] = replace(known, **{_SCHEMES[scheme]: url})
    for name, urls in listeners.items():
        if urls.service_url is None and urls.service_url_tls is None:
            raise ValueError(f"advertisedListeners: {name} has no address of pulsar:// or pulsar+ssl://")
    return listeners


def _is_nameless(text: str) -> bool:
    """Whether the item is an address alone."""
    scheme, found, _ = text.partition("://")
    return bool(found) and scheme.strip() in _SCHEMES


def _parts(text: str) -> tuple[str, str, str, str]:
    """Split an item into name, URL, scheme, and host with port. Raises ValueError."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - few brokers have listeners

    name, _, url = (part.strip() for part in text.partition(":"))
    try:
        split = urlsplit(url)
        usable = bool(name and split.scheme in _SCHEMES and split.hostname and split.port)
    except ValueError:  # a port that is no number, or beyond 65535
        usable = False
    if not usable:
        schemes = ", ".join(f"{each}://" for each in _SCHEMES)
        raise ValueError(
            f"advertisedListeners: {text!r} must be <name>:<url> with <host>:<port> behind one of {schemes},"
            " and the port an integer from 1 to 65535"
        )
    return name, url, split.scheme, split.netloc


def _check_host(text: str) -> None:
    """Raise ValueError when the value of advertisedAddress is no host: clients could not connect to its URLs."""
    is_usable = _NO_HOST.isdisjoint(text) and not any(character.isspace() for character in text)
    if is_usable and ":" in text:
        import ipaddress  # noqa: PLC0415 - only for an address with colons

        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            is_usable = False
    if not is_usable:
        raise ValueError(
            f"advertisedAddress: {text!r} must be a host name or an IP address, without scheme, port and brackets; "
            "advertisedListeners takes whole URLs"
        )
