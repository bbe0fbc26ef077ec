"""A broker as a member of a cluster: opens the stores, follows changes, joins last at the start, leaves first at the
end.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

import structlog

from magnetar.broker.admin.peer_calls import PeerCalls
from magnetar.broker.clustering.averaging import Averaging
from magnetar.broker.clustering.balancing import Balancing, placement_rules, resource_weights
from magnetar.broker.clustering.catching_up import CatchingUp
from magnetar.broker.clustering.cluster_bookies import MANAGED_LEDGER, ClusterBookies
from magnetar.broker.clustering.cluster_settings import cluster_services
from magnetar.broker.clustering.cluster_stores import ClusterStores, open_cluster_stores
from magnetar.broker.clustering.cluster_topic_policies import ClusterTopicPolicies
from magnetar.broker.clustering.eligible_brokers import eligible_brokers
from magnetar.broker.clustering.following import Following
from magnetar.broker.clustering.guard import Guard
from magnetar.broker.clustering.peer_client import PeerClient, peer_credentials
from magnetar.broker.clustering.policy_log import events_topic
from magnetar.broker.clustering.pulsar_schemas import PulsarSchemas
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.load_reports import addresses_of
from magnetar.broker.ownership.bundle_ownership import BundleOwnership
from magnetar.broker.ownership.peers import Peers
from magnetar.broker.ownership.register import BrokerRegister
from magnetar.broker.ownership.report_changes import ReportRules
from magnetar.broker.policies.records import hash_of
from magnetar.broker.topics.topic import Topic
from magnetar.storage.errors import StorageError
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from magnetar.broker.clustering.balancing import BalancingFigures
    from magnetar.broker.listeners import Listeners
    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.ownership import LookupAnswer, Ownership
    from magnetar.broker.ownership.placement_strategies import PlacementRules
    from magnetar.broker.policies.values import BundlesData, LocalPolicies
    from magnetar.broker.schemas.schema_store import StoredSchema
    from magnetar.broker.settings import Settings
    from magnetar.broker.stored_state import StoredState
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName

__all__ = ["ClusterMember", "MemberBroker", "StartingUp"]


class MemberBroker(Protocol):
    """The part of the broker that a member needs. ``stored`` is usable from ``follow`` on, topics and listeners from
    ``join`` on.
    """

    settings: Settings
    tasks: TaskSet
    stored: StoredState
    topics: Topics
    listeners: Listeners


log = structlog.get_logger(__name__)

_LOOKS_AFTER_FENCE_S: Final = (0.0, 0.1, 0.4, 1.0, 3.0, 10.0)
_CLOSE_TOGETHER: Final = 64
"""The number of topics of a bundle that are closed at the same time."""
_STANDSTILL: Final = 2 / 3
"""The part of the session timeout that the client of ZooKeeper waits for an answer, and after which the guard ends the
broker: so its clients have turned to other brokers when the session ends.
"""
PRODUCER_NUMBERS: Final = "/counters/producer-name/-"
"""Apache Pulsar's path: an ephemeral node per broker, whose number is in the names it makes for producers."""


