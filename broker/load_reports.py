"""The load report of this broker: its use of the machine, and the traffic of its topics, bundle by bundle.

A member of a cluster writes it for the others (``ownership/register``); /admin/v2/broker-stats/load-report shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from magnetar import __version__
from magnetar.broker.memory_limit import usable_bytes
from magnetar.broker.network_load import NetworkLoad
from magnetar.broker.ownership.cluster_nodes import NO_LIMIT, BundleUsage, LoadReport, Usage
from magnetar.broker.ownership.ownership import BrokerAddresses
from magnetar.broker.policies.records import bundle_of
from magnetar.broker.process_load import resident_bytes
from magnetar.broker.slices import sliced

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.advertised import AdvertisedAddresses, AdvertisedUrls
    from magnetar.broker.memory_account import MemoryAccount
    from magnetar.broker.ownership.ownership import OwnershipDoor
    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.process_load import ProcessLoad
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName

__all__ = ["LoadReports", "addresses_of"]

_MIB: Final = float(2**20)
_TOPICS_IN_ONE_TURN: Final = 64


@dataclass(frozen=True, slots=True)
class ReportedBroker:
    """The part of the broker that a report needs."""

    settings: Settings
    addresses: AdvertisedAddresses
    process_load: ProcessLoad
    memory: MemoryAccount
    ownership: OwnershipDoor
    namespaces: NamespaceStore
    topics: Topics
    now_ms: Callable[[], int]


class LoadReports:
    """``current`` makes a report; the figures of CPU and network cover the time since the previous report."""

    def __init__(self, broker: ReportedBroker) -> None:
        self._broker = broker
        settings = broker.settings
        names, speed = (
            settings.load_balancer_override_broker_nics,
            settings.load_balancer_override_broker_nic_speed_gbps,
        )
        self._network = NetworkLoad(names, speed)
        self._started_ms = broker.now_ms()

    async def current(self) -> LoadReport:
        """Return a report with true figures, because the leader would assign every bundle to a broker that reports no
        load. Topics are summed in slices.
        """
        broker = self._broker
        topics = list(broker.topics.loaded.values())
        bundles: dict[str, BundleUsage] = {}
        async for part in sliced(topics, _TOPICS_IN_ONE_TURN):
            for topic in part:
                bundle = self._bundle(topic.name)
                bundles[bundle] = bundles.get(bundle, BundleUsage()) + _usage_of(topic)
        whole = sum(bundles.values(), BundleUsage())
        report = LoadReport.of(
            addresses_of(broker.addresses),
            persistent_topics_enabled=broker.settings.enable_persistent_topics,
            non_persistent_topics_enabled=broker.settings.enable_non_persistent_topics,
            **self._resources(),
            msg_rate_in=whole.msg_rate_in,
            msg_throughput_in=whole.msg_throughput_in,
            msg_rate_out=whole.msg_rate_out,
            msg_throughput_out=whole.msg_throughput_out,
            num_consumers=whole.consumer_count,
            num_producers=whole.producer_count,
            last_update=broker.now_ms(),
            last_stats=bundles,
            num_topics=len(topics),
            num_bundles=len(bundles),
            bundles=sorted(bundles),
            broker_version_string=f"Magnetar {__version__}",
            start_timestamp=self._started_ms,
        )
        return report.with_highest()

    def bandwidth_percent(self) -> tuple[float, float]:
        """Return the used share of the interfaces' capacity, in and out; 0.0 for an unknown capacity."""
        limit = self._network.limit_kbits()
        received, sent = self._network.kbits()
        return (100 * received / limit, 100 * sent / limit) if limit else (0.0, 0.0)

    def _resources(self) -> dict[str, Usage]:
        broker = self._broker
        cores = broker.process_load.cores()
        limit = self._network.limit_kbits() or NO_LIMIT.limit
        received, sent = self._network.kbits()
        return {
            "cpu": Usage(broker.process_load.cpu_percent() * cores, 100.0 * cores),
            "memory": Usage(resident_bytes() / _MIB, usable_bytes() / _MIB),
            "direct_memory": Usage(broker.memory.used_bytes / _MIB, broker.memory.limits.total / _MIB),
            "bandwidth_in": Usage(received, limit),
            "bandwidth_out": Usage(sent, limit),
        }

    def _bundle(self, name: TopicName) -> str:
        bundles = self._broker.ownership.bundles(name.namespace)
        if bundles is None:
            policies = self._broker.namespaces.policies(name.namespace)
            bundles = None if policies is None else policies.bundles
        return f"{name.namespace}/{bundle_of(str(name), bundles)}" if bundles else name.namespace


def addresses_of(addresses: AdvertisedAddresses) -> BrokerAddresses:
    """Return the broker's addresses and those of its advertised listeners, with which other brokers answer lookups."""
    listeners = [(name, _addresses(urls)) for name, urls in sorted(addresses.listeners.items())]
    return replace(_addresses(addresses.own), listeners=tuple(listeners))


def _addresses(urls: AdvertisedUrls) -> BrokerAddresses:
    return BrokerAddresses(urls.service_url, urls.service_url_tls, urls.http_url, urls.http_url_tls)


def _usage_of(topic: ServedTopic) -> BundleUsage:
    rate = topic.publishing.rate_in.rates()
    consumers = [each for subscription in topic.subscriptions.by_name.values() for each in subscription.consumers]
    rates = [each.out.rates() for each in consumers]
    return BundleUsage(
        rate.messages_per_second,
        rate.bytes_per_second,
        sum((each.messages_per_second for each in rates), 0.0),
        sum((each.bytes_per_second for each in rates), 0.0),
        consumer_count=len(consumers),
        producer_count=len(topic.producers),
        topics=1,
    )
