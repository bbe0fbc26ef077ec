"""The address of a bookie: its registration (``BookieServiceInfoFormat``), or its id without a registration. Pure."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.bookkeeper.metadata.bookkeeper_formats_pb2 import BookieServiceInfoFormat

__all__ = ["BookieAddress", "bookie_address"]

_PROTOCOL = "bookie-rpc"


class BookieAddress(NamedTuple):
    host: str
    port: int


def bookie_address(bookie_id: str, registered: bytes = b"") -> BookieAddress | None:
    """Return the address of the endpoint for the bookie protocol in the registration; without such an endpoint the
    address in a bookie id of the form ``host:port``; else None.
    """
    try:
        info = BookieServiceInfoFormat.FromString(registered)
    except DecodeError:
        info = BookieServiceInfoFormat()
    for endpoint in info.endpoints:
        if endpoint.protocol == _PROTOCOL and 0 < endpoint.port < 65536:
            return BookieAddress(endpoint.host, endpoint.port)
    host, _, port = bookie_id.rpartition(":")
    return BookieAddress(host, int(port)) if host and port.isdecimal() and 0 < int(port) < 65536 else None
