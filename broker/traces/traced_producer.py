"""A producer whose bursts become spans: from the SENDs of one socket read to their receipts."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from magnetar.broker.topics.producer import Producer
from magnetar.broker.traces.burst import Burst

if TYPE_CHECKING:
    from magnetar.broker.topics.producer import ProducedTopic, ProducerRequest
    from magnetar.broker.topics.producer_ports import ProducerConnection
    from magnetar.broker.traces.sampling import Parents
    from magnetar.broker.traces.spans import Spans
    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.managed.managed_ledger import AppendResult


class TracedProducer(Producer):
    """As `Producer`; made in its place where traces are on, so that a broker without them pays nothing."""

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
        """Of each append under way: when it began, ns since 1970, and the parents of its spans."""

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
