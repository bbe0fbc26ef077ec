"""Appends runs to the log of a persistent topic, and handles failed appends."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

import structlog

from magnetar.broker.meters.distributions import TopicMeters
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.topics.life import TopicState
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.storage.empty_queue import NO_ITEMS
from magnetar.storage.errors import ManagedLedgerFencedError
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.topics.context import TopicContext
    from magnetar.broker.topics.deduplication_cursor import TopicDeduplication
    from magnetar.broker.topics.delay_indexes import DelayIndex
    from magnetar.broker.topics.life import TopicLife
    from magnetar.broker.topics.producer_ports import AnsweredProducer
    from magnetar.broker.topics.publish_policy import PublishPolicy
    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.errors import StorageError
    from magnetar.storage.managed.append_result import AppendPiece, AppendResult, RunNotice
    from magnetar.storage.managed.log_counters import LogCounters

log = structlog.get_logger(__name__)


class AppendedLog(Protocol):
    """A log to which a topic appends runs."""

    @property
    def terminated(self) -> bool: ...
    @property
    def counters(self) -> LogCounters: ...
    def append(self, run: EntryRun, done: Callable[[AppendResult], None], notice: RunNotice | None = None) -> None: ...
    def ready_to_create_new_ledger(self) -> None: ...


class TopicPublishing:
    """The appends of one topic; they end in the order in which they began.

    delay_index: gets the delayed entries that are on the disk; None until the topic is open.
    """

    receipt_step = 1
    """The ids of consecutive entries of a run differ by 1."""

    def __init__(
        self,
        ledger: AppendedLog,
        life: TopicLife,
        policy: PublishPolicy,
        deduplication: TopicDeduplication,
        context: TopicContext,
    ) -> None:
        self.policy = policy
        self.deduplication = deduplication
        self.delay_index: DelayIndex | None = None
        self.rate_in = RateMeter()
        self.meters = TopicMeters(context.publish_latency)
        self.last_publish_ms = 0
        self._ledger = ledger
        self._life = life
        self._now_ms, self._monotonic = context.now_ms, context.monotonic
        self._taken_over = context.taken_over
        self._begun: deque[float] = NO_ITEMS
        """The time when each append under way began, by the monotonic clock; appends end in this order."""
        self._drained: list[asyncio.Future[None]] = []
        self._on_failure: Callable[[], object] = _nothing

    def on_failure(self, callback: Callable[[], object]) -> None:
        """Set the function to call when a failed append has fenced the topic."""
        self._on_failure = callback

    def close(self) -> None:
        """Forget the function of `on_failure`: a closed topic leaves no cycle to the garbage collector."""
        self._on_failure = _nothing

    def takes(self, producer: AnsweredProducer, run: EntryRun) -> bool:
        """Whether the topic takes publishes now; if the topic is fenced, each SEND of the run gets a SEND_ERROR.

        A terminated or closing topic sends no SEND_ERROR here: CLOSE_PRODUCER, perhaps sent later, reports the end or
        the close, and the answer to the next PRODUCER has the reason. A SEND_ERROR before CLOSE_PRODUCER would make the
        Go client forget the producer and leave its pending messages to time out.
        """
        state = self._life.state
        if state is TopicState.OPEN and not self._ledger.terminated:
            return True
        if state is TopicState.FENCED and not self._ledger.terminated:
            text = "topic does not take publishes now"
            for i in range(run.count):
                producer.answer(replies.send_error(producer.producer_id, run.high(i), pb.PersistenceError, text))
        return False

    def append(self, run: EntryRun, done: Callable[[AppendResult], None], notice: RunNotice | None = None) -> None:
        if self._begun is NO_ITEMS:
            self._begun = deque()
        self._begun.append(self._monotonic())
        self._ledger.append(run, done, notice)

    def stored(self, producer: AnsweredProducer, run: EntryRun, count: int, pieces: list[AppendPiece]) -> None:
        """Update figures, deduplication and the delay index after `count` entries of a run reached the disk."""
        seconds = self._monotonic() - self._begun.popleft()
        if not self._begun:
            self._begun = NO_ITEMS
            if self._drained:
                self._tell_drained()
        self.meters.stored(run.count, run.size_bytes, seconds)
        self.rate_in.add(run.total_messages, run.size_bytes)
        self.last_publish_ms = self._now_ms()
        ledger_id, first_entry_id, i, j = pieces[-1]
        if self.deduplication.counts:
            self.deduplication.stored(producer.name, run, count, Position(ledger_id, first_entry_id + j - i - 1))
        if run.deliver_at is not None and self.delay_index is not None:
            self.delay_index.published(run, pieces)

    def append_failed(self, producer: AnsweredProducer, run: EntryRun, stored: int, error: StorageError) -> None:
        """Fence the topic after a failed append, and answer the first entry that was not stored with an error.

        Clients then send all messages without receipt again, in order. A terminated or closing topic answers nothing.
        """
        if not stored:
            self._begun.popleft()
            self._begun = self._begun or NO_ITEMS
            self._tell_drained()
        if self._ledger.terminated or self._life.state is TopicState.CLOSING:
            return  # the producer gets CLOSE_PRODUCER as the answer
        answer = replies.send_error(producer.producer_id, run.high(stored), pb.PersistenceError, str(error))
        producer.answer_append(answer)
        if self._life.state is TopicState.OPEN:
            self._life.state = TopicState.FENCED
            log.warning("topic.fenced", topic=str(self._life.name), reason=str(error))
            if isinstance(error, ManagedLedgerFencedError):
                self._taken_over(self._life.name)
            else:
                self._on_failure()

    async def unfence(self) -> None:
        """Take publishes again, once all publishes under way have ended."""
        await self.wait_drained()
        if self._life.state is not TopicState.FENCED:
            return
        self.deduplication.table.reset_pushed()
        self._ledger.ready_to_create_new_ledger()
        self._life.state = TopicState.OPEN
        log.info("topic.unfenced", topic=str(self._life.name))

    def _tell_drained(self) -> None:
        if not self._begun:
            waiters, self._drained = self._drained, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_drained(self) -> None:
        """Return when no append is under way."""
        while self._begun:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.append(waiter)
            await waiter


def _nothing() -> None:
    """Do nothing."""
