"""OpenTelemetry's SDK as the broker uses it: a provider, its exporter over OTLP/HTTP, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from magnetar import __version__
from magnetar.broker.consumers.consumer import ConsumerSpec
from magnetar.broker.logs import adopt_library
from magnetar.broker.traces.sampling import Sampling
from magnetar.broker.traces.traced import TracedConsumer, TracedProducer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    from magnetar.broker.consumers.consumer import Consumer, Outbox
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.producer import ProducedTopic, Producer, ProducerRequest
    from magnetar.broker.topics.producer_ports import ProducerConnection
    from magnetar.broker.traces.spans import Spans
    from magnetar.protocol import pulsar_api_pb2 as pb
    from magnetar.protocol.topic_name import TopicName

_CLOSE_S: Final = 3.0
_MISSING: Final = "tracesEnabled: OpenTelemetry is not installed: pip install '/path/to/magnetar[otel]'"


class Traces:
    """The spans of a broker and their exporter. Raises: ValueError that names a missing package and its
    installation.
    """

    def __init__(self, settings: Settings, processor: SpanProcessor | None = None) -> None:
        """processor: replaces the processor that exports to the endpoint of the settings, for tests."""
        try:
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415 - an extra
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON  # noqa: PLC0415 - an extra

            from magnetar.broker.traces.spans import Spans  # noqa: PLC0415 - imports the extra
        except ImportError as e:
            raise ValueError(_MISSING) from e
        adopt_library("opentelemetry", "traces.exporter")
        # The environment overrides the resource (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES).
        named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: "magnetar"}
        resource = Resource.create({**named, "service.version": __version__})
        self._provider: TracerProvider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or _exporting(settings.traces_endpoint))
        sampling = Sampling(settings.traces_sample_ratio, settings.traces_per_second, time.monotonic, random.random)
        self.spans: Spans = Spans(self._provider.get_tracer("magnetar", __version__), sampling)

    @property
    def sampling(self) -> Sampling:
        return self.spans.sampling

    def producer(
        self, connection: ProducerConnection, topic: ProducedTopic, request: ProducerRequest, now_ms: int
    ) -> Producer:
        """Make a producer, as `TopicContext.make_producer`."""
        return TracedProducer(self.spans, connection, topic, request, now_ms)

    def consumer(
        self, command: pb.CommandSubscribe, outbox: Outbox, topic_name: TopicName, metadata: Mapping[str, str]
    ) -> Consumer:
        """Make a consumer, as `ClientServices.make_consumer`."""
        return TracedConsumer(self.spans, outbox, ConsumerSpec.of(command, topic_name, metadata))

    async def close(self) -> None:
        """Export queued spans within seconds; drop spans that a collector does not take in that time.

        The export runs on a daemon thread, because the SDK waits half a minute for a collector that does not answer.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed: it did not wait for this
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=shut_down, name="traces.close", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _CLOSE_S)


def _exporting(endpoint: str) -> SpanProcessor:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra
    except ImportError as e:
        raise ValueError(_MISSING) from e
    return BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint or None))
