"""The transformer of a subscription: its dispatcher calls it with each read (`dispatchers.ports.EntryTransformer`).

The transformer returns a read without foreign entries unchanged. Otherwise it settles the entries in order: at once
when the settling takes little time, else in steps between which it yields to the event loop. The topic's policy decides
the treatment of unconvertible entries.

    order of the subscription      while a worker converts an entry          an entry that failed, policy park
    none      (Shared)             the read waits up to PATIENCE_S, then     the entry is parked, others continue
                                   parks the entry
    by key    (Key_Shared)         the read waits, unless the entry failed   the entry holds back its key; with pass,
                                   before                                    no key
    total     (Exclusive, ...)     the read waits                            the entry holds back later entries; with
                                                                             pass, none
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog

from magnetar.broker.dispatchers.ports import Order, Parked, Transformed
from magnetar.broker.foreign_entries.batch import STORED, TAKEN_OUT, Batch, Item
from magnetar.broker.foreign_entries.candidates import stored_entry
from magnetar.broker.foreign_entries.dead_letters import Letter
from magnetar.broker.foreign_entries.failures import Failed
from magnetar.broker.foreign_entries.flights import Flight
from magnetar.broker.foreign_entries.frames import Declined
from magnetar.broker.foreign_entries.outcomes import Unavailable
from magnetar.broker.tasks import awaited
from magnetar.converters.outcome import Converted, FailurePolicy, FailureReason
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from magnetar.broker.foreign_entries.config import ConversionPolicy
    from magnetar.broker.foreign_entries.topic_books import TopicBooks
    from magnetar.storage.position import Position

log = structlog.get_logger(__name__)

SLICE_S: Final = 0.001
"""The time that a read may convert entries on the event loop before other work has its turn."""
PATIENCE_S: Final = 0.05
"""Longest wait of a read of a Shared subscription for worker processes; unfinished entries are parked."""
MAX_PARKED: Final = 10_000
"""A Shared subscription with so many parked entries waits _SLOW_DOWN_S after each read that parks more."""
_SLOW_DOWN_S: Final = 0.25
_PENDING_MS: Final = (20, 1_000)
_HOLD_AFTER_ERROR_MS: Final = 1_000
_MAX_LETTERS: Final = 10_000


class SubscriptionTransformer:
    """Converts for one subscription."""

    def __init__(self, books: TopicBooks, subscription: str) -> None:
        self._books = books
        self._tools = books.tools
        self._subscription = subscription
        self._parked: dict[Position, int] = {}
        self._letters: dict[Position, asyncio.Future[bool] | None] = {}
        """The dead letters by position: a future while the broker stores the letter, None once the letter is stored."""
        self._closed = asyncio.Event()
        self.flags = self._tools.candidates.flags

    def __call__(
        self, spans: list[Span], order: Order
    ) -> list[Span] | Transformed | Awaitable[list[Span] | Transformed]:
        find = self._tools.candidates.of
        items = [Item(s, k, chosen) for s, span in enumerate(spans) for k, chosen in find(span)]
        if not items:
            return spans
        batch = Batch(spans, items, order, self._books.note_bypass)
        try:
            if self._advance(batch):
                return batch.result()
        except Exception:  # an error must not lose the read: its entries are parked
            log.exception("converting.failed", topic=self._books.topic, subscription=self._subscription)
            return held_back(spans, order)
        return self._finish(batch)

    def bypass(self, spans: list[Span]) -> None:
        """Count entries that go out as stored because all consumers ask for stored entries."""
        self._books.raw_bypass += sum(len(self._tools.candidates.of(span)) for span in spans)

    def close(self) -> None:
        """End every wait for a conversion: the subscription closes."""
        self._closed.set()

    def parked(self) -> int:
        """The number of parked entries that wait for their next attempt."""
        self._prune()
        return len(self._parked)

    def _prune(self) -> None:
        """Forget parked entries whose next attempt is 10 s overdue: the subscription no longer reads them, as after an
        acknowledgement or a skip.
        """
        oldest = self._tools.now_ms() - 10_000
        for position in [p for p, retry_at_ms in self._parked.items() if retry_at_ms < oldest]:
            del self._parked[position]

    # --- step by step --------------------------------------------------------------------------------------------

    async def _finish(self, batch: Batch) -> list[Span] | Transformed:
        try:
            while not self._closed.is_set():
                if batch.waits_for is None:
                    await asyncio.sleep(0)
                else:
                    await self._wait(batch, batch.waits_for)
                if not self._closed.is_set() and self._advance(batch):
                    break
            else:
                return held_back(batch.spans, batch.order)
            if batch.order is Order.NONE and len(self._parked) >= MAX_PARKED and batch.transformed.parked:
                self._prune()
                await asyncio.sleep(_SLOW_DOWN_S)
            return batch.result()
        except Exception:  # as above
            log.exception("converting.failed", topic=self._books.topic, subscription=self._subscription)
            return held_back(batch.spans, batch.order)

    def _advance(self, batch: Batch) -> bool:
        """Settle entries in order. Return True when all are settled, False when an entry has to wait or the slice of
        time (SLICE_S) is over.
        """
        clock, begin = self._tools.clock, self._books.begin
        end = clock() + SLICE_S
        batch.waits_for = None
        while (item := batch.next()) is not None:
            slab = batch.spans[item.span].slab
            if item.letter is None:
                if item.outcome is None:
                    item.outcome = begin(slab, item.index, item.chosen)
                if isinstance(item.outcome, Flight) and item.outcome.answer is not None:
                    item.outcome = self._books.landed_outcome(slab, item.index, item.outcome.answer)
            flight = item.outcome if item.letter is None else None
            if isinstance(flight, Flight) and flight.is_under_way:
                goes_on = self._under_way(batch, item, flight)
            else:
                goes_on = self._settle(batch, item)
            if not goes_on:
                return False
            if clock() >= end and not batch.is_settled:
                return False
        return True

    def _under_way(self, batch: Batch, item: Item, flight: Flight) -> bool:
        """Wait for the worker that converts the entry (return False), or park the entry (return True)."""
        suspect = batch.position(item) in self._books.failures
        holds = not suspect or self._books.policy().holds_order
        if batch.order is Order.NONE:
            waits = not suspect and batch.waited_s < PATIENCE_S
        elif batch.order is Order.BY_KEY:
            waits = not suspect
        else:
            waits = holds
        if waits:
            batch.waits_for = flight.future
            return False
        age_ms = int((self._tools.clock() - flight.started_s) * 1000)
        shortest, longest = _PENDING_MS  # the delay grows with the time of the conversion
        self._park(batch, item, min(max(age_ms, shortest), longest), holds=holds)
        return True

    async def _wait(self, batch: Batch, future: asyncio.Future[Any]) -> None:
        started_s = self._tools.clock()
        timeout_s = max(PATIENCE_S - batch.waited_s, 0) if batch.order is Order.NONE else None
        closed = awaited(self._closed.wait(), "transformer.closed")
        try:
            await asyncio.wait({future, closed}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
        batch.waited_s += self._tools.clock() - started_s

    # --- outcomes ------------------------------------------------------------------------------------------------

    def _settle(self, batch: Batch, item: Item) -> bool:
        """Settle an entry by its outcome; False when the entry has to wait."""
        outcome = item.outcome
        if isinstance(outcome, Failed):
            return self._failed(batch, item, outcome)
        if isinstance(outcome, Unavailable):
            self._unavailable(batch, item, outcome)
            return True
        self._parked.pop(batch.position(item), None)
        if isinstance(outcome, Converted):
            batch.converted(item, outcome)
        elif isinstance(outcome, Declined):
            batch.settle(item, STORED)
        else:  # a cancelled flight: the broker stops
            self._park(batch, item, _HOLD_AFTER_ERROR_MS, holds=True)
        return True

    def _unavailable(self, batch: Batch, item: Item, outcome: Unavailable) -> None:
        """Treat an entry whose converter is unavailable: send it as stored with policy raw, else park it. The broker
        does not drop the entry, since a conversion may succeed later.
        """
        policy = self._books.policy()
        if policy.failure is FailurePolicy.RAW:
            self._raw(batch, item)
        else:
            self._park(batch, item, outcome.wait_ms, holds=policy.holds_order)

    def _failed(self, batch: Batch, item: Item, failed: Failed) -> bool:
        policy = self._books.policy()
        position = batch.position(item)
        if policy.failure is FailurePolicy.RAW:
            self._raw(batch, item)
        elif policy.failure is FailurePolicy.SKIP and not self._may_pass(failed, policy):
            self._books.counters_of(item.chosen.name).skipped += 1
            self._done(batch, item)
        elif policy.failure is FailurePolicy.DLQ and failed.attempts >= policy.dead_letter_attempts:
            return self._dead_letter(batch, item, failed)
        else:
            self._park(batch, item, failed.retry_at_ms - self._tools.now_ms(), holds=policy.holds_order)
            self._parked[position] = failed.retry_at_ms
        return True

    @staticmethod
    def _may_pass(failed: Failed, policy: ConversionPolicy) -> bool:
        """Whether policy skip keeps the entry for a further attempt: a timeout may be the fault of a busy machine."""
        return failed.failure.reason is FailureReason.TIMEOUT and failed.attempts < policy.dead_letter_attempts

    def _raw(self, batch: Batch, item: Item) -> None:
        self._books.counters_of(item.chosen.name).raw += 1
        self._parked.pop(batch.position(item), None)
        batch.settle(item, STORED)

    def _done(self, batch: Batch, item: Item) -> None:
        position = batch.position(item)
        self._parked.pop(position, None)
        batch.settle(item, TAKEN_OUT)
        batch.transformed.done.append(position)

    def _dead_letter(self, batch: Batch, item: Item, failed: Failed) -> bool:
        """Acknowledge the entry once its dead letter is stored; False while the read has to wait for the letter."""
        position, slab = batch.position(item), batch.spans[item.span].slab
        if position in self._letters and (sent := self._letters[position]) is None:
            self._done(batch, item)  # the letter was stored before, and the entry not acknowledged
            return True
        sent = self._letters.get(position)
        if sent is None:
            entry = stored_entry(slab, item.index)
            letter = Letter(self._books.topic, self._subscription, position, entry, failed)
            sent = self._letters[position] = self._tools.dead_letters.send(letter)
        if not sent.done():
            item.letter = batch.waits_for = sent
            if batch.order is Order.NONE and batch.waited_s >= PATIENCE_S:
                item.letter = batch.waits_for = None
                self._park(batch, item, _PENDING_MS[1] // 10, holds=True)
                return True
            return False
        item.letter = None
        if sent.cancelled() or sent.exception() is not None or not sent.result():
            del self._letters[position]
            self._park(batch, item, _HOLD_AFTER_ERROR_MS, holds=self._books.policy().holds_order)
            return True
        self._letters[position] = None
        if len(self._letters) > _MAX_LETTERS:
            del self._letters[next(iter(self._letters))]
        self._books.counters_of(item.chosen.name).dead_lettered += 1
        self._done(batch, item)
        return True

    def _park(self, batch: Batch, item: Item, delay_ms: int, *, holds: bool) -> None:
        span = batch.spans[item.span]
        alone = Span(span.slab, item.index, item.index + 1)
        batch.transformed.parked.append(
            Parked(alone, max(delay_ms, 1), holds_key=holds and batch.order is Order.BY_KEY)
        )
        if holds and batch.order is Order.TOTAL:
            batch.stop_at(item)
        else:
            batch.settle(item, TAKEN_OUT)


def held_back(spans: list[Span], order: Order) -> Transformed:
    """Return the result that parks the read: the broker sends none of its entries now."""
    singles = [Span(slab, k, k + 1) for slab, start, end in spans for k in range(start, end)]
    if order is Order.TOTAL:
        return Transformed(parked=[Parked(singles[0], _HOLD_AFTER_ERROR_MS)], rest=spans)
    holds = order is Order.BY_KEY
    return Transformed(parked=[Parked(each, _HOLD_AFTER_ERROR_MS, holds_key=holds) for each in singles])
