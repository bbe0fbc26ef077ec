"""The part of its broker that a cluster member needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.admin.api import BookiesApi, BrokerUrls
    from magnetar.broker.admin.peer_calls import PeerCalls
    from magnetar.broker.advertised import AdvertisedAddresses
    from magnetar.broker.load_reports import LoadReports
    from magnetar.broker.policies.namespaces import NamespaceStore
    from magnetar.broker.process_load import ProcessLoad
    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.settings import Settings
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.catalog import TopicCatalog
    from magnetar.broker.topics.topic_registry import Topics

__all__ = ["MemberBroker"]


class MemberBroker(Protocol):
    """Namespaces, catalog and topics are there from ``follow`` on, addresses from ``join`` on."""

    settings: Settings
    tasks: TaskSet
    addresses: AdvertisedAddresses
    process_load: ProcessLoad
    load_reports: LoadReports | None
    namespaces: NamespaceStore
    catalog: TopicCatalog
    schemas: SchemaRegistry
    topics: Topics
    peers: PeerCalls | None
    bookies: BookiesApi | None
    now_ms: Callable[[], int]

    def stop_listening(self) -> None: ...

    @property
    def urls(self) -> BrokerUrls: ...
