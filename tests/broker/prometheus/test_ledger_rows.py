"""`pulsar_ml_*` by namespace."""

from magnetar.broker.prometheus.ledger_rows import FAMILIES, LedgerSums, ledger_rows
from magnetar.broker.prometheus.rows import QuotaView, TopicView
from magnetar.broker.topics.topic_stats import LatencyCounts, SizeCounts, TopicStats
from magnetar.protocol.topic_name import TopicName

SECONDS = 10.0


def view(name, **figures):
    return TopicView(TopicStats(name=TopicName.parse(name), **figures), QuotaView(-1, -1))


def test_figures_are_sums_over_the_topics_of_a_namespace():
    latency = LatencyCounts((0, 20, 0, 0, 0, 0, 0, 0, 0, 10), 30, 1.0)
    sizes = SizeCounts((30, 0, 0, 0, 0, 0, 0, 0, 0), 30, 1.0)
    views = [
        view("persistent://a/b/x", storage_write_rate=3.0, write_latency_ms=latency, entry_sizes=sizes),
        view("persistent://a/b/x2", deduplication_backlog=2),
        view("persistent://a/b/y", storage_write_rate=2.0, write_latency_ms=latency, storage_read_rate=0.5),
        view(
            "persistent://a/c/z",
            storage_write_rate=7.0,
            storage_read_rate=0.25,
            storage_read_bytes_rate=30.0,
            mark_delete_rate=2.0,
            failed_reads=3,
            failed_appends=4,
            ledger_switch_ms=latency,
        ),
    ]
    sums = {"a/b": LedgerSums(), "a/c": LedgerSums()}
    for each in views:
        sums[each.stats.name.namespace].add(each)
    found = {name: dict(rows) for name, rows in ledger_rows('cluster="c"', sums, SECONDS)}
    first, second = 'cluster="c",namespace="a/b/persistent"', 'cluster="c",namespace="a/c/persistent"'
    assert found["pulsar_ml_NumberOfMessagesInBacklog"] == {first: 2.0, second: 0.0}
    assert found["pulsar_ml_AddEntryMessagesRate"] == {first: 5.0, second: 7.0}
    assert found["pulsar_ml_AddEntrySucceed"] == {first: 50.0, second: 70.0}
    assert found["pulsar_ml_AddEntryBytesRate"] == {first: 0.0, second: 0.0}
    assert found["pulsar_ml_AddEntryLatencyBuckets"][f'{first},quantile="0.5_1.0"'] == 4.0
    assert found["pulsar_ml_AddEntryLatencyBuckets_OVERFLOW"] == {first: 2.0, second: 0.0}
    assert found["pulsar_ml_EntrySizeBuckets"][f'{first},quantile="0.0_128.0"'] == 3.0
    assert len(found["pulsar_ml_EntrySizeBuckets"]) == 16
    assert found["pulsar_ml_ReadEntriesRate"] == found["pulsar_ml_ReadEntriesOpsCacheMissesRate"]
    assert found["pulsar_ml_ReadEntriesSucceeded"] == {first: 5.0, second: 2.5}
    for name, value in (("ReadEntriesBytesRate", 30), ("MarkDeleteRate", 2), ("ReadEntriesErrors", 3)):
        assert found[f"pulsar_ml_{name}"] == {first: 0, second: value}
    assert found["pulsar_ml_AddEntryErrors"] == {first: 0, second: 4}
    assert found["pulsar_ml_LedgerSwitchLatencyBuckets"][f'{second},quantile="0.5_1.0"'] == 2.0
    assert found["pulsar_ml_LedgerSwitchLatencyBuckets_OVERFLOW"] == {first: 0.0, second: 1.0}
    assert set(found) == set(FAMILIES)
