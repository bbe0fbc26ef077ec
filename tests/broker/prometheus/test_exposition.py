"""/metrics: Pulsar's names and labels, parsed back by Prometheus' own parser."""

import dataclasses

import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.broker.compaction.compaction_stats import CompactionStats
from magnetar.broker.consumers.consumer_stats import ConsumerStats, SubscriptionStats
from magnetar.broker.meters.distributions import QUOTA_CHECK_S, BucketMeter
from magnetar.broker.meters.operation_meter import OperationMeter, SchemaMeters
from magnetar.broker.policies.effective import NO_POLICIES, NO_TOPIC_POLICIES, effective_config
from magnetar.broker.prometheus.exposition import BrokerMetrics, escape, render
from magnetar.broker.prometheus.ledger_rows import LedgerSums
from magnetar.broker.prometheus.operation_rows import OperationFigures
from magnetar.broker.prometheus.resource_rows import ResourceFigures
from magnetar.broker.settings import Settings
from magnetar.broker.topics.topic_stats import LatencyCounts, ProducerStats, SizeCounts, TopicStats
from magnetar.protocol.topic_name import TopicName

CONSUMER = ConsumerStats(
    consumer_name="c", consumer_id=1, msg_rate_out=2.0, msg_throughput_out=20.0, bytes_out_counter=200,
    msg_out_counter=20, msg_rate_redeliver=0.0, message_ack_rate=1.0, chunked_message_rate=0.0, available_permits=990,
    unacked_messages=4,
    avg_messages_per_entry=1, blocked_on_unacked=True, address="/127.0.0.1:1", connected_since_ms=1, client_version="x",
    last_acked_ms=2, last_consumed_ms=3, first_messages_sent_ms=1, last_consumed_flow_ms=1, first_consumed_flow_ms=1,
    type_name="Shared", metadata={},
)  # fmt: skip
PRODUCER = ProducerStats(
    producer_id=1, producer_name="p", access_mode=0, address="", client_version="", connected_since_ms=0, metadata={},
    msg_rate_in=5.0, msg_throughput_in=50.0, average_msg_size=10.0, chunked_message_rate=0.0,
)  # fmt: skip
SUBSCRIPTION = SubscriptionStats(
    msg_backlog=7, msg_backlog_no_delayed=6, msg_delayed=1, msg_rate_out=2.0, unacked_messages=4,
    blocked_on_unacked=True, bytes_out_counter=200, msg_out_counter=20, consumers=(CONSUMER,), type_name="Shared",
    dispatch_limited={("Msg", "Subscription"): 3, ("Bytes", "Topic"): 2},
)  # fmt: skip


def topic(name="persistent://public/default/t", **more):
    return TopicStats(
        name=TopicName.parse(name),
        msg_rate_in=5.0,
        msg_in_counter=100,
        bytes_in_counter=1000,
        storage_bytes=5000,
        publishers=(PRODUCER,),
        subscriptions={"s": SUBSCRIPTION},
        **more,
    )


def rendered(topics, settings=None, broker=None):
    """The page of these topics."""
    settings = settings or Settings()
    config = effective_config(settings, NO_POLICIES, NO_TOPIC_POLICIES)
    return "".join(render(settings, broker or BrokerMetrics(), topics, lambda _: config))


def samples(topics, settings=None, broker=None):
    """(name, labels without cluster) -> value; and the type of each name."""
    text = rendered(topics, settings, broker)
    values, kinds = {}, {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.get("cluster") == "standalone"
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "cluster"))
            assert (sample.name, labels) not in values, "each sample once"
            values[sample.name, labels] = sample.value
            kinds[sample.name] = family.type
    return values, kinds


TOPIC_LABELS = (("namespace", "public/default"), ("topic", "persistent://public/default/t"))


def test_topic_and_subscription_figures():
    values, kinds = samples([topic()])
    assert values["pulsar_rate_in", TOPIC_LABELS] == 5
    assert values["pulsar_in_messages_total", TOPIC_LABELS] == 100
    assert kinds["pulsar_in_messages_total"] == "gauge", "Pulsar writes gauges, with any ending of the name"
    assert values["pulsar_storage_size", TOPIC_LABELS] == 5000
    assert values["pulsar_msg_backlog", TOPIC_LABELS] == 7
    assert values["pulsar_storage_backlog_quota_limit", TOPIC_LABELS] == -1
    on_subscription = tuple(sorted((*TOPIC_LABELS, ("subscription", "s"))))
    assert values["pulsar_subscription_back_log", on_subscription] == 7
    assert values["pulsar_subscription_delayed", on_subscription] == 1
    assert values["pulsar_subscription_blocked_on_unacked_messages", on_subscription] == 1
    assert values["pulsar_out_messages_total", on_subscription] == 20


