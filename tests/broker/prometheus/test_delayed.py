"""Metrics of delayed delivery: Apache Pulsar's names, labels and bins."""

from prometheus_client.parser import text_string_to_metric_families

from magnetar.broker.prometheus.delayed import delayed_metrics, lateness
from magnetar.delayed.index_stats import OPERATIONS, DelayIndexStats, IndexCounters

LABELS = 'cluster="standalone",namespace="public/default",topic="persistent://public/default/t"'


def stats_of(counters, **more):
    return DelayIndexStats(
        operations=counters.operations(),
        lateness_counts=counters.lateness,
        lateness_sum_ms=counters.lateness_sum_ms,
        fired=counters.fired,
        **more,
    )


def samples(stats):
    """{(name, labels without the topic's)} -> value."""
    text = "".join(
        f"{name}{{{labels}}} {value}\n"
        for name, parts in delayed_metrics([(LABELS, stats)])
        for rows in parts
        for labels, value in rows
    )
    text += "# TYPE magnetar_delayed_lateness_ms histogram\n"
    text += "".join(
        f"magnetar_delayed_lateness_ms{labels}}} {value}\n"
        for rows in lateness([(LABELS, stats)])
        for labels, value in rows
    )
    out = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("cluster", "namespace", "topic")}
            assert len(sample.labels) == len(labels) + 3
            out[sample.name, tuple(sorted(labels.items()))] = sample.value
    return out


def test_pulsars_gauges():
    values = samples(stats_of(IndexCounters(), bucket_total=3, loaded=77, snapshot_size_bytes=1234))
    assert values["pulsar_delayed_message_index_bucket_total", ()] == 3
    assert values["pulsar_delayed_message_index_loaded", ()] == 77
    assert values["pulsar_delayed_message_index_bucket_snapshot_size_bytes", ()] == 1234


def test_pulsars_operations():
    counters = IndexCounters()
    for took in (10, 50, 51, 70_000):
        counters.ended("create", took)
    counters.ended("create", 0, failed=True)
    values = samples(stats_of(counters))
    name = "pulsar_delayed_message_index_bucket_op_count"
    by_state = {s: values[name, (("state", s), ("type", "create"))] for s in ("succeed", "failed", "all")}
    assert by_state == {"succeed": 4, "failed": 1, "all": 5}
    assert {dict(labels)["type"] for each, labels in values if each == name} == set(OPERATIONS)
    latency = "pulsar_delayed_message_index_bucket_op_latency_ms"
    bins = {dict(labels)["quantile"]: v for (each, labels), v in values.items() if each == latency}
    assert bins == {"50": 2, "100": 1, "overflow": 1}, "not cumulative, without empty ones"
    assert values[latency + "_count", (("type", "create"),)] == 4
    assert values[latency + "_sum", (("type", "create"),)] == 70_111


def test_lateness_is_a_histogram():
    counters = IndexCounters()
    counters.note_fired([1000, 5000, 5990, 6000, 6500], 6000)
    values = samples(stats_of(counters))
    name = "magnetar_delayed_lateness_ms"
    found = {dict(labels)["le"]: v for (each, labels), v in values.items() if each == name + "_bucket"}
    assert found == {"0": 2, "10": 3, "100": 3, "1000": 4, "10000": 5, "60000": 5, "+Inf": 5}
    assert values[name + "_count", ()] == 5 and values[name + "_sum", ()] == 5 * 6000 - 24_490
    assert samples(stats_of(IndexCounters()))[name + "_count", ()] == 0


def test_nothing_without_an_index():
    assert list(delayed_metrics([])) == [] == list(lateness([]))


class CountedTopics(list):
    """Notes how many of its items were taken."""

    taken = 0

    def __iter__(self):
        for item in super().__iter__():
            self.taken += 1
            yield item


def test_samples_of_a_topic_are_made_when_they_are_taken():
    topics = CountedTopics([(LABELS, stats_of(IndexCounters()))] * 1000)
    metrics = 0
    for _, parts in delayed_metrics(topics):
        next(parts)
        metrics += 1
    next(lateness(topics))
    assert topics.taken == metrics + 1
