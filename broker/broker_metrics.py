"""Figures of the whole broker for /metrics, gathered when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.metrics import BrokerMetrics

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker


def broker_metrics(broker: Broker) -> BrokerMetrics:
    """What no topic has: connections, caches, the store."""
    counters = broker.connections.counters
    cache = broker.storage.cache.stats()
    return BrokerMetrics(
        active_connections=len(broker.connections),
        connections_created=counters.created,
        connections_refused=counters.refused,
        connections_closed=counters.closed,
        managed_ledgers=sum(topic.persistent for topic in broker.topics.loaded.values()),
        cache_used_bytes=cache.held_bytes,
        cache_entries=cache.held_slabs,
        cache_evictions=cache.evictions,
        authentication_successes=dict(broker.authenticator.successes),
        authentication_failures=dict(broker.authenticator.failures),
        converting=None if broker.converting is None else broker.converting.figures(),
    )
