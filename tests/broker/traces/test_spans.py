"""The spans of a burst, with OpenTelemetry's own SDK and its exporter into memory."""

import logging
import sys

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from magnetar.broker.settings import Settings
from magnetar.broker.traces.bursts import Burst, TraceContext
from magnetar.broker.traces.exporting import Traces
from magnetar.storage.errors import StorageFailedError

TOPIC = "persistent://public/default/orders"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter):
    return Traces(Settings(traces_enabled=True), SimpleSpanProcessor(exporter)).spans


def test_a_publish_of_messages_of_two_traces(spans, exporter):
    burst = Burst(TOPIC, "standalone-0-1", 1_700_000_000_000_000_000, 3, 280, (4, 17))
    spans.published((TraceContext(0xABC, 0xDEF), TraceContext(0x123, 0x456)), burst, None)
    one, two = exporter.get_finished_spans()
    assert [(s.context.trace_id, s.parent.span_id, s.parent.is_remote) for s in (one, two)] == [
        (0xABC, 0xDEF, True),
        (0x123, 0x456, True),
    ]
    assert (one.name, one.kind, one.start_time) == (f"publish {TOPIC}", SpanKind.SERVER, burst.begun_ns)
    assert one.end_time > one.start_time
    assert one.status.status_code is StatusCode.UNSET
    assert dict(one.attributes) == {
        "messaging.system": "pulsar",
        "messaging.operation.name": "publish",
        "messaging.destination.name": TOPIC,
        "messaging.client.id": "standalone-0-1",
        "messaging.batch.message_count": 3,
        "magnetar.batch.size_bytes": 280,
        "messaging.message.id": "4:17",
    }
    assert one.resource.attributes["service.name"] == "magnetar"


def test_an_append_that_failed(spans, exporter):
    spans.published((None,), Burst(TOPIC, "p", 1, 1, 90), StorageFailedError("the disk failed"))
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "the disk failed")
    assert span.attributes["error.type"] == "StorageFailedError"
    assert "messaging.message.id" not in span.attributes


def test_a_delivery_names_the_subscription(spans, exporter):
    spans.delivered((TraceContext(1, 2),), Burst(TOPIC, "c", 1, 5, 900, (4, 17)), "billing")
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == (f"deliver {TOPIC}", SpanKind.INTERNAL)
    assert span.attributes["messaging.destination.subscription.name"] == "billing"


def test_the_service_has_the_name_that_the_environment_gives(monkeypatch, exporter):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mq-west")
    spans = Traces(Settings(traces_enabled=True), SimpleSpanProcessor(exporter)).spans
    spans.delivered((None,), Burst(TOPIC, "c", 1, 5, 900), "billing")
    assert exporter.get_finished_spans()[0].resource.attributes["service.name"] == "mq-west"


def test_without_the_extra_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ValueError, match=r"tracesEnabled: .* pip install '/path/to/magnetar\[otel\]'"):
        Traces(Settings(traces_enabled=True))


def test_the_sdk_speaks_in_the_log_of_the_broker(spans, capsys):
    del spans
    logging.getLogger("opentelemetry.sdk").warning("Queue full, dropping %s.", "Span")
    assert "Queue full, dropping Span." in capsys.readouterr().out
