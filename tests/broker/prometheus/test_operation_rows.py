"""Families of lookups, topic loads and schemas."""

from magnetar.broker.meters.distributions import QUOTA_CHECK_S, BucketMeter
from magnetar.broker.meters.operation_meter import OperationMeter, SchemaMeters
from magnetar.broker.prometheus.operation_rows import OperationFigures, operation_metrics

CLUSTER = 'cluster="c"'


async def test_counts_by_family():
    lookups, loads, schemas = OperationMeter(), OperationMeter(), SchemaMeters()
    for _ in range(3):
        with lookups.timed():
            pass
    with loads.timed():
        pass
    loads.roll()
    with schemas.put.timed():
        pass
    schemas.incompatible = 2
    loads.failures = 4
    checks = BucketMeter(QUOTA_CHECK_S)
    for seconds in (0.5, 7, 8, 400):
        checks.add(seconds)
    figures = OperationFigures("host:8080", lookups, 1, loads, {"a/b": schemas}, checks)
    found = {name: (kind, dict(rows)) for name, kind, rows in operation_metrics(figures, CLUSTER)}
    assert found["pulsar_broker_lookup"][1]["_count{" + CLUSTER] == 3
    assert found["pulsar_broker_lookup_answers_total"] == ("counter", {"{" + CLUSTER: 2})
    assert found["pulsar_broker_lookup_redirects_total"] == ("counter", {"{" + CLUSTER: 1})
    assert found["topic_load_failed_total"] == ("counter", {"{" + CLUSTER: 4})
    assert found["pulsar_storage_backlog_quota_check_duration_seconds"] == (
        "histogram",
        {
            f'_bucket{{{CLUSTER},le="{le}"': n
            for le, n in zip(("5.0", "10.0", "30.0", "60.0", "300.0"), (1, 3, 3, 3, 3), strict=True)
        }
        | {f'_bucket{{{CLUSTER},le="+Inf"': 4, f"_count{{{CLUSTER}": 4, f"_sum{{{CLUSTER}": 415.5},
    )
    labels = "{" + CLUSTER + ',broker="host",metric="pulsar_topic_load_times"'
    assert found["pulsar_topic_load_failed_count"] == ("gauge", {labels: 4})
    assert found["pulsar_topic_load_rate_s"] == ("gauge", {labels: 1})
    assert found["pulsar_topic_load_time_mean_ms"][1][labels] >= 0
    assert found["pulsar_schema_put_ops_latency"][1]['_count{cluster="c",namespace="a/b"'] == 1
    assert found["pulsar_schema_get_ops_latency"][1] == {}, "no rows for a kind of work that never happened"
    assert found["pulsar_schema_incompatible_total"][1] == {'{cluster="c",namespace="a/b"': 2}
    assert found["pulsar_schema_compatible_total"][1] == {}
