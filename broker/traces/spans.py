"""Spans of bursts. OpenTelemetry's SDK makes the spans when a burst has ended, and a thread of the SDK exports them in
batches.

A burst under way costs a timestamp and its parents; only sampled bursts call the SDK. The SDK's queue is bounded
(OTEL_BSP_MAX_QUEUE_SIZE): with a slow or absent collector the SDK drops spans, and the broker loses no messages.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

    from magnetar.broker.traces.bursts import Burst, TraceContext
    from magnetar.broker.traces.sampling import Parents, Sampling

_REMOTE: Final = TraceFlags(TraceFlags.SAMPLED)
_NO_CONTEXT: Final[Context] = {}  # type: ignore[assignment]


class Spans:
    """Records bursts as spans, with names and attributes by OpenTelemetry's conventions for messaging."""

    def __init__(self, tracer: Tracer, sampling: Sampling) -> None:
        self.sampling = sampling
        self._tracer = tracer

    def published(self, parents: Parents, burst: Burst, error: BaseException | None) -> None:
        """Record a published burst: its receipts have been written, or its append failed with `error`."""
        self._record("publish", SpanKind.SERVER, parents, burst, {}, error)

    def delivered(self, parents: Parents, burst: Burst, subscription: str) -> None:
        """Record a delivered burst: the connection of the consumer has got its entries."""
        further = {"messaging.destination.subscription.name": subscription}
        self._record("deliver", SpanKind.INTERNAL, parents, burst, further, None)

    def _record(
        self,
        operation: str,
        kind: SpanKind,
        parents: Parents,
        burst: Burst,
        further: dict[str, Any],
        error: BaseException | None,
    ) -> None:
        end_ns = time.time_ns()
        attributes = {
            "messaging.system": "pulsar",
            "messaging.operation.name": operation,
            "messaging.destination.name": burst.topic,
            "messaging.client.id": burst.client,
            "messaging.batch.message_count": burst.messages,
            "magnetar.batch.size_bytes": burst.size_bytes,
            **further,
        }
        if burst.first != (-1, -1):
            attributes["messaging.message.id"] = f"{burst.first[0]}:{burst.first[1]}"
        if error is not None:
            attributes["error.type"] = type(error).__name__
        for parent in parents:
            span = self._tracer.start_span(
                f"{operation} {burst.topic}",
                context=_NO_CONTEXT if parent is None else _within(parent),
                kind=kind,
                attributes=attributes,
                start_time=burst.begun_ns,
                record_exception=False,
            )
            if error is not None:
                span.set_status(Status(StatusCode.ERROR, str(error)))
            span.end(end_ns)


def _within(parent: TraceContext) -> Context:
    return set_span_in_context(
        NonRecordingSpan(SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=_REMOTE)),
        _NO_CONTEXT,
    )
