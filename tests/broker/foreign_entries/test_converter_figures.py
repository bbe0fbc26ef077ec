from prometheus_client.parser import text_string_to_metric_families

from magnetar.broker.foreign_entries.converter_figures import ConvertingFigures, converter_metrics, gather
from magnetar.broker.prometheus.exposition import BrokerMetrics, render
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName
from tests.broker.dispatch_fakes import slab_of
from tests.broker.foreign_entries.converting_for_tests import World, foreign


def values(figures, **settings):
    text = "".join(render(Settings(**settings), BrokerMetrics(converting=figures), [], lambda _: None))
    return {
        (sample.name, tuple(sorted((k, v) for k, v in sample.labels.items() if k != "cluster"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("pulsar_message_converter")
    }


def worked():
    world = World()
    for name in ("t", "u"):
        topic = world.service.topic(TopicName.parse(f"persistent://public/default/{name}"), dict)
        slab = slab_of(ord(name), 0, [foreign(b"1"), foreign(b"2", messages=3)])
        for k, chosen in world.service.tools.candidates.of(slab.slice(0, 2)):
            topic.begin(slab, k, chosen)
        topic.note_bypass(2)
    return gather(world.service.topics, world.service.tools)


def test_figures_per_topic():
    found = values(worked())
    labels = (
        ("converter", "bytes"),
        ("namespace", "public/default"),
        ("topic", "persistent://public/default/t"),
    )
    prefix = "pulsar_message_converter_"
    assert found[prefix + "accepted_total", labels] == 2
    assert found[prefix + "converted_messages_total", labels] == 1
    assert found[prefix + "failures_total", tuple(sorted((*labels, ("reason", "exception"))))] == 1
    assert found[prefix + "failures_total", tuple(sorted((*labels, ("reason", "timeout"))))] == 0
    assert found[prefix + "latency_seconds_bucket", tuple(sorted((*labels, ("le", "+Inf"))))] == 2
    assert found[prefix + "latency_seconds_count", labels] == 2
    assert found[prefix + "raw_bypass_total", labels[1:]] == 2
    assert found[prefix + "parked", labels[1:]] == 0
    assert found[prefix + "breaker_open", labels] == 0
    assert found[prefix + "workers_busy", ()] == 0


def test_figures_per_namespace():
    found = values(worked(), expose_topic_level_metrics_in_prometheus=False)
    labels = (("converter", "bytes"), ("namespace", "public/default"))
    assert found["pulsar_message_converter_accepted_total", labels] == 4
    assert found["pulsar_message_converter_raw_bypass_total", labels[1:]] == 4


def test_without_converters_there_is_nothing_to_tell():
    assert values(None) == {}
    assert list(converter_metrics(None, "", str)) == []
    assert values(ConvertingFigures()) == {("pulsar_message_converter_workers_busy", ()): 0}