class StartingUp:
    """The ownership of a broker that has not joined the cluster yet."""

    def serves(self, name: TopicName) -> bool:  # noqa: ARG002 - none of them
        return False

    async def lookup(self, name: TopicName, *, authoritative: bool) -> LookupAnswer:  # noqa: ARG002
        raise ServiceNotReadyError("This broker is starting. Please redo the lookup")

    async def bundle_owner(self, bundle: str) -> LookupAnswer | None:  # noqa: ARG002
        return None

    async def release(self, bundle: str) -> bool:  # noqa: ARG002
        return False

    def owned(self) -> list[str] | None:
        return []

    def bundles(self, namespace: str) -> BundlesData | None:  # noqa: ARG002
        return None

    async def lookup_bundle(self, bundle: str, *, authoritative: bool) -> LookupAnswer:  # noqa: ARG002
        raise ServiceNotReadyError("This broker is starting. Please redo the lookup")

    async def assign(self, bundle: str, broker: str) -> bool:  # noqa: ARG002
        return False

    async def split(self, bundle: str, hashes: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    async def local_policies(self, namespace: str) -> LocalPolicies | None:  # noqa: ARG002
        raise ServiceNotReadyError("This broker is starting")

    async def change_local_policies(self, namespace: str, members: Mapping[str, object]) -> bool:  # noqa: ARG002
        raise ServiceNotReadyError("This broker is starting")

    async def forget(self, namespace: str) -> None:  # noqa: ARG002
        return

    async def brokers(self) -> list[str] | None:
        return []

    async def leader(self) -> tuple[str, str] | None:
        return None

    async def close(self) -> None:
        return


class ClusterMember:
    """Call ``open`` before the broker reads its state, ``follow`` after that, ``join`` when it can serve clients."""

    def __init__(self, broker: MemberBroker) -> None:
        self.layout = PulsarLayout()
        self.stores: ClusterStores
        self.schemas: PulsarSchemas
        self.topic_policies: ClusterTopicPolicies | None = None
        """None: topicLevelPoliciesEnabled switches policies of topics off."""
        self.balancing: BalancingFigures | None = None
        self.peers = PeerCalls(self._web_url, peer_credentials(broker.settings))
        """Calls to the other brokers."""
        self.bookies: ClusterBookies
        self._broker = broker
        self._following: Following
        self._catching_up: CatchingUp
        self._ownership: BundleOwnership | None = None
        self._balancing: Balancing | None = None
        self._giving_up: set[str] = set()
        """Managed ledgers whose topics may have another owner."""
        self._guard = Guard(broker.settings.metadata_store_session_timeout_millis / 1000 * _STANDSTILL)

    async def open(self, cache_bytes: int, max_record_bytes: int) -> ClusterStores:
        """Raises ValueError, StorageError."""
        settings = self._broker.settings
        services = cluster_services(settings)
        self.stores = await open_cluster_stores(settings, services, cache_bytes, max_record_bytes)
        self.schemas = PulsarSchemas(self.stores.metadata, self.stores.ledgers)
        strict = settings.strict_bookie_affinity_enabled
        bookies = ClusterBookies(self.stores.metadata, services.ledgers_root, self.default_bundles, strict=strict)
        self.bookies, self.stores.ledgers.isolation_of = bookies, bookies.isolation_of
        self.stores.ledgers.on_fenced = self._ledger_fenced
        if settings.topic_level_policies_enabled:
            peers = PeerClient(settings, lambda: self._broker.listeners.addresses.own)
            self.topic_policies = ClusterTopicPolicies(
                settings.cluster_name, peers, self, self._topic_changed, self._broker.tasks
            )
        self._following = Following(self.stores.metadata, self._broker.tasks, self._events_appeared)
        self._catching_up = CatchingUp(self._following.caught_up, self._broker.tasks)
        await self._following.start()
        return self.stores

    def may_roll(self) -> bool:
        """See ``ClusterStores``."""
        return self.stores.may_roll()

    def give_up_creation(self, managed_ledger: str) -> None:
        """See ``BookKeeperLedgerStore``."""
        self.stores.ledgers.give_up_creation(managed_ledger)

    def log_closed(self, managed_ledger: str) -> None:
        """See ``PulsarPaths``."""
        self.stores.metadata.log_closed(managed_ledger)

    async def created_ms(self, path: str) -> int:
        """See ``Coordination``."""
        return await self.stores.metadata.created_ms(path)

    def _web_url(self) -> str:
        own = self._broker.listeners.addresses.own
        return own.http_url or own.http_url_tls or ""

    async def start_number(self) -> int:
        return await self.stores.metadata.create_numbered(PRODUCER_NUMBERS)

    async def follow(self) -> None:
        stored = self._broker.stored
        await self._following.follow(stored.namespaces, stored.catalog, stored.dynamic_settings)

    async def catch_up(self) -> None:
        """See ``CatchingUp.wait``."""
        await self._catching_up.wait()

    def change_of(self, paths: Sequence[str]) -> Awaitable[None] | None:
        """See ``Following``."""
        return self._following.change_of(paths)

    async def join(self, report: Callable[[], Awaitable[LoadReport]]) -> Ownership:
        """Register the broker, so that other brokers and clients use it. report: makes the load report. Raises
        ValueError, StorageError.
        """
        broker, addresses = self._broker, self._broker.listeners.addresses
        own, broker_id = addresses_of(addresses), addresses.broker_id
        register = BrokerRegister(
            self.stores.metadata, broker_id, report, broker.tasks, report_rules=self._report_rules
        )
        ownership = self._ownership = BundleOwnership(
            self.stores.metadata,
            own,
            register,
            self,
            broker.tasks,
            Random(),  # noqa: S311 - spreads load, keeps no secret
            Peers(self.stores.metadata, broker.tasks),
        )
        await ownership.start()
        if broker.settings.standstill_guard_enabled:
            self._guard.start()
        self._balance(ownership)
        log.info("cluster.joined", broker=broker_id, leader=register.is_leader)
        return ownership

    def _balance(self, ownership: BundleOwnership) -> None:
        broker = self._broker
        balancing = Balancing(broker.settings, ownership, self.peers, self.default_bundles, time.monotonic)
        self.balancing = balancing.figures
        self._balancing = balancing
        averaging = Averaging(
            broker.settings, self.stores.metadata, ownership.register, ownership.averages, time.monotonic
        )
        broker.tasks.spawn(averaging.run(), "cluster.averages")
        broker.tasks.spawn(balancing.run_shedding(), "cluster.shedding")
        broker.tasks.spawn(balancing.run_splitting(), "cluster.splitting")

    async def leave(self) -> None:
        """Leave the register and hand every topic over to other brokers. Never raises."""
        self._following.close()
        if self.topic_policies is not None:
            await self.topic_policies.close()
        if self._ownership is not None:
            try:
                await self._ownership.close()
            except StorageError as error:
                log.warning("cluster.not_left", reason=str(error))
        # The broker answers lookups until here, because clients double their pauses at a closed port.
        self._broker.listeners.stop_accepting()
        self._guard.stop()

    def _ledger_fenced(self, properties: Mapping[str, str]) -> None:
        managed_ledger = properties.get(MANAGED_LEDGER)
        if managed_ledger is not None:
            self.log_taken_over(managed_ledger)

    def log_taken_over(self, managed_ledger: str) -> None:
        """See ``ClusterState``. A topic without producers notices its next owner by a refused acknowledgement."""
        if managed_ledger not in self._giving_up:
            self._giving_up.add(managed_ledger)
            self._broker.tasks.spawn(self._give_up(managed_ledger), "cluster.fenced")

    async def _give_up(self, managed_ledger: str) -> None:
        try:
            await self._give_up_if_taken_over(managed_ledger)
        finally:
            self._giving_up.discard(managed_ledger)

    async def _give_up_if_taken_over(self, managed_ledger: str) -> None:
        """Stop serving the topic if another broker has taken it. Another client has recovered a ledger of the topic:
        either a new owner, which changes the list of ledgers next, or a tool, which does not.
        """
        tenant, namespace, domain, local = managed_ledger.split("/", 3)
        name = f"{domain}://{tenant}/{namespace}/{unquote(local)}"
        for pause_s in _LOOKS_AFTER_FENCE_S:
            await asyncio.sleep(pause_s)
            topic = self._broker.topics.loaded.get(name)
            if not isinstance(topic, Topic) or topic.ledger.name != managed_ledger:
                return
            try:
                taken_over = await topic.ledger.is_taken_over()
            except StorageError as error:
                log.warning("cluster.owner_not_known", topic=name, reason=str(error))
                continue
            if taken_over:
                if self._broker.topics.loaded.get(name) is topic:
                    self._broker.topics.context.taken_over(topic.name)
                return

    # --- for policies of topics ------------------------------------------------------------------------------------

    def events_exist(self, namespace: str) -> bool:
        """See ``EventTopics``."""
        catalog, name = self._broker.stored.catalog, events_topic(namespace)
        return catalog.exists(name) or catalog.partitioned(name) is not None

    def events_created(self, topic: TopicName) -> None:
        if self._broker.stored.catalog.partitioned(topic) is None:
            self._broker.stored.catalog.created(topic)

    async def events_created_ms(self, topic: TopicName) -> int:
        """See ``EventTopics``."""
        return await self.created_ms(ledger_list_path(topic.persistence_name))

    async def events_schemas(self, topic: TopicName) -> list[StoredSchema]:
        return await self._broker.stored.schemas.history(topic)

    def _events_appeared(self, namespace: str) -> None:
        if self.topic_policies is not None:
            self.topic_policies.appeared(namespace)

    def _topic_changed(self, topic: TopicName) -> None:
        self._broker.stored.namespaces.topic_changed(topic)

    # --- for ownership ---------------------------------------------------------------------------------------------

    def default_bundles(self, namespace: str) -> BundlesData | None:
        policies = self._broker.stored.namespaces.policies(namespace)
        return None if policies is None else policies.bundles

    def eligible(self, namespace: str, reports: Mapping[str, LoadReport]) -> dict[str, LoadReport]:
        """See ``BundleTopics``."""
        policies = self._broker.stored.namespaces.isolation.in_force(self._broker.settings.cluster_name)
        return eligible_brokers(policies, namespace, reports)

    async def unload(self, namespace: str, low: int, high: int) -> None:
        """See ``BundleTopics``."""
        topics = self._broker.topics
        loaded = [topic.name for topic in topics.loaded.of_namespace(namespace)]
        names = [name for name in loaded if low <= hash_of(str(name)) <= high]
        for start in range(0, len(names), _CLOSE_TOGETHER):
            closing = names[start : start + _CLOSE_TOGETHER]
            results = await asyncio.gather(*map(topics.unload, closing), return_exceptions=True)
            for name, result in zip(closing, results, strict=True):
                if isinstance(result, StorageError):
                    log.warning("topic.not_closed", topic=str(name), reason=str(result))
                elif isinstance(result, BaseException):
                    log.error("topic.not_closed", topic=str(name), exc_info=result)

    def placement(self) -> PlacementRules:
        """See ``BundleTopics``."""
        settings = self._broker.settings
        domains = self._broker.stored.namespaces.failure_domains.brokers(settings.cluster_name)
        expected = {} if self._balancing is None else self._balancing.expected
        return placement_rules(settings, domains if settings.failure_domains_enabled else {}, expected)

    def _report_rules(self) -> ReportRules:
        settings = self._broker.settings
        return ReportRules(
            look_s=settings.load_balancer_report_update_min_interval_millis / 1000,
            longest_s=settings.load_balancer_report_update_max_interval_minutes * 60.0,
            threshold_percent=settings.load_balancer_report_update_threshold_percentage,
            weights=resource_weights(settings),
        )
