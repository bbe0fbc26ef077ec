"""Metrics of client memory, the ledger store and the processor."""

from magnetar.broker.prometheus.resource_rows import FULL_SOURCES, ResourceFigures, resource_metrics
from magnetar.storage.embedded.engine_stats import EngineStats, HistogramStats
from magnetar.storage.entry_cache import CacheStats
from tests.twins.fields import defaults

CLUSTER = 'cluster="c"'


def engine(**values):
    return defaults(
        EngineStats,
        cache=defaults(CacheStats),
        journal_sync=HistogramStats((0.001, 0.01), (3, 1, 2), 0.5),
        checkpoint_duration=HistogramStats((0.001,), (0, 0), 0.0),
        **{"state": "running", "full_sources": (), "disk_used_part": 0.25} | values,
    )


def rows(figures):
    return {name: (kind, dict(samples)) for name, kind, samples in resource_metrics(figures, CLUSTER)}


def test_without_an_open_store_only_memory_connections_and_load_are_shown():
    found = rows(ResourceFigures(client_memory_used_bytes=50, client_memory_limit_bytes=200, broker_id="b:1"))
    assert found["magnetar_client_memory_used_bytes"] == ("gauge", {CLUSTER: 50})
    load = 'cluster="c",broker="b:1",metric="loadBalancing"'
    assert found["pulsar_lb_directMemory_usage"] == ("gauge", {load: 25.0})
    assert not any(name.startswith(("magnetar_storage", "magnetar_journal")) for name in found)


def test_a_full_disk_is_a_sample_by_source_and_stops_writable():
    found = rows(ResourceFigures(engine=engine(state="full", full_sources=("write-behind",))))
    assert found["magnetar_storage_writable"] == ("gauge", {CLUSTER: 0})
    full = found["magnetar_storage_full"][1]
    assert full == {f'{CLUSTER},source="{s}"': float(s == "write-behind") for s in sorted(FULL_SOURCES)}
    assert found["magnetar_storage_disk_used_ratio"][1] == {CLUSTER: 0.25}


def test_the_sync_histogram_is_cumulative():
    kind, samples = rows(ResourceFigures(engine=engine()))["magnetar_journal_sync_seconds"]
    assert kind == "histogram"
    assert samples == {
        '_bucket{cluster="c",le="0.001"': 3,
        '_bucket{cluster="c",le="0.01"': 4,
        '_bucket{cluster="c",le="+Inf"': 6,
        '_sum{cluster="c"': 0.5,
        '_count{cluster="c"': 6,
    }


def test_the_end_of_a_certificate_is_a_sample_with_tls_alone():
    name = "magnetar_tls_certificate_end_seconds"
    assert rows(ResourceFigures(certificate_ends_s=1.9e9))[name] == ("gauge", {CLUSTER: 1.9e9})
    assert name not in rows(ResourceFigures())
