"""The ports of a broker for the binary protocol and for HTTP, and the addresses that clients get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.advertised import AdvertisedAddresses
from magnetar.broker.network.binary_server import BinaryServer
from magnetar.broker.network.web_doors import WebDoors, web_doors_or_none
from magnetar.broker.start_up import import_later

if TYPE_CHECKING:
    from magnetar.broker.admin.admin_server import AdminServer
    from magnetar.broker.admin.api import BrokerApi
    from magnetar.broker.handlers.client import ClientServices
    from magnetar.broker.network.connection_resources import ConnectionResources
    from magnetar.broker.network.seats import Seats

__all__ = ["Listeners"]


class Listeners:
    """``open`` serves the binary protocol and binds the web ports; ``serve_web`` serves the web ports."""

    def __init__(self, resources: ConnectionResources, seats: Seats) -> None:
        self.binary = BinaryServer(resources, seats)
        self.web: AdminServer | None = None
        self.http_port: int | None = None
        self.addresses = AdvertisedAddresses(resources.settings)
        self._settings = resources.settings
        self._doors = WebDoors(None, None)

    async def open(self, services: ClientServices) -> None:
        """Serve the binary protocol and bind the web ports. Raises OSError that names the setting of an unusable port
        or certificate of the binary protocol; a web port that cannot be bound is only an error in the log.
        """
        await self.binary.start(services)
        self._doors = await web_doors_or_none(self._settings)
        self.http_port = self._doors.ports[0]
        self.addresses.bound(self.binary.port, self.binary.port_tls, *self._doors.ports)

    @property
    def has_web(self) -> bool:
        """Whether a web port is bound."""
        return self._doors.ports != (None, None)

    async def serve_web(self, api: BrokerApi) -> None:
        """Begin to answer requests at the bound web ports."""
        self.web = await (await import_later("magnetar.broker.admin.admin_server")).start_admin(api, self._doors)

    def stop_accepting(self) -> None:
        """Close the listening sockets, so that another broker may bind their ports; open connections stay."""
        self.binary.stop_accepting()
        if self.web is not None:
            self.web.stop_accepting()
