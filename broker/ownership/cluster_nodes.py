"""The nodes through which brokers find each other, as Apache Pulsar 4.2 writes and reads them. Pure.

    /loadbalance/brokers/<host:web port>        LocalBrokerData: addresses, usage and rates of a broker
    /loadbalance/leader                         which broker decides where topics go
    /namespace/<tenant>/<ns>/0x..._0x...        which broker serves a bundle

A node with a null where Pulsar expects an object stops the lookups of the whole cluster: members without a value are
left out, and the broker reads a value back before it writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from magnetar.broker.errors import UNREADABLE
from magnetar.broker.ownership.ownership import BrokerAddresses

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BROKERS",
    "LEADER",
    "NAMESPACES",
    "NO_LIMIT",
    "BundleOwner",
    "BundleUsage",
    "Leader",
    "LoadReport",
    "Usage",
    "decode_leader",
    "decode_owner",
    "decode_report",
    "encode_node",
    "encode_report",
]

BROKERS: Final = "/loadbalance/brokers"
LEADER: Final = "/loadbalance/leader"
NAMESPACES: Final = "/namespace"


class Usage(msgspec.Struct, frozen=True):
    """The use of one resource; CPU in percent of one core, memory in MiB, bandwidth in kbit/s."""

    usage: float = 0.0
    limit: float = 0.0

    @property
    def share(self) -> float:
        """0.0 to 1.0; 0.0 where there is no limit."""
        return self.usage / self.limit if self.limit > 0 else 0.0


class BundleUsage(msgspec.Struct, rename="camel", frozen=True):
    """The traffic of one bundle, per second."""

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    consumer_count: int = 0
    producer_count: int = 0
    topics: int = 0
    cache_size: int = 0

    def __add__(self, other: BundleUsage) -> BundleUsage:
        names = self.__struct_fields__
        return BundleUsage(**{name: getattr(self, name) + getattr(other, name) for name in names})


NO_LIMIT: Final = Usage(0.0, -1000.0)
"""The limit of a network that does not state its speed."""


class ListenerNode(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """AdvertisedListener: the addresses for clients that name it."""

    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    broker_http_url: str | None = None
    broker_https_url: str | None = None


LOAD_MANAGERS: Final = ("ModularLoadManagerImpl", "SimpleLoadManagerImpl")
"""The load managers of Apache Pulsar that keep the owners of bundles in nodes, the default first."""


class LoadReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """LocalBrokerData. Members that only Pulsar's own tools read have Pulsar's constants."""

    web_service_url: str | msgspec.UnsetType = msgspec.UNSET
    web_service_url_tls: str | msgspec.UnsetType | None = msgspec.UNSET
    pulsar_service_url: str | msgspec.UnsetType = msgspec.UNSET
    pulsar_service_url_tls: str | msgspec.UnsetType | None = msgspec.UNSET
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    cpu: Usage = Usage()
    memory: Usage = Usage()
    direct_memory: Usage = Usage()
    bandwidth_in: Usage = NO_LIMIT
    bandwidth_out: Usage = NO_LIMIT
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    last_update: int = 0
    last_stats: dict[str, BundleUsage] = {}
    num_topics: int = 0
    num_bundles: int = 0
    num_consumers: int = 0
    num_producers: int = 0
    bundles: list[str] = []
    last_bundle_gains: list[str] = []
    last_bundle_losses: list[str] = []
    broker_version_string: str | None = ""
    protocols: dict[str, str] = {}
    advertised_listeners: dict[str, object] | None = {}
    load_manager_class_name: str | None = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
    start_timestamp: int = 0
    max_resource_usage: float = 0.0
    load_report_type: str | None = "LocalBrokerData"

    @classmethod
    def of(cls, own: BrokerAddresses, **figures: Any) -> LoadReport:
        """The report of the broker at these addresses: absent addresses are left out, because no member may be null."""
        return cls(
            web_service_url=own.web_url or msgspec.UNSET,
            web_service_url_tls=own.web_url_tls or msgspec.UNSET,
            pulsar_service_url=own.service_url or msgspec.UNSET,
            pulsar_service_url_tls=own.service_url_tls or msgspec.UNSET,
            advertised_listeners=_nodes_of(own.listeners),
            **figures,
        )

    @property
    def addresses(self) -> BrokerAddresses:
        return BrokerAddresses(
            _given(self.pulsar_service_url),
            _given(self.pulsar_service_url_tls),
            _given(self.web_service_url),
            _given(self.web_service_url_tls),
            _listeners(self.advertised_listeners),
        )

    @property
    def has_owners_in_nodes(self) -> bool:
        """Whether the broker's load manager keeps the owners of bundles in nodes; the extensible load manager keeps
        them in a topic.
        """
        return (self.load_manager_class_name or LOAD_MANAGERS[0]).rpartition(".")[2] in LOAD_MANAGERS

    def with_highest(self) -> LoadReport:
        """Return the report with the share of the resource that is used most, for Apache Pulsar's tools."""
        return msgspec.structs.replace(self, max_resource_usage=self.highest_share)

    @property
    def highest_share(self) -> float:
        """The use of the resource that is nearest to its limit. Memory does not count, as in Apache Pulsar: a full heap
        of one of its brokers says nothing about its load.
        """
        resources = (self.cpu, self.direct_memory, self.bandwidth_in, self.bandwidth_out)
        return max(each.share for each in resources)


