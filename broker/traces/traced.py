"""Producers and consumers that record spans: per burst of a producer, and per turn of a consumer."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.topics.producer import Producer
from magnetar.broker.traces.bursts import LEAST_PART_BYTES, SEARCHED_BYTES, Burst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.consumers.consumer import ConsumerSpec, Outbox
    from magnetar.broker.topics.producer import ProducedTopic, ProducerRequest
    from magnetar.broker.topics.producer_ports import ProducerConnection
    from magnetar.broker.traces.sampling import Parents
    from magnetar.broker.traces.spans import Spans
    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.managed.managed_ledger import AppendResult
    from magnetar.storage.slab import Slab, Span


class TracedProducer(Producer):
    """A `Producer` that records spans. The broker makes it instead of a `Producer` only where traces are on, so that a
    broker without traces has no cost.
    """

    def __init__(
        self,
        spans: Spans,
        connection: ProducerConnection,
        topic: ProducedTopic,
        request: ProducerRequest,
        now_ms: int,
    ) -> None:
        super().__init__(connection, topic, request, now_ms)
        self._spans = spans
        self._begun: deque[tuple[int, Parents]] = deque()
        """Of each append under way: its begin in nanoseconds since 1970, and the parents of its spans."""

    def _append(self, run: EntryRun) -> None:
        self._begun.append((time.time_ns(), self._spans.sampling.parents(run.data, 0, len(run.data))))
        super()._append(run)

    def _appended(self, result: AppendResult) -> None:
        super()._appended(result)
        begun_ns, parents = self._begun.popleft()
        if parents:
            run = result.run
            ledger_id, entry_id = result.pieces[0][:2] if result.pieces else (-1, -1)
            burst = Burst(str(self.topic.name), self.name, begun_ns, run.total_messages, run.size_bytes)
            burst.first = (ledger_id, entry_id)
            self._spans.published(parents, burst, result.error)


class TracedConsumer(Consumer):
    """A `Consumer` that records spans. The broker makes it instead of a `Consumer` where traces are on.

    A turn has one burst, whatever the number of reads. Each part of the turn is searched for contexts within the bounds
    of a burst; the first part decides whether a burst without contexts is traced.
    """

    def __init__(self, spans: Spans, outbox: Outbox, spec: ConsumerSpec) -> None:
        super().__init__(outbox, spec)
        self._spans = spans
        self._burst: Burst | None = None
        self._parents: Parents = ()
        self._unsearched_bytes = 0

    def push(self, span: Span, messages: int, counts: Sequence[int] | None = None) -> int:
        self._noted(span.slab, span.start, span.end, messages)
        return super().push(span, messages, counts)

    def push_picked(self, slab: Slab, picks: bytes) -> int:
        for index in memoryview(picks).cast("q"):  # the entries between them go to other consumers
            self._noted(slab, index, index + 1, 1)
        return super().push_picked(slab, picks)

    def push_partial(self, slab: Slab, i: int, messages: int, ack_set: Sequence[int], count: int) -> int:
        self._noted(slab, i, i + 1, messages)
        return super().push_partial(slab, i, messages, ack_set, count)

    def _noted(self, slab: Slab, i: int, j: int, messages: int) -> None:
        burst, sampling = self._burst, self._spans.sampling
        if burst is None:
            burst = self._burst = Burst("", self.name, time.time_ns(), 0, 0, (slab.ledger_id, slab.first_entry_id + i))
            start, end = slab.offset_view[i], slab.offset_view[j]
            self._parents = sampling.parents(slab.data, start, end)
            self._unsearched_bytes = SEARCHED_BYTES - max(end - start, LEAST_PART_BYTES)
        elif self._unsearched_bytes > 0:
            start, end = slab.offset_view[i], slab.offset_view[j]
            self._parents = sampling.with_more(
                self._parents, slab.data, start, min(end, start + self._unsearched_bytes)
            )
            self._unsearched_bytes -= max(end - start, LEAST_PART_BYTES)
        burst.messages += messages

    def flush(self, now_ms: int) -> None:
        burst, self._burst = self._burst, None
        if burst is not None:
            burst.size_bytes = self.queued_bytes
        super().flush(now_ms)
        if burst is not None and self._parents:
            burst.topic = str(self.topic_name)
            self._spans.delivered(self._parents, burst, self.spec.subscription_name)