def test_broker_figures():
    broker = BrokerMetrics(active_connections=3, resources=ResourceFigures(broker_id="10.0.0.1:8080"))
    values, _ = samples([topic(), topic("persistent://public/default/u")], broker=broker)
    assert values["pulsar_broker_topics_count", ()] == 2
    assert values["pulsar_broker_consumers_count", ()] == 2
    assert values["pulsar_broker_msg_backlog", ()] == 14
    of_broker = (("broker", "10.0.0.1"), ("metric", "broker_connection"))
    assert values["pulsar_active_connections", of_broker] == 3
    assert values["pulsar_health", (("broker", "10.0.0.1"), ("metric", "broker_health"))] == -1
    assert values["pulsar_topics_count", (("namespace", "public/default"),)] == 2
    assert any(name == "process_cpu_seconds_total" for name, _ in values)
    assert any(name == "pulsar_version_info" for name, _ in values)


def test_bytes_of_the_broker_by_those_of_clients_and_its_own():
    own = dataclasses.replace(SUBSCRIPTION, pinned=True, bytes_out_counter=7)
    topics = [
        dataclasses.replace(topic(), subscriptions={"s": SUBSCRIPTION, "__compaction": own}, gone_bytes_out_counter=5),
        topic("persistent://public/default/__change_events"),
    ]
    values, _ = samples(topics)
    assert values["pulsar_broker_out_bytes_total", (("system_subscription", "false"),)] == 405
    assert values["pulsar_broker_out_bytes_total", (("system_subscription", "true"),)] == 7
    assert values["pulsar_broker_in_bytes_total", (("system_topic", "false"),)] == 1000
    assert values["pulsar_broker_in_bytes_total", (("system_topic", "true"),)] == 1000


def test_compactions_have_figures_where_a_topic_was_compacted():
    figures = CompactionStats(
        removed_events=1, removed_events_total=3, duration_ms=2, duration_total_ms=5, runs_succeeded=2, size_bytes=65
    )
    values, _ = samples([topic(compaction=figures), topic("persistent://public/default/u")])
    found = {(name, dict(labels)["topic"]): value for (name, labels), value in values.items() if "_compaction_" in name}
    assert {name.rpartition("/")[2] for _, name in found} == {"t"}
    assert found["pulsar_compaction_removed_event_count", dict(TOPIC_LABELS)["topic"]] == 3
    assert found["pulsar_compaction_duration_time_in_mills", dict(TOPIC_LABELS)["topic"]] == 5
    assert found["pulsar_compaction_compacted_entries_size", dict(TOPIC_LABELS)["topic"]] == 65


def test_writes_of_compactions_are_shown_by_their_time():
    written = LatencyCounts((0, 0, 2, 0, 1, 0, 0, 0, 0, 0), 3, 17.5)
    figures = CompactionStats(runs_succeeded=1)
    values, kinds = samples(
        [topic(compaction=figures, compaction_write_latency_ms=written), topic("persistent://public/default/u")]
    )
    found = {name: value for (name, labels), value in values.items() if "compaction_latency" in name and value}
    family = "pulsar_compaction_latency"
    assert found == {f"{family}_le_5": 2, f"{family}_le_20": 1, f"{family}_count": 3, f"{family}_sum": 17_500}
    assert kinds[family + "_overflow"] == "gauge"


def test_dispatches_held_by_a_rate_are_shown_by_reason():
    values, _ = samples([topic()])
    counts = {("msg", "subscription"): 3, ("bytes", "topic"): 2}
    for name in ("msg", "bytes"):
        for reason in ("subscription", "topic", "broker"):
            labels = tuple(sorted((*TOPIC_LABELS, ("subscription", "s"), ("reason", reason))))
            found = values[f"pulsar_subscription_dispatch_throttled_{name}_events", labels]
            assert found == counts.get((name, reason), 0)


def test_a_topic_that_stores_nothing_has_no_quota_of_bytes():
    name = "non-persistent://public/default/t"
    values, _ = samples([topic(name)])
    labels = (("namespace", "public/default"), ("topic", name))
    assert values["pulsar_storage_backlog_quota_limit", labels] == 0
    assert values["pulsar_storage_backlog_quota_limit_time", labels] == -1


def test_authentication_is_counted():
    broker = BrokerMetrics(
        authentication_successes={("TokenProvider", "token"): 3},
        authentication_failures={("TokenProvider", "EXPIRED"): 2},
    )
    values, kinds = samples([], broker=broker)
    labels = (("auth_method", "token"), ("provider_name", "TokenProvider"))
    assert values["pulsar_authentication_success_total", labels] == 3
    assert kinds["pulsar_authentication_success_total"] == "counter"
    assert values["pulsar_expired_token_total", ()] == 2