class Leader(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The broker that decides where unowned bundles go."""

    broker_id: str = ""
    service_url: str = ""


class BundleOwner(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """NamespaceEphemeralData. ``disabled`` is always false: if it were true, other brokers would answer lookups with an
    error.
    """

    native_url: str | msgspec.UnsetType | None = msgspec.UNSET
    native_url_tls: str | msgspec.UnsetType | None = msgspec.UNSET
    http_url: str | msgspec.UnsetType | None = msgspec.UNSET
    http_url_tls: str | msgspec.UnsetType | None = msgspec.UNSET
    disabled: bool = False
    advertised_listeners: dict[str, object] | None = {}

    @classmethod
    def of(cls, own: BrokerAddresses) -> BundleOwner:
        return cls(
            native_url=own.service_url or msgspec.UNSET,
            native_url_tls=own.service_url_tls or msgspec.UNSET,
            http_url=own.web_url or msgspec.UNSET,
            http_url_tls=own.web_url_tls or msgspec.UNSET,
            advertised_listeners=_nodes_of(own.listeners),
        )

    @property
    def addresses(self) -> BrokerAddresses:
        return BrokerAddresses(
            _given(self.native_url),
            _given(self.native_url_tls),
            _given(self.http_url),
            _given(self.http_url_tls),
            _listeners(self.advertised_listeners),
        )


def encode_node(value: Leader | BundleOwner) -> bytes:
    return msgspec.json.encode(value)


def encode_report(report: LoadReport) -> bytes:
    """Encode the report. Raises ValueError for a report that another broker could not use."""
    if not report.addresses.service_url and not report.addresses.service_url_tls:
        raise ValueError("a broker of a cluster needs an address of the binary protocol")
    if not report.addresses.web_url and not report.addresses.web_url_tls:
        raise ValueError("a broker of a cluster needs a web port: other brokers know it by that")
    value = msgspec.json.encode(report)
    if b":null" in value or decode_report(value) != report:
        raise ValueError("a load report with a member that other brokers cannot read")
    return value


def decode_report(value: bytes) -> LoadReport | None:
    """Decode a report; None for other bytes, whose broker the caller leaves alone."""
    try:
        return msgspec.json.decode(value, type=LoadReport)
    except UNREADABLE:
        return None


def decode_leader(value: bytes) -> Leader | None:
    try:
        return msgspec.json.decode(value, type=Leader)
    except UNREADABLE:
        return None


def decode_owner(value: bytes) -> BundleOwner | None:
    try:
        return msgspec.json.decode(value, type=BundleOwner)
    except UNREADABLE:
        return None


def _given(text: str | msgspec.UnsetType | None) -> str | None:
    return text if isinstance(text, str) and text else None


def _nodes_of(listeners: tuple[tuple[str, BrokerAddresses], ...]) -> dict[str, object]:
    """Members of ``advertisedListeners``; an absent address is left out."""
    return {
        name: msgspec.to_builtins(ListenerNode(each.service_url, each.service_url_tls, each.web_url, each.web_url_tls))
        for name, each in listeners
    }


def _listeners(nodes: Mapping[str, object] | None) -> tuple[tuple[str, BrokerAddresses], ...]:
    """Return the listeners in the order of names, without unreadable members: the broker is used without such a
    listener.
    """
    found = []
    for name, node in sorted((nodes or {}).items()):
        try:
            each = msgspec.convert(node, ListenerNode)
        except msgspec.ValidationError:
            continue
        own, web = (each.broker_service_url, each.broker_service_url_tls), (each.broker_http_url, each.broker_https_url)
        found.append((name, BrokerAddresses(*own, *web)))
    return tuple(found)
