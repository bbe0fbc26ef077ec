"""The broker: everything built and wired in one place, started and stopped in order.

Start: data directory (locked), storage recovery, metadata, the ports, and at last the libraries of the web port: the
time from process start to the first durable receipt is a promise. Stop: no new connections, CLOSE_* to every producer
and consumer, all entries on the disk, then the storage closes.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import structlog

from magnetar import __version__
from magnetar.broker import entry_interceptors
from magnetar.broker.advertised import AdvertisedAddresses, AdvertisedUrls
from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.auth.authorizer import Authorizer
from magnetar.broker.auth.sessions import AuthServices
from magnetar.broker.auth.table import check_complete
from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.consumers.unacked_total import UnackedTotal
from magnetar.broker.descriptors import DescriptorShares, process_limit
from magnetar.broker.dynamic_settings import DynamicSettings
from magnetar.broker.handlers.client import ClientServices, LookupCounters
from magnetar.broker.handlers.table import HANDLERS
from magnetar.broker.loop_watch import LoopWatch
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.meters.distributions import CacheMeter
from magnetar.broker.network.binary_server import BinaryServer
from magnetar.broker.network.connection_resources import ConnectionResources
from magnetar.broker.network.connections import Connections
from magnetar.broker.network.publish_gate import PublishBudget
from magnetar.broker.network.read_buffer import SharedReadBuffer
from magnetar.broker.network.seats import Seats
from magnetar.broker.network.web_doors import WebDoors, web_doors_or_none
from magnetar.broker.ownership.ownership import OwnershipDoor
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.process_load import ProcessLoad
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.shutdown import EXIT_OK, Step, Stop, run_steps
from magnetar.broker.start_up import import_later
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics.append_door import AppendDoor
from magnetar.broker.topics.catalog import TopicCatalog
from magnetar.broker.topics.context import TopicContext
from magnetar.broker.topics.delay_indexes import bitmap_shelf
from magnetar.broker.topics.followers import TopicFollowers
from magnetar.broker.topics.ledger_config import engine_settings, ledger_config
from magnetar.broker.topics.lifecycle import TopicLifecycle
from magnetar.broker.topics.list_watchers import TopicListWatchers
from magnetar.broker.topics.publish_policy import FRAME_PADDING_BYTES
from magnetar.broker.topics.topic_registry import Topics
from magnetar.storage.embedded.engine import EngineEnvironment, open_embedded
from magnetar.storage.managed.factory import ManagedLedgerFactory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.admin.admin_server import AdminServer
    from magnetar.broker.admin.api import BookiesApi, BrokerUrls
    from magnetar.broker.admin.peer_calls import PeerCalls
    from magnetar.broker.admin_backend.topic_directory import CalledTopics
    from magnetar.broker.admin_backend.topic_operations import TopicOperations
    from magnetar.broker.clustering.member import ClusterMember
    from magnetar.broker.foreign_entries.converting_service import Converting
    from magnetar.broker.load_reports import LoadReports
    from magnetar.broker.maintenance import Maintenance
    from magnetar.broker.prometheus.exposition import BrokerMetrics
    from magnetar.broker.settings import Settings
    from magnetar.broker.stores import Stores
    from magnetar.broker.traces.exporting import Traces
    from magnetar.broker.websocket.web_socket_service import WebSocketService
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.embedded.engine_settings import EngineSettings

log = structlog.get_logger(__name__)
EXIT_STORAGE_FAILED = 74
_BROKER_IDS = "/magnetar/broker-starts"


class Broker:
    """One running broker. `await start()`, then `await wait_stopped()` or `await stop()`.

    environment: the disk, clock and threads it lives on; those of this process unless a test brings its own.
    """

    services: ClientServices
    storage: Stores
    dynamic_settings: DynamicSettings
    namespaces: NamespaceStore
    ledgers: ManagedLedgerFactory
    catalog: TopicCatalog
    topic_watchers: TopicListWatchers
    topics: Topics
    lifecycle: TopicLifecycle
    append_door: AppendDoor
    schemas: SchemaRegistry
    authenticator: Authenticator
    authorizer: Authorizer
    maintenance: Maintenance
    operations: TopicOperations

    def __init__(
        self, settings: Settings, environment: EngineEnvironment | None = None, *, in_cluster: bool = False
    ) -> None:
        self.settings = settings
        self.environment = environment or EngineEnvironment.real()
        self.now_ms = self.environment.clock.now_ms
        max_frame_bytes = settings.max_message_size + FRAME_PADDING_BYTES
        self.tasks = TaskSet()
        self.descriptors = DescriptorShares.of_limit(
            process_limit(), settings.max_http_server_connections, settings.broker_max_connections
        )
        self.connections = Connections(self.descriptors.connections, settings.broker_max_connections_per_ip)
        self.memory = MemoryAccount(MemoryLimits.of_total(settings.max_client_memory_in_mb << 20, max_frame_bytes))
        self.process_load = ProcessLoad()
        self.load_reports: LoadReports | None = None
        self.addresses = AdvertisedAddresses(settings)
        self.resources = ConnectionResources(
            settings,
            max_frame_bytes,
            self.connections,
            self.memory,
            PublishBudget(settings.max_message_publish_buffer_size_in_mb << 20),
            SharedReadBuffer(),
            self.tasks,
        )
        self.server = BinaryServer(self.resources, Seats(self.descriptors.connections))
        self.embedded: EmbeddedStorage | None = None
        """The stores of this machine; None for stores of a cluster."""
        self.in_cluster = in_cluster
        self.member: ClusterMember | None = None
        self.ownership = OwnershipDoor()
        self.web_sockets: WebSocketService | None = None
        self.converting: Converting | None = None
        self.traces: Traces | None = None
        self.loop_watch = LoopWatch()
        self.http_port: int | None = None
        self.cache_meter = CacheMeter()
        self.lookups = LookupCounters()
        self._start_number = 0
        self._producer_numbers = itertools.count()
        self.stopping = Stop()
        self._admin: AdminServer | None = None

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(
        self, before_listening: Callable[[], object] = lambda: None, on_ready: Callable[[], object] = lambda: None
    ) -> None:
        """Return when the broker takes clients, over HTTP too.

        before_listening is called when everything is recovered, on_ready when clients are served; outside a cluster the
        web port listens by then, and answers requests a moment later.

        Raises: StorageError (data directory in use, of a newer version, damaged), OSError (a port or certificate),
        ValueError (a setting names an unusable file, class or value).
        """
        settings = self.settings
        interceptors = entry_interceptors.load(settings.broker_entry_metadata_interceptors)
        if settings.traces_enabled:
            self.traces = (await import_later("magnetar.broker.traces.exporting")).Traces(settings)
        await self._open_metadata()
        await self._make_topics(interceptors)
        check_complete(set(HANDLERS))
        followers = TopicFollowers(self.topics, self.tasks)
        self.namespaces.listen(lambda change: self.topic_watchers.recheck(change.tenant, change.namespace))
        self.namespaces.listen(followers.follow_policies)
        before_listening()
        self.services = self._client_services()
        await self.server.start(self.services)
        doors = await web_doors_or_none(settings)
        self.http_port = doors.ports[0]
        self.addresses.bound(self.server.port, self.server.port_tls, *doors.ports)
        maintenance = (await import_later("magnetar.broker.maintenance")).Maintenance
        self.maintenance = maintenance(settings, self.topics, self.lifecycle, self.embedded, self.roll_rates)
        self.maintenance.start()
        self._apply_settings()
        self.dynamic_settings.listen(lambda: self._on_settings_changed(followers))
        if self.member is None:
            self._log_started()
            on_ready()
        await self._start_admin(doors)
        if self.member is not None:
            self.ownership.current = await self.member.join()
            self._log_started()
            on_ready()
        self.stopping.allow(self.stop)

    def _log_started(self) -> None:
        server, number = self.server, self._start_number
        log.info(
            "broker.started", port=server.port, port_tls=server.port_tls, http_port=self.http_port, start_number=number
        )

    async def _make_topics(self, interceptors: entry_interceptors.LoadedInterceptors) -> None:
        """Topics, and the rights on them."""
        settings = self.settings
        if settings.message_converters:
            service = await import_later("magnetar.broker.foreign_entries.converting_service")
            self.converting = await service.start_converting(settings, self.now_ms, self._shared_properties)
        self.authenticator = Authenticator(settings)
        self.authorizer = Authorizer(settings, self.namespaces)
        context = TopicContext(
            settings=settings,
            now_ms=self.now_ms,
            monotonic=self.environment.clock.now_s,
            call_later=asyncio.get_running_loop().call_later,
            effective=self.namespaces.effective,
            ledger_config=lambda config: ledger_config(settings, config, interceptors),
            delay_shelf=bitmap_shelf(settings),
            unacked_total=UnackedTotal.of(settings),
            converting=self.converting,
            serves=self.ownership.serves,
            taken_over=self._on_taken_over,
            policies_ready=self._policies_ready,
        )
        if self.traces is not None:
            context.make_producer = self.traces.producer
        self.topics = Topics(context, self.catalog, self.ledgers, self.namespaces, self.tasks)
        self.lifecycle = TopicLifecycle(self.topics, self.schemas, self.namespaces, await self._topics_elsewhere())
        self.append_door = AppendDoor(self.topics, self.now_ms)
        if self.converting is not None:
            self.converting.use_topics(self.topics)

    async def _topics_elsewhere(self) -> CalledTopics | None:
        """Calls to other brokers of the cluster; None for a broker alone."""
        if self.member is None:
            return None
        called = (await import_later("magnetar.broker.admin_backend.topic_directory")).CalledTopics
        elsewhere: CalledTopics = called(self.member.peers)
        return elsewhere

    async def _open_metadata(self) -> None:
        """Stores, policies, and which topics there are."""
        settings, loop = self.settings, asyncio.get_running_loop()
        self.storage = await self._open_stores()
        self.storage.health.on_failure(self._on_storage_failure)
        metadata = self.storage.metadata
        self.dynamic_settings = DynamicSettings(metadata, settings)
        await self.dynamic_settings.load()
        member = self.member
        self.namespaces = await NamespaceStore.open(metadata, settings, member.topic_policies if member else None)
        self._start_number = await (member.start_number() if member else metadata.next_sequence(_BROKER_IDS))
        layout = member.layout if member else None
        may_roll = member.stores.may_roll if member else lambda: True
        clock = self.environment.clock
        self.ledgers = ManagedLedgerFactory(self.storage.ledgers, metadata, clock, loop, layout, may_roll)
        self.catalog = TopicCatalog(metadata, self.ledgers)
        await self.catalog.load(n for t in self.namespaces.tenants.names() for n in self.namespaces.namespaces_of(t))
        if member is not None:
            await member.follow()
        self.topic_watchers = TopicListWatchers(self.catalog, self.tasks)
        self.schemas = SchemaRegistry(metadata, self.now_ms, member.schemas if member else None)

    async def _open_stores(self) -> Stores:
        """Open the stores of this machine, or those of the cluster that this broker becomes a member of."""
        engine = self._engine_settings()
        if not self.in_cluster:
            self.embedded = await open_embedded(self.settings.data_dir, engine, self.environment)
            return self.embedded
        clustering = await import_later("magnetar.broker.clustering.member")
        self.ownership.current = clustering.StartingUp()
        self.member = clustering.ClusterMember(self)
        return await self.member.open(engine.cache_bytes, engine.max_record_bytes)

    def _client_services(self) -> ClientServices:
        version = f"Magnetar {__version__}"
        return ClientServices(
            settings=self.settings,
            auth=AuthServices(self.authenticator, self.authorizer, self.settings, version, self.now_ms),
            addresses=self.addresses,
            topics=self.topics,
            namespaces=self.namespaces,
            schemas=self.schemas,
            topic_watchers=self.topic_watchers,
            lookups=self.lookups,
            ownership=self.ownership,
            new_producer_name=self.generate_producer_name,
            make_consumer=Consumer.from_command if self.traces is None else self.traces.consumer,
        )

    async def _start_admin(self, doors: WebDoors) -> None:
        """Serve the web ports, if there are any."""
        if doors.ports == (None, None):
            return
        self.load_reports = (await import_later("magnetar.broker.load_reports")).LoadReports(self)
        operations = (await import_later("magnetar.broker.admin_backend.topic_operations")).TopicOperations
        self.operations = operations(self.topics, self.lifecycle, self.schemas, self.append_door, self.converting)
        if self.settings.web_socket_service_enabled:
            service = (await import_later("magnetar.broker.websocket.web_socket_service")).WebSocketService
            self.web_sockets = service(self.resources, self.services)
        self._admin = await (await import_later("magnetar.broker.admin.admin_server")).start_admin(self, doors)

    def stop_listening(self) -> None:
        """Close the listening sockets, so that another broker may bind their ports; open connections stay."""
        self.server.stop_accepting()
        if self._admin is not None:
            self._admin.stop_accepting()

    async def stop(self) -> None:
        """Stop in order; everything acknowledged is on the disk. Safe to call twice."""
        if not self.stopping.begin():
            await self.stopping.wait()
            return
        log.info("broker.stopping")
        try:
            within_s = self.settings.broker_shutdown_timeout_ms / 1000
            bad = await run_steps(self._stop_steps(), within_s, self.stopping.tasks)
            if self.storage.health.failed is not None or "storage" in bad:
                self.stopping.exit_code = self.stopping.exit_code or EXIT_STORAGE_FAILED
            log.info("broker.stopped", incomplete=",".join(bad))
        finally:
            self.stopping.end()

    def _stop_steps(self) -> list[Step]:
        """Return the steps in order: new work ends, clients get a notice, pending data goes to the disk, the store
        closes.
        """
        steps = [Step("deadline", self._set_deadline)]
        if self.member is None:
            steps.append(Step("listening", self._stop_accepting))
        else:
            steps.append(Step("cluster", self.member.leave))
        steps.append(Step("maintenance", self.maintenance.close))
        if self._admin is not None:
            steps.append(Step("admin", self._admin.close))
        steps += [Step("topics", self.topics.close), Step("connections", self._close_connections)]
        if self.converting is not None:
            steps.append(Step("converting", self.converting.close))
        if self.traces is not None:
            steps.append(Step("traces", self.traces.close))
        return [
            *steps,
            Step("tasks", self.tasks.close),
            Step("ledgers", self._close_ledgers),
            Step("storage", self.storage.close),
        ]

    async def _set_deadline(self) -> None:
        self.stopping.on_begin()

    async def _stop_accepting(self) -> None:
        self.server.stop_accepting()

    async def _close_connections(self) -> None:
        if self.web_sockets is not None:
            self.web_sockets.close()
        for connection in self.connections:
            connection.close()

    async def _close_ledgers(self) -> None:
        self.topics.context.close()
        await self.ledgers.close()

    def request_stop(self, exit_code: int = EXIT_OK) -> None:
        """Stop soon, from a signal or a failure; while it starts, as soon as it has started."""
        self.stopping.request(exit_code)

    async def wait_stopped(self) -> int:
        """Return the exit code once the broker has stopped."""
        return await self.stopping.wait()

    def _on_storage_failure(self, error: BaseException) -> None:
        log.error("broker.storage_failed", reason=str(error))
        self.request_stop(EXIT_STORAGE_FAILED)

    def _on_taken_over(self, name: TopicName) -> None:
        """Another broker writes to the topic: disconnect its clients, whose next lookup finds that broker."""
        log.warning("topic.taken_over", topic=str(name))
        self.tasks.spawn(self.topics.unload(name), "topic.unload")

    def _on_settings_changed(self, followers: TopicFollowers) -> None:
        """A setting changed while the broker runs: every part that keeps a copy takes the new value."""
        self._apply_settings()
        self.namespaces.settings_changed()
        self.topics.settings_changed()
        self.maintenance.settings_changed()
        followers.follow_settings()

    def _engine_settings(self) -> EngineSettings:
        return engine_settings(self.settings, self.descriptors.ledger_files)

    def _apply_settings(self) -> None:
        self.resources.publish_budget.max_bytes = self.settings.max_message_publish_buffer_size_in_mb << 20
        self.storage.cache.max_bytes = self._engine_settings().cache_bytes

    def _policies_ready(self, name: TopicName) -> Awaitable[None] | None:
        if name.is_of_policies or not self.settings.topic_level_policies_enabled:
            return None
        return self.namespaces.topics.ready(name.namespace)

    # --- facts and doors for handlers ----------------------------------------------------------------------------

    def advertised(self, listener: str = "") -> AdvertisedUrls | None:
        return self.addresses.of(listener)

    @property
    def peers(self) -> PeerCalls | None:
        """Calls to the other brokers of the cluster."""
        return None if self.member is None else self.member.peers

    @property
    def bookies(self) -> BookiesApi | None:
        """The bookies of the cluster."""
        return None if self.member is None else self.member.bookies

    @property
    def urls(self) -> BrokerUrls:
        """The addresses of this broker for the admin API."""
        from magnetar.broker.admin.api import BrokerUrls  # noqa: PLC0415 - not before the binary port listens

        return BrokerUrls.of(self.addresses.broker_id, self.addresses.own)

    def listener_urls(self, listener: str) -> BrokerUrls | None:
        """The addresses of a named advertised listener."""
        found = self.addresses.of(listener)
        return None if found is None else type(self.urls).of(self.addresses.broker_id, found)

    def _shared_properties(self, name: TopicName) -> tuple[dict[str, str], ...]:
        """Properties of a topic's namespace and of the partitioned topic it is a part of."""
        policies, partitioned = self.namespaces.policies(name.namespace), self.catalog.partitioned(name.base)
        return (
            {} if policies is None else policies.properties,
            {} if partitioned is None else partitioned.properties or {},
        )

    def is_ready(self) -> bool:
        return not self.stopping.has_begun and self.storage.health.failed is None

    async def check_health(self) -> None:
        """Write and read back: raises when the store cannot keep the value."""
        if self.storage.health.problem is not None:
            raise self.storage.health.problem
        await self.storage.metadata.put("/magnetar/health", str(self.now_ms()).encode())

    def metrics(self) -> BrokerMetrics:
        from magnetar.broker.prometheus import broker_metrics  # noqa: PLC0415 - not before the binary port listens

        measured = broker_metrics.Measured(
            broker_id=self.addresses.broker_id,
            connections=self.connections,
            lookups=self.lookups,
            descriptors=self.descriptors,
            memory=self.memory,
            topics=self.topics,
            storage=self.storage,
            cache_meter=self.cache_meter,
            authenticator=self.authenticator,
            converting=self.converting,
            loop_watch=self.loop_watch,
            process_load=self.process_load,
            schemas=self.schemas.meters,
            load_reports=self.load_reports,
            balancing=None if self.member is None else self.member.balancing,
            sampling=None if self.traces is None else self.traces.sampling,
        )
        return broker_metrics.broker_metrics(measured)

    def roll_rates(self, seconds: float) -> None:
        """End a stats period of the figures outside of topics."""
        cache, read_bytes = self.storage.cache.stats(), self.storage.stats().file_read_bytes
        self.cache_meter.roll((cache.hits, cache.hit_bytes), (cache.misses, read_bytes), seconds)
        for meter in (self.topics, self.lookups.durations, self.schemas):
            meter.roll()

    def generate_producer_name(self) -> str:
        """`<cluster>-<start number>-<n>`: unique over all restarts."""
        return f"{self.settings.cluster_name}-{self._start_number}-{next(self._producer_numbers)}"
