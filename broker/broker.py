"""The broker: everything built and wired in one place, started and stopped in order.

Start: the data directory (locked), recovery of the storage, metadata, the ports. The libraries of the web port follow
when the first HTTP client connects, in a member of a cluster at the end of the start. Stop: no new connections, CLOSE_*
to every producer and consumer, all entries to the disk, then the storage closes.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import structlog

from magnetar import __version__
from magnetar.broker import entry_interceptors
from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.auth.authorizer import Authorizer
from magnetar.broker.auth.sessions import AuthServices
from magnetar.broker.auth.table import check_complete
from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.consumers.unacked_total import UnackedTotal
from magnetar.broker.handlers.client import ClientServices
from magnetar.broker.handlers.table import HANDLERS
from magnetar.broker.listeners import Listeners
from magnetar.broker.network.connection_resources import ConnectionResources
from magnetar.broker.network.connections import Connections
from magnetar.broker.network.publish_gate import PublishBudget
from magnetar.broker.network.read_buffer import SharedReadBuffer
from magnetar.broker.network.seats import Seats
from magnetar.broker.ownership.ownership import OwnershipDoor
from magnetar.broker.process_meters import ProcessMeters
from magnetar.broker.shutdown import EXIT_OK, Step, Stop, run_steps
from magnetar.broker.start_up import import_later, spare_later_modules
from magnetar.broker.stored_state import StoredState, open_stored_state
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics.append_door import AppendDoor
from magnetar.broker.topics.context import TopicContext
from magnetar.broker.topics.delay_indexes import bitmap_shelf
from magnetar.broker.topics.followers import TopicFollowers
from magnetar.broker.topics.ledger_config import engine_settings, ledger_config
from magnetar.broker.topics.lifecycle import TopicLifecycle
from magnetar.broker.topics.list_watchers import TopicListWatchers
from magnetar.broker.topics.news import News
from magnetar.broker.topics.publish_policy import FRAME_PADDING_BYTES
from magnetar.broker.topics.topic_registry import Topics
from magnetar.storage.embedded.engine import EmbeddedStorage, EngineEnvironment, open_embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.admin_backend.admin_services import AdminServices
    from magnetar.broker.admin_backend.topic_directory import CalledTopics
    from magnetar.broker.clustering.member import ClusterMember
    from magnetar.broker.foreign_entries.converting_service import Converting
    from magnetar.broker.load_reports import LoadReports, ReportedBroker
    from magnetar.broker.maintenance import Maintenance
    from magnetar.broker.prometheus.broker_metrics import Measured
    from magnetar.broker.settings import Settings
    from magnetar.broker.stores import Stores
    from magnetar.broker.traces.exporting import Traces
    from magnetar.broker.websocket.web_socket_service import WebSocketService
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.embedded.engine_settings import EngineSettings

log = structlog.get_logger(__name__)
EXIT_STORAGE_FAILED = 74
_FEW_OBJECTS = 100
"""Topics and connections up to which objects may be kept from the collector: some of them stay in memory for ever."""


class Broker:
    """One running broker. `await start()`, then `await wait_stopped()` or `await stop()`.

    environment: the disk, clock and threads of the broker; a test may replace those of the process.
    """

    stored: StoredState
    topics: Topics
    lifecycle: TopicLifecycle
    append_door: AppendDoor
    services: ClientServices
    maintenance: Maintenance

    def __init__(
        self, settings: Settings, environment: EngineEnvironment | None = None, *, in_cluster: bool = False
    ) -> None:
        self.settings = settings
        self.in_cluster = in_cluster
        self.environment = environment or EngineEnvironment.real()
        max_frame_bytes = settings.max_message_size + FRAME_PADDING_BYTES
        self.tasks = TaskSet()
        self.process = ProcessMeters.of(settings, max_frame_bytes)
        shares = self.process.descriptors
        self.resources = ConnectionResources(
            settings,
            max_frame_bytes,
            Connections(shares.connections, settings.broker_max_connections_per_ip),
            self.process.memory,
            PublishBudget(settings.max_message_publish_buffer_size_in_mb << 20),
            SharedReadBuffer(),
            self.tasks,
            self.environment.turns,
        )
        self.listeners = Listeners(self.resources, Seats(shares.connections, shares.extra))
        self.member: ClusterMember | None = None
        self.ownership = OwnershipDoor()
        self.converting: Converting | None = None
        self.traces: Traces | None = None
        self.admin: AdminServices | None = None
        """None until the broker serves HTTP requests."""
        self.stopping = Stop()

    # --- life ----------------------------------------------------------------------------------------------------

    async def start(
        self, before_listening: Callable[[], object] = lambda: None, on_ready: Callable[[], object] = lambda: None
    ) -> None:
        """Return when the broker serves clients, over HTTP too.

        The broker calls before_listening when everything is recovered, and on_ready when it serves clients. The first
        HTTP client waits a moment for its answer: outside a cluster it makes the broker load the HTTP server.

        Raises: StorageError (data directory in use, of a newer version, damaged), OSError (a port or certificate),
        ValueError (a setting names an unusable file, class or value).
        """
        settings = self.settings
        interceptors = entry_interceptors.load(settings.broker_entry_metadata_interceptors)
        if settings.traces_enabled:
            self.traces = (await import_later("magnetar.broker.traces.exporting")).Traces(settings)
        await self._open_state()
        await self._make_topics(interceptors)
        check_complete(set(HANDLERS))
        followers = TopicFollowers(self.topics, self.tasks, self.stored.namespaces.is_foreign)
        watchers = TopicListWatchers(self.stored.catalog, self.tasks)
        self.stored.namespaces.listen(lambda change: watchers.recheck(change.tenant, change.namespace))
        self.stored.namespaces.listen(followers.follow_policies)
        before_listening()
        self.services = self._client_services(watchers)
        await self.listeners.open(self.services)
        await self._start_maintenance()
        self._apply_settings()
        self.stored.dynamic_settings.listen(lambda: self._on_settings_changed(followers))
        if self.member is None:
            self.listeners.accept()
            self._log_started()
            on_ready()
        if self.listeners.has_web:
            await self._start_web()
        if self.member is not None:
            assert self.admin is not None, "a member of a cluster has a web port"
            self.ownership.current = await self.member.join(self.admin.load_reports.current)
            self.listeners.accept()  # earlier a refusal would double the pauses of clients that others send here
            self._log_started()
            on_ready()
        self.stopping.allow(self.stop)

    def _log_started(self) -> None:
        listeners, binary = self.listeners, self.listeners.binary
        log.info(
            "broker.started",
            port=binary.port,
            port_tls=binary.port_tls,
            http_port=listeners.http_port,
            http_port_tls=listeners.http_port_tls,
            start_number=self.stored.start_number,
        )

    async def _open_state(self) -> None:
        stores = await self._open_stores()
        stores.health.on_failure(self._on_storage_failure)
        loop = asyncio.get_running_loop()
        self.stored = await open_stored_state(self.settings, stores, self.environment.clock, loop, self.member)
        if self.member is not None:
            await self.member.follow()

    async def _open_stores(self) -> Stores:
        """Open the stores of this machine, or those of the cluster that this broker becomes a member of."""
        engine = self._engine_settings()
        if not self.in_cluster:
            return await open_embedded(self.settings.data_dir, engine, self.environment)
        clustering = await import_later("magnetar.broker.clustering.member")
        self.ownership.current = clustering.StartingUp()
        self.member = member = clustering.ClusterMember(self)
        stores: Stores = await member.open(engine.cache_bytes, engine.max_record_bytes)
        return stores

    async def _make_topics(self, interceptors: entry_interceptors.LoadedInterceptors) -> None:
        settings, stored, clock = self.settings, self.stored, self.environment.clock
        if settings.message_converters:
            service = await import_later("magnetar.broker.foreign_entries.converting_service")
            self.converting = await service.start_converting(settings, clock.now_ms, stored.shared_properties)
        context = TopicContext(
            settings=settings,
            now_ms=clock.now_ms,
            monotonic=clock.now_s,
            call_later=asyncio.get_running_loop().call_later,
            effective=stored.namespaces.effective,
            ledger_config=lambda config: ledger_config(settings, config, interceptors),
            delay_shelf=bitmap_shelf(settings),
            unacked_total=UnackedTotal.of(settings),
            converting=self.converting,
            serves=self.ownership.serves,
            bundles=self.ownership.bundles,
            broker_id=lambda: self.listeners.addresses.broker_id,
            taken_over=self._on_taken_over,
            policies_ready=stored.policies_ready,
        )
        if self.traces is not None:
            context.make_producer = self.traces.producer
        self.topics = Topics(context, stored.catalog, stored.ledgers, stored.namespaces, self.tasks)
        elsewhere = await self._topics_elsewhere()
        self.lifecycle = TopicLifecycle(self.topics, stored.schemas, stored.namespaces, self.tasks, elsewhere)
        self.append_door = AppendDoor(self.topics, clock.now_ms)
        if self.converting is not None:
            self.converting.use_topics(self.topics)

    async def _topics_elsewhere(self) -> CalledTopics | None:
        """Calls to other brokers of the cluster; None for a broker alone."""
        if self.member is None:
            return None
        called = (await import_later("magnetar.broker.admin_backend.topic_directory")).CalledTopics
        elsewhere: CalledTopics = called(self.member.peers)
        return elsewhere

    def _client_services(self, watchers: TopicListWatchers) -> ClientServices:
        settings, stored = self.settings, self.stored
        authenticator, authorizer = Authenticator(settings), Authorizer(settings, stored.namespaces)
        version, now_ms = f"Magnetar {__version__}", self.environment.clock.now_ms
        numbers = itertools.count()
        return ClientServices(
            settings=settings,
            auth=AuthServices(authenticator, authorizer, settings, version, now_ms),
            addresses=self.listeners.addresses,
            topics=self.topics,
            namespaces=stored.namespaces,
            news=self._news(),
            schemas=stored.schemas,
            topic_watchers=watchers,
            lookups=self.process.lookups,
            ownership=self.ownership,
            new_producer_name=lambda: f"{settings.cluster_name}-{stored.start_number}-{next(numbers)}",
            make_consumer=Consumer.from_command if self.traces is None else self.traces.consumer,
        )

    def _news(self) -> News:
        stored = self.stored
        if self.member is None:
            return News(stored.namespaces, self.topics, stored.ledgers.exists, None)
        others = self.member.catch_up, self.member.change_of
        return News(stored.namespaces, self.topics, stored.ledgers.exists, *others)

    async def _start_maintenance(self) -> None:
        maintenance = (await import_later("magnetar.broker.maintenance")).Maintenance
        stores = self.stored.stores
        embedded = stores if isinstance(stores, EmbeddedStorage) else None
        self.maintenance = maintenance(self.settings, self.topics, self.lifecycle, embedded, self._roll_rates)
        self.maintenance.start()

    async def _start_web(self) -> None:
        reports = await import_later("magnetar.broker.load_reports")
        load_reports = reports.LoadReports(self._reported(reports.ReportedBroker))  # begins to measure
        if self.member is None:
            self.listeners.on_first_visit(lambda: self._start_admin(load_reports))
        else:
            await self._start_admin(load_reports)

    async def _start_admin(self, load_reports: LoadReports) -> None:
        for module in ("topic_operations", "admin_services"):
            await import_later(f"magnetar.broker.admin_backend.{module}")
        web_sockets = None
        if self.settings.web_socket_service_enabled:
            service = (await import_later("magnetar.broker.websocket.web_socket_service")).WebSocketService
            web_sockets = service(self.resources, self.services)
        self.admin = self.admin_services(web_sockets, load_reports)
        await self.listeners.serve_web(self.admin)
        if len(self.topics.loaded) + len(self.resources.connections) <= _FEW_OBJECTS:
            spare_later_modules()

    def _reported(self, make: type[ReportedBroker]) -> ReportedBroker:
        process, stored = self.process, self.stored
        return make(
            self.settings,
            self.listeners.addresses,
            process.load,
            process.memory,
            self.ownership,
            stored.namespaces,
            self.topics,
            self.environment.clock.now_ms,
        )

    def admin_services(self, web_sockets: WebSocketService | None, load_reports: LoadReports) -> AdminServices:
        """The services behind the admin API of a broker that serves clients."""
        from magnetar.broker.admin_backend.admin_services import AdminServices  # noqa: PLC0415 - after the binary port
        from magnetar.broker.admin_backend.topic_operations import TopicOperations  # noqa: PLC0415 - the same

        stored, process, auth = self.stored, self.process, self.services.auth
        return AdminServices(
            settings=self.settings,
            namespaces=stored.namespaces,
            news=self.services.news,
            dynamic_settings=stored.dynamic_settings,
            schemas=stored.schemas,
            memory=process.memory,
            descriptors=process.descriptors,
            ownership=self.ownership,
            lookups=process.lookups,
            peers=None if self.member is None else self.member.peers,
            bookies=None if self.member is None else self.member.bookies,
            authenticator=auth.authenticator,
            authorizer=auth.authorizer,
            operations=TopicOperations(self.topics, self.lifecycle, stored.schemas, self.append_door, self.converting),
            lifecycle=self.lifecycle,
            web_sockets=web_sockets,
            load_reports=load_reports,
            addresses=self.listeners.addresses,
            measured=self._measured,
            is_ready=lambda: not self.stopping.has_begun and stored.stores.health.failed is None,
            check_health=stored.check_health,
        )

    def _measured(self) -> Measured:
        from magnetar.broker.prometheus.broker_metrics import Measured  # noqa: PLC0415 - not before the binary port listens

        return Measured(
            broker_id=self.listeners.addresses.broker_id,
            process=self.process,
            connections=self.resources.connections,
            topics=self.topics,
            storage=self.stored.stores,
            authenticator=self.services.auth.authenticator,
            converting=self.converting,
            schemas=self.stored.schemas.meters,
            load_reports=None if self.admin is None else self.admin.load_reports,
            balancing=None if self.member is None else self.member.balancing,
            sampling=None if self.traces is None else self.traces.sampling,
            certificate_ends_s=self.listeners.certificate_ends_s,
        )

    # --- stop ----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop in order. On return everything acknowledged is on the disk. Safe to call twice."""
        if not self.stopping.begin():
            await self.stopping.wait()
            return
        log.info("broker.stopping")
        try:
            within_s = self.settings.broker_shutdown_timeout_ms / 1000
            ledgers = self.stored.ledgers
            unsaved = ledgers.unsaved_cursors
            bad = await run_steps(self._stop_steps(), within_s, self.stopping.tasks)
            unsaved = ledgers.unsaved_cursors + ledgers.unsaved_in_open_logs - unsaved
            if unsaved:
                log.error("broker.acks_not_saved", cursors=unsaved)
            if self.stored.stores.health.failed is not None or "storage" in bad or unsaved:
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
        steps.append(Step("admin", self.listeners.close_web))
        steps += [Step("topics", self.topics.close), Step("connections", self._close_connections)]
        if self.converting is not None:
            steps.append(Step("converting", self.converting.close))
        if self.traces is not None:
            steps.append(Step("traces", self.traces.close))
        return [
            *steps,
            Step("tasks", self.tasks.close),
            Step("ledgers", self._close_ledgers),
            Step("storage", self.stored.stores.close),
        ]

    async def _set_deadline(self) -> None:
        self.stopping.on_begin()

    async def _stop_accepting(self) -> None:
        self.listeners.binary.stop_accepting()

    async def _close_connections(self) -> None:
        if self.admin is not None and self.admin.web_sockets is not None:
            self.admin.web_sockets.close()
        for connection in self.resources.connections:
            connection.close()

    async def _close_ledgers(self) -> None:
        self.topics.context.close()
        await self.stored.ledgers.close()

    def request_stop(self, exit_code: int = EXIT_OK) -> None:
        """Request a stop, for a signal or a failure; during the start, the broker stops as soon as it has started."""
        self.stopping.request(exit_code)

    async def wait_stopped(self) -> int:
        """Return the exit code once the broker has stopped."""
        return await self.stopping.wait()

    def _on_storage_failure(self, error: BaseException) -> None:
        log.error("broker.storage_failed", reason=str(error))
        self.request_stop(EXIT_STORAGE_FAILED)

    def _on_taken_over(self, name: TopicName) -> None:
        """Another broker writes to the topic, or its log must be opened anew: disconnect its clients, whose next lookup
        finds the owner.
        """
        log.warning("topic.taken_over", topic=str(name))
        self.tasks.spawn(self.topics.unload(name), "topic.unload")

    def _on_settings_changed(self, followers: TopicFollowers) -> None:
        """Pass a setting that changed while the broker runs to every part that keeps a copy of the value."""
        self._apply_settings()
        self.stored.namespaces.settings_changed()
        self.topics.settings_changed()
        self.maintenance.settings_changed()
        followers.follow_settings()

    def _engine_settings(self) -> EngineSettings:
        return engine_settings(self.settings, self.process.descriptors.ledger_files, self.process.load.cores())

    def _apply_settings(self) -> None:
        self.resources.publish_budget.max_bytes = self.settings.max_message_publish_buffer_size_in_mb << 20
        self.stored.stores.cache.max_bytes = self._engine_settings().cache_bytes

    def _roll_rates(self, seconds: float) -> None:
        """End a stats period of the figures that belong to no single topic."""
        stores, schemas, process = self.stored.stores, self.stored.schemas, self.process
        cache, read_bytes = stores.cache.stats(), stores.stats().file_read_bytes
        process.cache.roll((cache.hits, cache.hit_bytes), (cache.misses, read_bytes), seconds)
        for meter in (self.topics, process.lookups.durations):
            meter.roll()
        schemas.roll(seconds)
