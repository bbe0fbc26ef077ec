"""The stores of a broker, and the settings, policies, topics and schemas that they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.broker.dynamic_settings import DynamicSettings
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.topics.catalog import TopicCatalog
from magnetar.storage.managed.factory import ManagedLedgerFactory

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from magnetar.broker.policies.topic_records import TopicRecords
    from magnetar.broker.schemas.schema_store import SchemaStore
    from magnetar.broker.settings import Settings
    from magnetar.broker.stores import Stores
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import Clock, Scheduler
    from magnetar.storage.managed.stored_layout import StoredLayout

__all__ = ["ClusterState", "StoredState", "open_stored_state"]

_BROKER_IDS: Final = "/magnetar/broker-starts"
_HEALTH: Final = "/magnetar/health"


class ClusterState(Protocol):
    """The parts that a cluster stores in its own way."""

    @property
    def layout(self) -> StoredLayout: ...
    @property
    def schemas(self) -> SchemaStore: ...
    @property
    def topic_policies(self) -> TopicRecords | None: ...
    def may_roll(self) -> bool: ...
    def give_up_creation(self, managed_ledger: str) -> None:
        """Have the creation of the managed ledger's next ledger fail now if the creation waits for bookies."""
        ...

    def log_taken_over(self, managed_ledger: str) -> None:
        """A request of this broker failed because another broker has the managed ledger."""
        ...

    def log_closed(self, managed_ledger: str) -> None:
        """The managed ledger is closed at this broker."""
        ...

    async def created_ms(self, path: str) -> int:
        """The time when a node of the shared metadata was created."""
        ...

    async def start_number(self) -> int:
        """Return a number that differs for each start of any broker of the cluster."""
        ...


@dataclass(frozen=True, slots=True)
class StoredState:
    """See the module; usable until the stores close."""

    settings: Settings
    stores: Stores
    clock: Clock
    dynamic_settings: DynamicSettings
    namespaces: NamespaceStore
    ledgers: ManagedLedgerFactory
    catalog: TopicCatalog
    schemas: SchemaRegistry
    start_number: int
    """A number that differs for each start; part of the names that the broker makes for producers."""

    def shared_properties(self, name: TopicName) -> tuple[dict[str, str], ...]:
        """Properties of a topic's namespace and of the partitioned topic that the topic is a part of."""
        policies, partitioned = self.namespaces.policies(name.namespace), self.catalog.partitioned(name.base)
        return (
            {} if policies is None else policies.properties,
            {} if partitioned is None else partitioned.properties or {},
        )

    def policies_ready(self, name: TopicName) -> Awaitable[None] | None:
        """The end of the read of the topic's policies; None when the policies are known already."""
        if name.is_of_policies or not self.settings.topic_level_policies_enabled:
            return None
        return self.namespaces.topics.ready(name.namespace)

    async def check_health(self) -> None:
        """Write a value; raises when the stores cannot keep the value."""
        if self.stores.health.problem is not None:
            raise self.stores.health.problem
        await self.stores.metadata.put(_HEALTH, str(self.clock.now_ms()).encode())


async def open_stored_state(
    settings: Settings, stores: Stores, clock: Clock, scheduler: Scheduler, cluster: ClusterState | None
) -> StoredState:
    """Read the settings, policies and topics of open stores. cluster: None for a broker alone. Raises StorageError."""
    metadata = stores.metadata
    dynamic_settings = DynamicSettings(metadata, settings)
    await dynamic_settings.load()
    namespaces = await NamespaceStore.open(metadata, settings, cluster.topic_policies if cluster else None)
    start_number = await (cluster.start_number() if cluster else metadata.next_sequence(_BROKER_IDS))
    shared = (cluster.layout, cluster.may_roll, cluster.created_ms, cluster.give_up_creation) if cluster else ()
    ledgers = ManagedLedgerFactory(stores.ledgers, metadata, clock, scheduler, *shared)
    if cluster:
        ledgers.on_taken_over, ledgers.on_log_closed = cluster.log_taken_over, cluster.log_closed
    catalog = TopicCatalog(metadata, ledgers)
    await catalog.load(namespaces.namespaces.names())
    schemas = SchemaRegistry(metadata, clock.now_ms, cluster.schemas if cluster else None)
    return StoredState(settings, stores, clock, dynamic_settings, namespaces, ledgers, catalog, schemas, start_number)
