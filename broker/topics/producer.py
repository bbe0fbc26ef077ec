"""A producer in the broker: checks its SENDs, passes runs to its topic, answers in order.

Answers leave in the order of the SENDs. An answer without an append (to a duplicate or a refused entry) waits for the
appends that were under way when its SEND came: a client compares each receipt with the head of its queue and ignores a
receipt that comes too early.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.topics.deduplication import Verdict
from magnetar.broker.topics.publish_policy import UNCOUNTED
from magnetar.protocol import replies, speed
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    import asyncio

    from magnetar.broker.topics.producer_ports import ProducerConnection, Publishing
    from magnetar.broker.topics.topic_stats import ProducerStats
    from magnetar.protocol.runs import EntryRun
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import EarlyAnswer, NextMessage
    from magnetar.storage.managed.append_result import AppendPiece, AppendResult

_NO_ID = -1
_MANY_RECEIPTS = 64
"""So many receipts go out at once, before the books of their run; fewer share a system call with all other bytes that
the turn writes on the connection.
"""


@dataclass(slots=True)
class ProducerRequest:
    """The request of CommandProducer, checked, with plain values."""

    producer_id: int
    name: str
    user_provided_name: bool
    epoch: int
    access_mode: int
    topic_epoch: int | None
    encrypted: bool
    metadata: dict[str, str] = field(default_factory=dict)
    schema_version: bytes = b""
    kept_bytes: int = 0


class ProducedTopic(Protocol):
    """The part of a topic that a producer needs."""

    @property
    def name(self) -> TopicName: ...
    @property
    def publishing(self) -> Publishing: ...
    def remove_producer(self, producer: Producer) -> None: ...


class Producer:
    """One producer that is attached to a topic."""

    held_entries = 0
    """Entries that go back to a topic when the producer leaves: none."""

    def __init__(
        self, connection: ProducerConnection, topic: ProducedTopic, request: ProducerRequest, now_ms: int
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.publishing = topic.publishing
        self.producer_id = request.producer_id
        self.name = request.name
        self.user_provided_name = request.user_provided_name
        self.epoch = request.epoch
        self.access_mode = request.access_mode
        self.requested_topic_epoch = request.topic_epoch
        self.topic_epoch: int | None = None
        self.encrypted = request.encrypted
        self.metadata = request.metadata
        self.schema_version = request.schema_version
        self.kept_bytes = request.kept_bytes
        """Memory of the texts of its command (`limits.kept_bytes`)."""
        self.connected_since_ms = now_ms
        self.closed = False
        self.closing = False
        self.rate_in = RateMeter()
        self.chunk_rate = RateMeter()
        self._submitted_runs = 0
        self._completed_runs = 0
        self._answered: EntryRun | None = None
        """The oldest run under way, if its receipts are written."""
        self._parked: deque[tuple[int, bytes]] = deque()
        self._drained: list[asyncio.Future[None]] = []

    # --- publishing ----------------------------------------------------------------------------------------------

    def publish(self, run: EntryRun, start: int = 0) -> int:
        """Take the SENDs of a run from `start` on, as many as the publish rate lets pass; return their end. The
        producer writes the receipts when they are on the disk.
        """
        end = run.count
        if self.closed:
            return end  # closed by the broker: the client got CLOSE_PRODUCER and sends again elsewhere
        policy = self.publishing.policy
        throttle = policy.throttle
        if throttle is not None:
            end = throttle.last_of(run, start, end)
        part = run if end - start == run.count else run.slice(start, end)
        if throttle is not None:
            throttle.published(self.connection, *policy.counted(part))
        self._take(part)
        return end

    def _take(self, run: EntryRun) -> None:
        if self.closing:
            for i in range(run.count):
                code, text = wire_refusals.PRODUCER_CLOSED.answer()
                answer = replies.send_error(self.producer_id, run.high(i), code, text)
                self.connection.loop.call_soon(self.connection.write, answer)  # behind answers that are due before
            return
        publishing = self.publishing
        if not publishing.takes(self, run):
            return
        policy = publishing.policy
        if run.any_flags & policy.looked_at or run.size_bytes > policy.max_message_bytes or policy.encryption_required:
            for part, refusal in policy.examined(run):
                if refusal is None:
                    self._deduplicated(part)
                else:
                    if refusal not in UNCOUNTED:
                        publishing.rate_in.add(part.total_messages, part.size_bytes)
                    for i in range(part.count):
                        self.answer(replies.send_error(self.producer_id, part.high(i), *refusal))
            return
        if publishing.deduplication.enabled:
            self._deduplicated(run)
        else:
            self._append(run)

    def _deduplicated(self, run: EntryRun) -> None:
        deduplication = self.publishing.deduplication
        if not deduplication.enabled:
            self._append(run)
            return
        for start, end, verdict in deduplication.judge(self.name, run):
            part = run if end - start == run.count else run.slice(start, end)
            if verdict is Verdict.NEW:
                self._append(part)
            elif verdict is Verdict.DUPLICATE:
                self.publishing.rate_in.add(part.total_messages, part.size_bytes)  # the rate counts duplicates
                self.answer(
                    speed.encode_receipts(
                        self.producer_id, part.sequence_ids, part.highest_sequence_ids, 0, part.count, _NO_ID, _NO_ID, 0
                    )
                )
            else:
                code, text = wire_refusals.DUPLICATE_UNDECIDED.answer(topic=self.topic.name, producer=self.name)
                for i in range(part.count):
                    self.answer(replies.send_error(self.producer_id, part.high(i), code, text))

    def _append(self, run: EntryRun) -> None:
        self._submitted_runs += 1
        self.publishing.append(run, self._appended, self._notice)
        self.connection.gate.started(run.count, run.size_bytes)  # behind the append, whose frame may have begun

    def spend(self, commands: int) -> None:
        """Count the work of so many commands for the connection."""
        self.connection.spend(commands)

    def answer(self, data: bytes) -> None:
        """Write an answer after the receipts of all earlier SENDs. An answer that waits counts as a publish in flight:
        else a client that sends refused entries behind an append fills the memory until the end of the append.
        """
        if self._submitted_runs == self._completed_runs:
            self.connection.write(data)
        else:
            self._parked.append((self._submitted_runs, data))
            self.connection.gate.started(1, len(data))

    def answer_append(self, data: bytes) -> None:
        """Write the answer to the append that has just ended: before the answers to later SENDs, which wait."""
        self.connection.write(data)

    def _notice(self, run: EntryRun, piece: AppendPiece) -> EarlyAnswer:
        """Encode the receipts of the oldest run under way; the function that is returned writes them."""
        ledger_id, first_entry_id, i, j = piece
        step = self.publishing.receipt_step
        receipts = speed.encode_receipts(
            self.producer_id, run.sequence_ids, run.highest_sequence_ids, i, j, ledger_id, first_entry_id, step
        )
        return partial(self._answer_now, run, receipts)

    def _answer_now(self, run: EntryRun, receipts: bytes) -> NextMessage | None:
        """Write the receipts of the oldest run under way before the books of the run are kept: meanwhile the client
        goes on. Return the function that takes the client's next message; None with deduplication, whose verdict on
        that message needs the books.
        """
        self._answered = run
        connection = self.connection
        if not connection.output.write_now(receipts):
            connection.write(receipts)
        return None if self.publishing.deduplication.enabled else connection.early_read

    def _appended(self, result: AppendResult) -> None:
        """Write the receipts or the error of a run whose append has ended; called in the order of the appends."""
        run = result.run
        self._completed_runs += 1
        self.connection.gate.finished(run.count, run.size_bytes)
        step = self.publishing.receipt_step
        for ledger_id, first_entry_id, i, j in () if self._answered is run else result.pieces:
            receipts = speed.encode_receipts(
                self.producer_id, run.sequence_ids, run.highest_sequence_ids, i, j, ledger_id, first_entry_id, step
            )
            if j - i < _MANY_RECEIPTS or not self.connection.output.write_now(receipts):
                self.connection.write(receipts)
        self._answered = None
        stored = run.count if result.error is None else sum(j - i for _, _, i, j in result.pieces)
        if stored:
            self.rate_in.add(run.total_messages, run.size_bytes)
            if run.any_flags & EntryFlag.CHUNK:
                self.chunk_rate.add(run.count, 0)
            self.publishing.stored(self, run, stored, result.pieces)
        if result.error is not None:
            self.publishing.append_failed(self, run, stored, result.error)
        while self._parked and self._parked[0][0] <= self._completed_runs:
            _, answer = self._parked.popleft()
            self.connection.write(answer)
            self.connection.gate.finished(1, len(answer))
        if self._drained and self._submitted_runs == self._completed_runs:
            waiters, self._drained = self._drained, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_drained(self) -> None:
        """Return when every run handed over so far has completed."""
        if self._submitted_runs != self._completed_runs:
            waiter = self.connection.loop.create_future()
            self._drained.append(waiter)
            await waiter

    # --- its end -------------------------------------------------------------------------------------------------

    def connection_lost(self) -> None:
        """Leave the topic at once, because the connection is lost."""
        if not self.closed:
            self.closed = True
            self.topic.remove_producer(self)

    async def close(self) -> None:
        """Close on the client's request, after the receipts of all its SENDs."""
        self.closing = True
        await self.wait_drained()
        if not self.closed:
            self.closed = True
            self.topic.remove_producer(self)
        self._forget(recently=False)

    def close_from_broker(self) -> None:
        """Close on the broker's behalf: send CLOSE_PRODUCER and ignore later SENDs of this producer for a while."""
        if self.closed:
            return
        self.closed = True
        self.topic.remove_producer(self)
        self._forget(recently=True)
        self.connection.close_notice(replies.close_producer(self.producer_id), since_version=5)

    def displace(self) -> None:
        """Remove this producer in favour of a fencing producer. The client gets no notice; its next SEND closes its
        connection.
        """
        if not self.closed:
            self.closed = True
            self.topic.remove_producer(self)
            self._forget(recently=False)

    def _forget(self, *, recently: bool) -> None:
        connection = self.connection
        if connection.producers.get(self.producer_id) is self:
            del connection.producers[self.producer_id]
            if recently:
                connection.recently_closed_producers[self.producer_id] = connection.loop.time()

    # --- facts ---------------------------------------------------------------------------------------------------

    def is_successor_of(self, old: Producer) -> bool:
        """Whether this is the client producer of `old`, opened again on the same connection with a higher epoch."""
        return old.connection is self.connection and old.producer_id == self.producer_id and self.epoch > old.epoch

    def stats(self) -> ProducerStats:
        from magnetar.broker.topics.topic_stats import ProducerStats  # noqa: PLC0415 - not at the start

        rate = self.rate_in.rates()
        return ProducerStats(
            producer_id=self.producer_id,
            producer_name=self.name,
            access_mode=self.access_mode,
            address=self.connection.address,
            client_version=self.connection.client_version,
            connected_since_ms=self.connected_since_ms,
            metadata=self.metadata,
            msg_rate_in=rate.messages_per_second,
            msg_throughput_in=rate.bytes_per_second,
            average_msg_size=rate.average_size,
            chunked_message_rate=self.chunk_rate.rates().messages_per_second,
        )