def test_a_figure_without_events_is_printed_as_every_parser_reads_it():
    meters = OperationMeter(), OperationMeter()
    operations = OperationFigures("host:8080", meters[0], 0, meters[1], {}, BucketMeter(QUOTA_CHECK_S))
    lines = rendered([], broker=BrokerMetrics(operations=operations)).splitlines()
    values = {line.rpartition(" ")[2] for line in lines if line.startswith("pulsar_topic_load_time")}
    assert "NaN" in values and "nan" not in values


def test_no_topics_still_print_the_broker():
    values, _ = samples([])
    assert values["pulsar_broker_topics_count", ()] == 0


def test_consumers_and_producers_only_when_asked_for():
    values, _ = samples([topic()])
    assert not any(name.startswith(("pulsar_consumer_", "pulsar_producer_msg")) for name, _ in values)
    settings = dataclasses.replace(
        Settings(), expose_consumer_level_metrics_in_prometheus=True, expose_producer_level_metrics_in_prometheus=True
    )
    values, _ = samples([topic()], settings)
    labels = tuple(sorted((*TOPIC_LABELS, ("subscription", "s"), ("consumer_name", "c"), ("consumer_id", "1"))))
    assert values["pulsar_consumer_available_permits", labels] == 990
    assert values["pulsar_out_bytes_total", labels] == 200
    assert values["pulsar_out_messages_total", labels] == 20
    labels = tuple(sorted((*TOPIC_LABELS, ("producer_name", "p"), ("producer_id", "1"))))
    assert values["pulsar_producer_msg_average_Size", labels] == 10


def test_namespaces_instead_of_topics():
    settings = dataclasses.replace(Settings(), expose_topic_level_metrics_in_prometheus=False)
    values, _ = samples([topic(), topic("persistent://public/default/u"), topic("persistent://public/x/u")], settings)
    assert values["pulsar_rate_in", (("namespace", "public/default"),)] == 10
    assert values["pulsar_msg_backlog", (("namespace", "public/default"), ("remote_cluster", "local"))] == 14
    assert not any("topic" in dict(labels) for _, labels in values)


def test_namespaces_have_the_figures_of_subscriptions_and_distributions():
    settings = dataclasses.replace(Settings(), expose_topic_level_metrics_in_prometheus=False)
    latency = LatencyCounts((1, 0, 0, 0, 0, 0, 0, 0, 0, 2), 3, 1.5)
    topics = [
        topic(write_latency_ms=latency, quota_evictions_size=1, gone_msg_out_counter=2),
        topic("persistent://public/default/u", write_latency_ms=latency, quota_evictions_size=1),
    ]
    values, kinds = samples([*topics, topic("persistent://public/default/v")], settings)
    namespace = ("namespace", "public/default")
    assert values["pulsar_out_messages_total", (namespace,)] == 62
    assert values["pulsar_out_bytes_total", (namespace,)] == 600
    assert values["pulsar_subscription_delayed", (namespace,)] == 3
    assert values["pulsar_consumer_msg_ack_rate", (namespace,)] == 0
    assert values["pulsar_storage_write_latency_le_0_5", (namespace,)] == 2
    assert values["pulsar_storage_write_latency_overflow", (namespace,)] == 4
    assert values["pulsar_storage_write_latency_count", (namespace,)] == 6
    assert values["pulsar_storage_write_latency_sum", (namespace,)] == 3000
    assert values["pulsar_entry_size_le_1_kb", (namespace,)] == 0
    evictions = "pulsar_storage_backlog_quota_exceeded_evictions_total"
    assert values[evictions, (namespace, ("quota_type", "size"))] == 2
    assert kinds[evictions] == "gauge"


def test_subscriptions_without_consumers_are_counted_by_topic_or_namespace():
    left = {"s": SUBSCRIPTION, "t": dataclasses.replace(SUBSCRIPTION, consumers=())}
    topics = [dataclasses.replace(topic(), subscriptions=left), topic("persistent://public/default/u")]
    name = "magnetar_subscriptions_without_consumers"
    values, _ = samples(topics)
    assert [value for (each, _), value in values.items() if each == name] == [1, 0]
    assert values[name, TOPIC_LABELS] == 1
    settings = dataclasses.replace(Settings(), expose_topic_level_metrics_in_prometheus=False)
    values, _ = samples([*topics, dataclasses.replace(topics[0], name=topics[1].name)], settings)
    assert values[name, (("namespace", "public/default"),)] == 2


