"""Each metric family of the page has a HELP line, and each text is of a family."""

import re

import pytest

from magnetar.broker.clustering.balancing import BalancingFigures
from magnetar.broker.foreign_entries.converter_figures import ConverterFigures, ConvertingFigures
from magnetar.broker.foreign_entries.counters import ConverterCounters
from magnetar.broker.meters.operation_meter import OperationMeter, SchemaMeters
from magnetar.broker.prometheus.exposition import BrokerMetrics
from magnetar.broker.prometheus.help_texts import _TEXTS, help_line, help_text
from magnetar.broker.prometheus.operation_rows import OperationFigures
from magnetar.broker.prometheus.resource_rows import ResourceFigures
from magnetar.broker.settings import Settings
from magnetar.converters.cache import CacheStats
from magnetar.delayed.index_stats import DelayIndexStats, IndexCounters
from magnetar.protocol.topic_name import TopicName
from tests.broker.prometheus.test_exposition import rendered, topic
from tests.broker.prometheus.test_resource_rows import engine
from tests.twins.fields import defaults


def full_page():
    """A page with every family that there is."""
    name = TopicName.parse("persistent://public/default/t")
    converting = ConvertingFigures(
        (ConverterFigures(name, "kafka", ConverterCounters()),), {name: 0}, {name: 0}, defaults(CacheStats)
    )
    schemas = {"public/default": SchemaMeters()}
    broker = BrokerMetrics(
        operations=OperationFigures("127.0.0.1:8080", OperationMeter(), 0, OperationMeter(), schemas),
        publish_latency_quantiles_ms={0.5: 1.0},
        authentication_successes={("TokenProvider", "token"): 1},
        authentication_failures={("TokenProvider", "EXPIRED"): 1},
        resources=ResourceFigures(engine=engine(), balancing=BalancingFigures(), certificate_ends_s=1.0),
        converting=converting,
    )
    settings = Settings(
        expose_consumer_level_metrics_in_prometheus=True, expose_producer_level_metrics_in_prometheus=True
    )
    index = DelayIndexStats(operations=IndexCounters().operations())
    return rendered([topic(delayed_index=index)], settings, broker)


@pytest.fixture(scope="module")
def page():
    return full_page()


def families(page):
    return {
        line.split()[2]
        for line in page.splitlines()
        if line.startswith("# TYPE") and not re.search(" (process|python)_", line)
    }


def test_every_family_has_help_in_front_of_its_type(page):
    lines = page.splitlines()
    for name in families(page):
        at = next(i for i, line in enumerate(lines) if line.startswith(f"# TYPE {name} "))
        assert lines[at - 1].startswith(f"# HELP {name} "), name


def test_every_text_is_of_a_family_on_the_page(page):
    assert set(_TEXTS) <= families(page)


def test_buckets_name_their_bounds():
    assert help_text("pulsar_entry_size_le_2_kb").endswith(
        "up to 2 kb and above the bound before: size of stored entries"
    )
    assert " up to 0.5 ms " in help_text("pulsar_storage_write_latency_le_0_5")
    assert help_text("pulsar_storage_write_latency_sum").endswith("receipt, in us")
    assert "above the largest bound" in help_text("pulsar_entry_size_le_overflow")
    assert help_line("no_such_metric") == ""
