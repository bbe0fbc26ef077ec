"""A consumer that records spans: one burst for each turn, whatever the number of reads."""

import array

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from magnetar.broker.consumers.consumer import ConsumerSpec
from magnetar.broker.settings import Settings
from magnetar.broker.traces.bursts import LEAST_PART_BYTES, MOST_TRACES, SEARCHED_BYTES
from magnetar.broker.traces.exporting import Traces
from magnetar.broker.traces.traced import TracedConsumer
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from tests.broker.dispatch_fakes import FakeConnection, slab_of
from tests.broker.traces.test_bursts import single


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def consumer(exporter):
    spans = Traces(Settings(traces_enabled=True, traces_per_second=1000), SimpleSpanProcessor(exporter)).spans
    topic = TopicName.parse("persistent://public/default/orders")
    return TracedConsumer(spans, FakeConnection(), ConsumerSpec(1, topic, "billing", pb.CommandSubscribe.Shared, "c"))


def entry_of(trace_id, payload=b"payload"):
    return single((trace_id, trace_id + 100, 1), payload=payload)


def delivered(exporter):
    found = sorted(
        (span.context.trace_id, span.attributes["messaging.message.id"]) for span in exporter.get_finished_spans()
    )
    exporter.clear()
    return found


def test_every_read_of_a_turn_is_searched_for_traces(consumer, exporter):
    for entry_id in range(3):
        consumer.push(slab_of(4, entry_id, [entry_of(entry_id + 1)]).slice(0, 1), 1)
    consumer.push(slab_of(4, 3, [entry_of(1)]).slice(0, 1), 1)
    consumer.flush(0)
    assert delivered(exporter) == [(1, "4:0"), (2, "4:0"), (3, "4:0")]
    assert consumer.topic_name.local_name == "orders"
    consumer.push(slab_of(4, 4, [single()]).slice(0, 1), 1)
    consumer.flush(0)
    assert delivered(exporter) == []


def test_entries_of_other_consumers_give_no_spans(consumer, exporter):
    slab = slab_of(4, 0, [entry_of(number) for number in (1, 2, 3)])
    consumer.push_picked(slab, array.array("q", (0, 2)).tobytes())
    consumer.flush(0)
    assert delivered(exporter) == [(1, "4:0"), (3, "4:0")]


@pytest.mark.parametrize(
    ("parts", "payload"),
    [(SEARCHED_BYTES // LEAST_PART_BYTES, b""), (2, bytes(SEARCHED_BYTES // 2))],
    ids=["many parts", "large parts"],
)
def test_the_search_of_a_turn_has_the_bounds_of_a_burst(consumer, exporter, parts, payload):
    for entry_id in range(parts):
        consumer.push(slab_of(4, entry_id, [entry_of(1, payload)]).slice(0, 1), 1)
    consumer.push(slab_of(4, parts, [entry_of(2)]).slice(0, 1), 1)
    consumer.flush(0)
    assert delivered(exporter) == [(1, "4:0")]


def test_a_turn_has_the_traces_of_a_burst_at_most(consumer, exporter):
    for entry_id in range(MOST_TRACES + 1):
        consumer.push(slab_of(4, entry_id, [entry_of(entry_id + 1)]).slice(0, 1), 1)
    consumer.flush(0)
    assert len(delivered(exporter)) == MOST_TRACES