def test_partition_in_a_label_of_its_own():
    settings = dataclasses.replace(Settings(), split_topic_and_partition_label_in_prometheus=True)
    values, _ = samples([topic("persistent://public/default/p-partition-3"), topic()], settings)
    head = (("namespace", "public/default"),)
    partition = (*head, ("partition", "3"), ("topic", "persistent://public/default/p"))
    assert values["pulsar_rate_in", partition] == 5
    assert values["pulsar_rate_in", (*head, ("partition", "-1"), ("topic", "persistent://public/default/t"))] == 5


def test_histograms_are_gauges_per_bucket():
    latency = LatencyCounts((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 45, 12.5)
    sizes = SizeCounts((0, 1, 2, 3, 4, 5, 6, 7, 8), 36, 1000)
    values, kinds = samples([topic(write_latency_ms=latency, entry_sizes=sizes)])
    assert values["pulsar_storage_write_latency_le_0_5", TOPIC_LABELS] == 0
    assert values["pulsar_storage_write_latency_le_1000", TOPIC_LABELS] == 8
    assert values["pulsar_storage_write_latency_overflow", TOPIC_LABELS] == 9
    assert values["pulsar_storage_write_latency_count", TOPIC_LABELS] == 45
    assert values["pulsar_storage_write_latency_sum", TOPIC_LABELS] == 12_500, "in us, as in Apache Pulsar"
    assert values["pulsar_entry_size_sum", TOPIC_LABELS] == 1000
    assert values["pulsar_entry_size_le_overflow", TOPIC_LABELS] == 8
    assert kinds["pulsar_entry_size_le_1_kb"] == "gauge"
    empty, _ = samples([topic()])
    assert empty["pulsar_storage_write_latency_le_5", TOPIC_LABELS] == 0


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "ünï"])
def test_odd_names_are_escaped(name):
    full = "persistent://public/default/" + name
    values, _ = samples([topic(full)])
    assert values["pulsar_rate_in", (("namespace", "public/default"), ("topic", full))] == 5
    assert "\n" not in escape(name)


def test_every_topic_name_of_the_common_dashboards_is_there():
    values, _ = samples([topic()])
    names = {name for name, _ in values}
    assert names >= {
        "pulsar_topics_count", "pulsar_producers_count", "pulsar_consumers_count", "pulsar_subscriptions_count",
        "pulsar_rate_in", "pulsar_rate_out", "pulsar_throughput_in", "pulsar_throughput_out", "pulsar_storage_size",
        "pulsar_storage_write_rate", "pulsar_storage_read_rate", "pulsar_msg_backlog", "pulsar_storage_backlog_size",
        "pulsar_storage_backlog_quota_limit", "pulsar_storage_offloaded_size", "pulsar_subscription_back_log",
        "pulsar_subscription_delayed", "pulsar_subscription_msg_rate_out", "pulsar_subscription_msg_throughput_out",
        "pulsar_version_info", "process_cpu_seconds_total",
    }  # fmt: skip


def test_no_part_of_the_page_grows_with_the_number_of_topics():
    settings = Settings()
    config = effective_config(settings, NO_POLICIES, NO_TOPIC_POLICIES)
    topics = [topic(f"persistent://public/default/t{i}") for i in range(600)]
    looked_at = 0

    def effective(_name):
        nonlocal looked_at
        looked_at += 1
        return config

    before = 0
    for part in render(settings, BrokerMetrics(), topics, effective):
        assert part.count("\n") <= 256
        assert looked_at - before <= 256, "topics are looked at in slices, too"
        before = looked_at
    assert looked_at == 600


def test_figures_of_managed_ledgers_are_summed_in_slices(monkeypatch):
    added, before, add = 0, 0, LedgerSums.add

    def counted(self, view):
        nonlocal added
        added += 1
        add(self, view)

    monkeypatch.setattr(LedgerSums, "add", counted)
    topics = [topic(f"persistent://public/default/t{i}") for i in range(600)]
    topics.append(topic("non-persistent://public/default/n"))
    settings = Settings()
    config = effective_config(settings, NO_POLICIES, NO_TOPIC_POLICIES)
    for _ in render(settings, BrokerMetrics(), topics, lambda _: config):
        assert added - before <= 256
        before = added
    assert added == 600, "persistent topics alone have a managed ledger"


def test_schema_figures_of_many_namespaces_come_in_slices():
    schemas = {f"public/n{i:03}": SchemaMeters() for i in range(200)}
    for each in schemas.values():
        each.get.count = 1
    operations = OperationFigures("b:1", OperationMeter(), 0, OperationMeter(), schemas)
    settings = Settings()
    config = effective_config(settings, NO_POLICIES, NO_TOPIC_POLICIES)
    parts = list(render(settings, BrokerMetrics(operations=operations), [], lambda _: config))
    assert max(part.count("\n") for part in parts) <= 256 + 2
    assert "".join(parts).count("pulsar_schema_get_ops_latency_count{") == 200
