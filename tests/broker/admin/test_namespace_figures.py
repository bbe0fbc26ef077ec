"""The groups of `broker-stats/metrics` have the names of Apache Pulsar 4.2.4."""

from magnetar.broker.admin.namespace_figures import NamespaceFigures, connection_group
from magnetar.broker.consumers.consumer_stats import SubscriptionStats
from magnetar.broker.prometheus.exposition import BrokerMetrics
from magnetar.broker.topics.topic_stats import LatencyCounts, TopicStats
from magnetar.protocol.topic_name import TopicName

RECORDED = (
    "brk_AddEntryLatencyBuckets_0.0_0.5 brk_AddEntryLatencyBuckets_0.5_1.0 brk_AddEntryLatencyBuckets_1.0_5.0 "
    "brk_AddEntryLatencyBuckets_10.0_20.0 brk_AddEntryLatencyBuckets_100.0_200.0 brk_AddEntryLatencyBuckets_20.0_50.0 "
    "brk_AddEntryLatencyBuckets_200.0_1000.0 brk_AddEntryLatencyBuckets_5.0_10.0 brk_AddEntryLatencyBuckets_50.0_100.0 "
    "brk_AddEntryLatencyBuckets_OVERFLOW brk_in_rate brk_in_tp_rate brk_max_replication_delay_second brk_msg_backlog "
    "brk_no_of_consumers brk_no_of_producers brk_no_of_replicators brk_no_of_subscriptions brk_out_rate "
    "brk_out_tp_rate brk_replication_backlog brk_storage_size"
)


def topic(name):
    subscription = SubscriptionStats(msg_rate_out=1.5, msg_throughput_out=30.0, msg_backlog=4)
    return TopicStats(
        name=TopicName.parse(name), msg_rate_in=2.0, msg_throughput_in=40.0, storage_bytes=300,
        backlog_bytes=100,
        subscriptions={"s": subscription, "t": subscription},
        write_latency_ms=LatencyCounts((0, 1, 0, 0, 0, 0, 0, 0, 0, 2), 3, 9.0),
    )  # fmt: skip


def test_a_namespace_has_the_sums_of_its_topics():
    figures = NamespaceFigures()
    for name in ("t/n/a", "t/n/b"):
        figures.add(topic(f"persistent://{name}"))
    group = figures.group("t/n")
    assert group["dimensions"] == {"namespace": "t/n"}
    assert list(group["metrics"]) == RECORDED.split()
    assert {name: value for name, value in group["metrics"].items() if value} == {
        "brk_AddEntryLatencyBuckets_0.5_1.0": 2, "brk_AddEntryLatencyBuckets_OVERFLOW": 4, "brk_in_rate": 4.0,
        "brk_in_tp_rate": 80.0, "brk_msg_backlog": 16.0, "brk_no_of_subscriptions": 4, "brk_out_rate": 6.0,
        "brk_out_tp_rate": 120.0, "brk_storage_size": 200.0,
    }  # fmt: skip


def test_connections_have_a_group():
    group = connection_group(BrokerMetrics(connections_created=3, connections_closed=1, active_connections=2), "h", "c")
    assert group["dimensions"] == {"broker": "h", "cluster": "c", "metric": "broker_connection"}
    assert group["metrics"]["brk_connection_created_total_count"] == 3
    assert group["metrics"]["brk_active_connections"] == 2
