"""The addresses clients are told to connect to (advertisedAddress, advertisedListeners; reference B.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True)
class AdvertisedUrls:
    """Where a client reaches this broker; None where no such listener is open."""

    service_url: str | None
    service_url_tls: str | None
    http_url: str | None
    http_url_tls: str | None


class AdvertisedAddresses:
    """Known once the listeners are bound, since a port may be 0 until then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.own = AdvertisedUrls(None, None, None, None)
        self._listeners = parse_listeners(settings.advertised_listeners)

    @property
    def host(self) -> str:
        """advertisedAddress, else the bind address, else this machine's loopback."""
        if self._settings.advertised_address:
            return self._settings.advertised_address
        bind = self._settings.bind_address
        if bind in _WILDCARDS:
            import socket  # noqa: PLC0415 - only a broker bound to all addresses asks for its name

            return socket.gethostname()
        return bind

    def bound(self, port: int | None, port_tls: int | None, http: int | None, http_tls: int | None) -> None:
        """The listeners' ports."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.own = AdvertisedUrls(
            f"pulsar://{host}:{port}" if port is not None else None,
            f"pulsar+ssl://{host}:{port_tls}" if port_tls is not None else None,
            f"http://{host}:{http}" if http is not None else None,
            f"https://{host}:{http_tls}" if http_tls is not None else None,
        )

    def of(self, listener: str = "") -> AdvertisedUrls | None:
        """The urls of a named listener; of the broker itself for no name; None for an unknown name."""
        if not listener:
            listener = self._settings.internal_listener_name
            return self._listeners.get(listener, self.own)
        return self._listeners.get(listener)


def parse_listeners(texts: tuple[str, ...]) -> dict[str, AdvertisedUrls]:
    """`name:pulsar://host:port` and `name:pulsar+ssl://host:port` items, by name."""
    plain: dict[str, str] = {}
    tls: dict[str, str] = {}
    for text in texts:
        name, _, url = text.strip().partition(":")
        (tls if url.startswith("pulsar+ssl://") else plain)[name] = url
    return {name: AdvertisedUrls(plain.get(name), tls.get(name), None, None) for name in plain | tls}
