"""The groups of `broker-stats/metrics` with the figures of a namespace and of the connections, under the names of
Apache Pulsar (seen on 4.2.4). Monitoring agents read them as JSON.
"""

from typing import TYPE_CHECKING, Final

from magnetar.broker.meters.distributions import WRITE_LATENCY_MS

if TYPE_CHECKING:
    from magnetar.broker.prometheus.exposition import BrokerMetrics
    from magnetar.broker.topics.topic_stats import TopicStats

Figures = dict[str, int | float]
_BUCKETS: Final = tuple(
    f"brk_AddEntryLatencyBuckets_{low:.1f}_{high:.1f}"
    for low, high in zip((0.0, *WRITE_LATENCY_MS[:-1]), WRITE_LATENCY_MS, strict=True)
)
_OVERFLOW: Final = "brk_AddEntryLatencyBuckets_OVERFLOW"
_OF_REPLICATION: Final = ("brk_max_replication_delay_second", "brk_replication_backlog")


class NamespaceFigures:
    """Sums over the loaded topics of one namespace."""

    def __init__(self) -> None:
        self._sums: Figures = dict.fromkeys((*_BUCKETS, _OVERFLOW), 0)
        self._sums |= dict.fromkeys(_OF_REPLICATION, 0.0) | {"brk_no_of_replicators": 0}

    def add(self, stats: "TopicStats") -> None:
        subscriptions = stats.subscriptions.values()
        more: Figures = {
            "brk_in_rate": stats.msg_rate_in,
            "brk_in_tp_rate": stats.msg_throughput_in,
            "brk_out_rate": sum((each.msg_rate_out for each in subscriptions), 0.0),
            "brk_out_tp_rate": sum((each.msg_throughput_out for each in subscriptions), 0.0),
            "brk_msg_backlog": float(sum(each.msg_backlog for each in subscriptions)),
            "brk_no_of_consumers": sum(len(each.consumers) for each in subscriptions),
            "brk_no_of_producers": len(stats.publishers),
            "brk_no_of_subscriptions": len(subscriptions),
            "brk_storage_size": float(stats.backlog_bytes),  # not the stored bytes, as in Apache Pulsar
        }
        if stats.write_latency_ms is not None:
            more |= zip((*_BUCKETS, _OVERFLOW), stats.write_latency_ms.buckets, strict=True)
        for name, value in more.items():
            self._sums[name] = self._sums.get(name, 0) + value

    def group(self, namespace: str) -> dict[str, object]:
        return {"metrics": dict(sorted(self._sums.items())), "dimensions": {"namespace": namespace}}


def connection_group(figures: "BrokerMetrics", host: str, cluster: str) -> dict[str, object]:
    """The figures of the broker's connections."""
    metrics: Figures = {
        "brk_active_connections": figures.active_connections,
        "brk_connection_closed_total_count": figures.connections_closed,
        "brk_connection_create_fail_count": figures.connections_refused,
        "brk_connection_create_success_count": figures.connections_created,
        "brk_connection_created_total_count": figures.connections_created,
    }
    return {"metrics": metrics, "dimensions": {"broker": host, "cluster": cluster, "metric": "broker_connection"}}
