"""The address of a BookKeeper cluster, as BookKeeper and Pulsar write it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.bookkeeper.errors import MetadataRequestError

__all__ = ["ServiceUri", "parse_service_uri"]

_SCHEMES = ("zk", "zk+hierarchical", "zk+longhierarchical", "zk+flat", "zk+null", "metadata-store:zk")
DEFAULT_ROOT = "/ledgers"


class ServiceUri(NamedTuple):
    servers: str
    """``host:port,host:port`` for ZooKeeper."""
    root: str
    """The root of the ledgers' metadata, without a slash at its end."""


def parse_service_uri(uri: str) -> ServiceUri:
    """Parse ``zk+hierarchical://h1:2181;h2:2181/ledgers``, ``zk:h1:2181,h2:2181/ledgers`` or just ``h1:2181/ledgers``.

    The client reads the layout from the cluster itself, so the scheme only selects ZooKeeper.
    Raises MetadataRequestError.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        scheme, rest = ("zk", uri.removeprefix("metadata-store:").removeprefix("zk:"))
    if scheme not in _SCHEMES:
        raise MetadataRequestError(uri, f"scheme {scheme!r} is not supported, ZooKeeper (zk+hierarchical://) is")
    hosts, _, path = rest.partition("/")
    servers = ",".join(host.strip() for host in hosts.replace(";", ",").split(",") if host.strip())
    if not servers:
        raise MetadataRequestError(uri, "it names no server")
    return ServiceUri(servers, "/" + path.strip("/") if path.strip("/") else DEFAULT_ROOT)
