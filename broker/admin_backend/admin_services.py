"""The services behind the admin API, as a value (`admin.api.BrokerApi`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.broker.admin.api import BrokerUrls
from magnetar.broker.prometheus.broker_metrics import broker_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from magnetar.broker.admin.api import BookiesApi
    from magnetar.broker.admin.peer_calls import PeerCalls
    from magnetar.broker.admin_backend.topic_operations import TopicOperations
    from magnetar.broker.advertised import AdvertisedAddresses
    from magnetar.broker.auth.authenticator import Authenticator
    from magnetar.broker.auth.authorizer import Authorizer
    from magnetar.broker.descriptors import DescriptorShares
    from magnetar.broker.dynamic_settings import DynamicSettings
    from magnetar.broker.handlers.client import LookupCounters
    from magnetar.broker.load_reports import LoadReports
    from magnetar.broker.memory_account import MemoryAccount
    from magnetar.broker.ownership.ownership import Ownership
    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.prometheus.broker_metrics import Measured
    from magnetar.broker.prometheus.exposition import BrokerMetrics
    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.lifecycle import TopicLifecycle
    from magnetar.broker.topics.news import News
    from magnetar.broker.websocket.web_socket_service import WebSocketService

__all__ = ["AdminServices"]


@dataclass(frozen=True, slots=True)
class AdminServices:
    """See ``BrokerApi`` for each field and method."""

    settings: Settings
    namespaces: NamespaceStore
    news: News
    dynamic_settings: DynamicSettings
    schemas: SchemaRegistry
    memory: MemoryAccount
    descriptors: DescriptorShares
    ownership: Ownership
    lookups: LookupCounters
    peers: PeerCalls | None
    bookies: BookiesApi | None
    authenticator: Authenticator
    authorizer: Authorizer
    operations: TopicOperations
    lifecycle: TopicLifecycle
    web_sockets: WebSocketService | None
    load_reports: LoadReports
    addresses: AdvertisedAddresses
    measured: Callable[[], Measured]
    is_ready: Callable[[], bool]
    check_health: Callable[[], Coroutine[Any, Any, None]]

    @property
    def urls(self) -> BrokerUrls:
        return BrokerUrls.of(self.addresses.broker_id, self.addresses.own)

    def listener_urls(self, listener: str) -> BrokerUrls | None:
        found = self.addresses.of(listener)
        return None if found is None else BrokerUrls.of(self.addresses.broker_id, found)

    def metrics(self) -> BrokerMetrics:
        return broker_metrics(self.measured())
