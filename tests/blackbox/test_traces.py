"""Spans of a broker process at a receiver of OTLP over HTTP, in place of a collector."""

import contextlib
import gzip
import http.server
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import pulsar
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.blackbox.clients import quiet_client

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/monitoring.md"
TOPIC = "persistent://public/default/orders"
FIRST, SECOND, UNSAMPLED = (f"00-{n:032x}-{n + 100:016x}-{flags}" for n, flags in ((1, "01"), (2, "01"), (3, "00")))


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps the spans that are exported to it."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Exported)
        self.spans = []
        self.arrived = threading.Condition()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def wait_for(self, count):
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.spans) >= count, 40), self.spans
            return list(self.spans)


class Exported(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        with self.server.arrived:
            self.server.spans += [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
            self.server.arrived.notify_all()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("topic", "batching", "kind"),
    [
        pytest.param(TOPIC, True, pulsar.ConsumerType.Exclusive, id="a-batch"),
        pytest.param(TOPIC, False, pulsar.ConsumerType.KeyShared, id="key-shared"),
        pytest.param(f"non-{TOPIC}", False, pulsar.ConsumerType.Exclusive, id="non-persistent"),
    ],
)
def test_each_trace_of_the_messages_has_its_publish_and_its_delivery(new_broker, receiver, batching, topic, kind):
    broker = new_broker(tracesEnabled="true", tracesEndpoint=receiver.endpoint)
    with contextlib.closing(quiet_client(broker.url)) as client:
        consumer = client.subscribe(topic, "billing", kind)
        producer = client.create_producer(topic, batching_enabled=batching)
        for context in (FIRST, SECOND, UNSAMPLED):
            producer.send_async(b"order", None, properties={"traceparent": context}, partition_key="k")
        producer.flush()
        for _ in range(3):
            consumer.acknowledge(consumer.receive(20_000))
    assert broker.stop() == 0  # exports queued spans
    spans = receiver.wait_for(4)
    assert sorted((s.name, int.from_bytes(s.trace_id), int.from_bytes(s.parent_span_id)) for s in spans) == sorted(
        (f"{operation} {topic}", n, n + 100) for operation in ("publish", "deliver") for n in (1, 2)
    )
    times = {(s.name.split()[0], s.trace_id): s for s in spans}
    for n in (1, 2):
        published, delivered = (times[operation, n.to_bytes(16)] for operation in ("publish", "deliver"))
        assert published.start_time_unix_nano <= delivered.end_time_unix_nano


def test_a_collector_that_is_not_there_holds_nothing_up(new_broker):
    broker = new_broker(tracesEnabled="true", tracesEndpoint="http://127.0.0.1:9/v1/traces")
    with contextlib.closing(quiet_client(broker.url)) as client:
        producer = client.create_producer(TOPIC)
        for _ in range(20):
            producer.send(b"order", properties={"traceparent": FIRST})
    begun = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() - begun < 25, "the SDK's own end waits for half a minute"


def test_bursts_without_a_context_are_sampled_by_ratio(new_broker, receiver):
    broker = new_broker(tracesEnabled="true", tracesEndpoint=receiver.endpoint, tracesSampleRatio="1")
    with contextlib.closing(quiet_client(broker.url)) as client:
        client.create_producer(TOPIC).send(b"order")
    assert broker.stop() == 0
    (span,) = receiver.wait_for(1)
    assert span.parent_span_id == b""


def test_the_program_of_the_monitoring_page(receiver):
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    env = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint.removesuffix("/v1/traces")}
    subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, timeout=60, check=True)
    (span,) = receiver.wait_for(1)
    assert span.name == f"publish {TOPIC}"
    assert len(span.parent_span_id) == 8


def test_a_broker_without_traces_loads_nothing_of_them():
    code = (
        "import sys, magnetar.broker.running, magnetar.broker.admin.admin_server; "
        "print([m for m in sys.modules if 'opentelemetry' in m or 'broker.traces' in m])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
