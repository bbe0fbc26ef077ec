"""Figures of the whole broker for /metrics, gathered on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.broker.prometheus.exposition import BrokerMetrics
from magnetar.broker.prometheus.operation_rows import OperationFigures
from magnetar.broker.prometheus.resource_rows import ResourceFigures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.auth.authenticator import Authenticator
    from magnetar.broker.foreign_entries.converting_service import Converting
    from magnetar.broker.load_reports import LoadReports
    from magnetar.broker.meters.operation_meter import SchemaMeters
    from magnetar.broker.network.connections import Connections
    from magnetar.broker.process_meters import ProcessMeters
    from magnetar.broker.prometheus.resource_rows import BalancingCounts
    from magnetar.broker.stores import Stores
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.broker.traces.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Measured:
    """The parts of the broker whose figures /metrics shows. broker_id: "host:web port"."""

    broker_id: str
    process: ProcessMeters
    connections: Connections
    topics: Topics
    storage: Stores
    authenticator: Authenticator
    converting: Converting | None
    schemas: Mapping[str, SchemaMeters]
    """The figures of schemas by namespace."""
    load_reports: LoadReports | None
    balancing: BalancingCounts | None
    """None for a broker outside a cluster."""
    sampling: Sampling | None
    """The sampling of traces; None without traces."""
    certificate_ends_s: float | None = None
    """The end of the certificate of the TLS ports; None without TLS."""


def broker_metrics(broker: Measured) -> BrokerMetrics:
    """Metrics that belong to no topic: connections, caches, the store."""
    counters = broker.connections.counters
    cache = broker.storage.cache.stats()
    return BrokerMetrics(
        active_connections=len(broker.connections),
        connections_created=counters.created,
        connections_refused=counters.refused,
        connections_closed=counters.closed,
        waiting_bytes=broker.connections.waiting_bytes,
        managed_ledgers=sum(topic.persistent for topic in broker.topics.loaded.values()),
        cache_used_bytes=cache.held_bytes,
        cache_entries=cache.held_entries,
        cache_inserted_entries=cache.inserted_entries,
        cache_evicted_entries=cache.inserted_entries - cache.held_entries,
        cache_evictions=cache.evictions,
        cache_hits_rate=broker.process.cache.hits.rates().messages_per_second,
        cache_hits_throughput=broker.process.cache.hits.rates().bytes_per_second,
        cache_misses_rate=broker.process.cache.misses.rates().messages_per_second,
        cache_misses_throughput=broker.process.cache.misses.rates().bytes_per_second,
        slow_callbacks=broker.process.loop_watch.figures.slow_callbacks,
        slow_callback_ms=broker.process.loop_watch.figures.slow_callback_ms,
        longest_callback_ms=broker.process.loop_watch.figures.longest_callback_ms,
        long_turns=broker.process.loop_watch.figures.long_turns,
        trace_spans=0 if broker.sampling is None else broker.sampling.recorded,
        trace_spans_left_out=0 if broker.sampling is None else broker.sampling.left_out,
        lookups_pending=broker.process.lookups.in_progress,
        topic_loads_pending=broker.topics.busy_count,
        publish_latency_quantiles_ms=broker.topics.context.publish_latency.quantiles(),
        publish_latency_count=broker.topics.context.publish_latency.count,
        publish_latency_sum_ms=broker.topics.context.publish_latency.sum_ms,
        authentication_successes=dict(broker.authenticator.successes),
        authentication_failures=dict(broker.authenticator.failures),
        operations=OperationFigures(
            broker_id=broker.broker_id,
            lookups=broker.process.lookups.durations,
            redirects=broker.process.lookups.redirects,
            topic_loads=broker.topics.load_times,
            quota_checks=broker.topics.context.quota_checks,
            schemas=broker.schemas,
        ),
        resources=resources(broker),
        converting=None if broker.converting is None else broker.converting.figures(),
    )


def resources(broker: Measured) -> ResourceFigures:
    """Metrics of the broker's resources: memory for clients, connections, the disk, the processor."""
    memory = broker.process.memory
    engine = broker.storage.stats()
    received, sent = (0.0, 0.0) if broker.load_reports is None else broker.load_reports.bandwidth_percent()
    return ResourceFigures(
        broker_id=broker.broker_id,
        client_memory_used_bytes=memory.used_bytes,
        client_memory_limit_bytes=memory.limits.total,
        client_memory_most_bytes=memory.most_bytes,
        client_memory_waiting=memory.waiting,
        client_memory_waits=memory.waits,
        client_memory_refusals=memory.refusals,
        connections_limit=broker.process.descriptors.connections,
        cpu_percent=broker.process.load.cpu_percent(),
        memory_percent=broker.process.load.memory_percent(),
        bandwidth_in_percent=received,
        bandwidth_out_percent=sent,
        balancing=broker.balancing,
        certificate_ends_s=broker.certificate_ends_s,
        engine=engine,
    )
