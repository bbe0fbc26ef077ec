"""Exclusive and Failover: one consumer is served, in order.

The choice of the active consumer is made at every join and leave (`active_consumer.ActiveChoice`). When it changes,
reading starts again at the mark-delete position: at once for Exclusive, for Failover after a delay in which the old
consumer's acks may still arrive. Redelivery is a rewind: there are no counts and no held entries here.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER
from magnetar.broker.dispatchers.active_consumer import ActiveChoice
from magnetar.broker.dispatchers.deliver import Target, deliver
from magnetar.broker.dispatchers.key_ranges import StickySelector
from magnetar.broker.dispatchers.ports import Order
from magnetar.broker.dispatchers.read_loop import Read, ReadLoop
from magnetar.broker.errors import ConsumerAssignError
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.ports import DispatchContext, Transformed
    from magnetar.storage.interfaces import Timer
    from magnetar.storage.position import Position


RETURN_AFTER_SEEK_S = 5.0
"""How long standbys wait for the consumer that SEEK closed. (Apache Pulsar 4.2.4 waits for the next join, however
long.)
"""


def admit_failover(consumers: Sequence[Consumer], max_consumers: int) -> None:
    """Raise ConsumerBusyError when a Failover subscription has all the consumers it may have."""
    if 0 < max_consumers <= len(consumers):
        raise wire_refusals.TOO_MANY_CONSUMERS_OF_SUBSCRIPTION.error()


def asks_for_ranges(consumer: Consumer) -> bool:
    """Whether an Exclusive consumer wants only some hash ranges (KeySharedMeta with STICKY mode)."""
    policy = consumer.spec.key_shared
    return consumer.sub_type == EXCLUSIVE and policy is not None and policy.sticky and bool(policy.ranges)


def _singles(span: Span) -> Iterator[Span]:
    return (Span(span.slab, k, k + 1) for k in range(span.start, span.end))


class SingleActiveDispatcher:
    """Serves its active consumer."""

    held = None
    """None: redelivery is a rewind, so the dispatcher keeps no held entries."""

    def __init__(self, context: DispatchContext, sub_type: int) -> None:
        self.context = context
        self.loop = ReadLoop(context, self, Order.TOTAL, delays=False)
        self.sub_type = sub_type
        self.active: Consumer | None = None
        self.expected: Consumer | None = None
        """The active consumer that SEEK closed: the standbys wait for its return until another consumer is active."""
        self._choice: ActiveChoice[Consumer] = ActiveChoice(context.topic_name, context.partition)
        self._failover_timer: Timer | None = None
        self._ranges: StickySelector | None = None
        self._waiting: list[Span] = []
        """Entries that were read and not sent: the first cannot be converted before `_waiting_until_ms`, and the
        others wait behind it.
        """
        self._waiting_until_ms = 0
        self._waiting_timer: Timer | None = None
        self._passed: list[Position] = []
        """Entries that were passed over and are due to be tried again; they stay here until a read has returned."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._choice.consumers

    @property
    def active_name(self) -> str | None:
        """The name of the active consumer, or of the consumer whose return after a SEEK the standbys await."""
        active = self.active or (self.expected if self.consumers else None)
        return None if active is None else active.name

    # --- members -------------------------------------------------------------------------------------------------

    def occupant(self, consumer: Consumer) -> Consumer | None:
        """The Exclusive consumer whose connection the broker probes before ConsumerBusy: it may be dead."""
        return self.consumers[0] if consumer.sub_type == EXCLUSIVE and self.consumers else None

    def add_consumer(self, consumer: Consumer) -> None:
        if self.sub_type == FAILOVER:
            admit_failover(self.consumers, self.context.settings.max_consumers)
        ranges = None
        if asks_for_ranges(consumer):
            ranges = StickySelector()
            with contextlib.suppress(ConsumerAssignError):  # a consumer with invalid ranges joins and gets nothing
                ranges.add(consumer)
        self._ranges = ranges
        self._choice.add(consumer)
        if not self._choose() and self.active is not None and self.sub_type == FAILOVER:
            consumer.tell_active(is_active=consumer is self.active)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer not in self.consumers:
            return
        self._choice.remove(consumer)
        if self.consumers:
            self._choose()
        else:
            self._deserted()

    def _deserted(self) -> None:
        self.active = None
        self._stop_failover_timer()
        self.forget_read()

    def remove_all(self) -> None:
        if self.consumers:
            self._choice.clear()
            self._deserted()

    def remove_for_seek(self) -> list[Consumer]:
        """Remove and return the active consumer alone, even for a SEEK of a standby (Apache Pulsar 4.2.4): until its
        return, or a timeout, no other consumer becomes active.
        """
        consumer = self.active
        if consumer is None:
            return []
        self._choice.remove(consumer)
        self.expected = consumer
        self.active = None
        self._stop_failover_timer()
        self.forget_read()
        if self.consumers:
            self._failover_timer = self.context.call_later(RETURN_AFTER_SEEK_S, self._not_returned)
        return [consumer]

    def _not_returned(self) -> None:
        self._failover_timer = None
        if not self.loop.closed and self.consumers and self.active is None:
            self._choose()

    def _choose(self) -> bool:
        """Choose the active consumer; return whether it changed."""
        context = self.context
        chosen = self._choice.active(consistent_hashing=context.settings.failover_consistent_hashing)
        if chosen is self.active:
            return False
        if self.active is None:
            self._stop_failover_timer()  # the timer of a consumer that SEEK closed
        self.active, self.expected = chosen, None
        self.loop.generation += 1
        if self.sub_type == FAILOVER and context.settings.failover_delay_ms > 0:
            self.loop.forget_end()
            if self._failover_timer is None:
                delay_s = context.settings.failover_delay_ms / 1000
                self._failover_timer = context.call_later(delay_s, self._take_over)
        else:
            self._take_over()
        return True

    def _take_over(self) -> None:
        """Start the active consumer at the mark-delete position."""
        self._failover_timer = None
        if self.loop.closed or self.active is None:
            return
        self.rewind()
        if self.sub_type == FAILOVER:
            for consumer in self.consumers:
                consumer.tell_active(is_active=consumer is self.active)
        self.loop.wake()

    def _stop_failover_timer(self) -> None:
        if self._failover_timer is not None:
            self._failover_timer.cancel()
            self._failover_timer = None

    def can_unsubscribe(self, consumer: Consumer) -> bool:
        return len(self.consumers) == 1 and self.active is consumer

    # --- redelivery ----------------------------------------------------------------------------------------------

    def redeliver_all(self, consumer: Consumer, epoch: int | None) -> None:
        if epoch is not None and epoch > consumer.epoch:
            consumer.epoch = epoch
        if consumer is self.active and self._failover_timer is None:
            self.rewind()
            self.loop.wake()

    def redeliver(self, consumer: Consumer, entries: Mapping[int, Sequence[int]]) -> None:  # noqa: ARG002 - all go back
        """Redeliver all messages: redelivery of single messages would break the order."""
        self.redeliver_all(consumer, None)

    def reset(self) -> None:
        self.forget_read()
        self.loop.wake()

    def rewind(self) -> None:
        self._forget_held()
        self.loop.rewind()

    def forget_read(self) -> None:
        self._forget_held()
        self.loop.forget_read()

    # --- entries that cannot be converted now --------------------------------------------------------------------

    def _forget_held(self) -> None:
        """Forget the held entries, because reading starts again at or before them."""
        self._waiting, self._passed = [], []

    def park(self, result: Transformed, _read: Read) -> None:
        first_of_rest = result.parked[-1] if result.rest else None
        for parked in result.parked:
            if parked is not first_of_rest:
                self.loop.again_later(parked)
        if first_of_rest is None:
            return
        delay_ms = first_of_rest.delay_ms
        self._waiting = result.rest + self._waiting
        self._waiting_until_ms = self.context.now_ms() + delay_ms
        self._stop_waiting_timer()
        self._wake_after_waiting(delay_ms)

    def again(self, position: Position) -> None:
        self._passed.append(position)

    def not_again(self, _position: Position) -> None:
        """No-op: the next read finds the entries behind a parked entry."""

    def _wake_after_waiting(self, delay_ms: int) -> None:
        """Schedule a turn after the delay. The timer may end a moment early by the wall clock; the turn then starts a
        timer for the rest.
        """
        if self._waiting_timer is None:
            self._waiting_timer = self.context.call_later(delay_ms / 1000, self._waited)

    def _waited(self) -> None:
        self._waiting_timer = None
        self.loop.wake()

    def _stop_waiting_timer(self) -> None:
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
            self._waiting_timer = None

    def _held_read(self, max_entries: int) -> Read | None:
        """The held spans, once their first entry may be tried again or is acknowledged; None until then."""
        cursor = self.context.cursor
        left_ms = self._waiting_until_ms - self.context.now_ms()
        if left_ms > 0 and not cursor.is_deleted(self._waiting[0].first_position):
            self._wake_after_waiting(left_ms)
            return None
        spans, self._waiting = self._waiting, []
        taken: list[Span] = []
        for span in spans:
            now, later = span.cut(max_entries)
            max_entries -= now.entries
            if later.entries:
                self._waiting.append(later)
            taken += [each for each in _singles(now) if not cursor.is_deleted(each.first_position)]
        # No held entry may be left; a read without positions lets the turn continue.
        return Read(len(taken), held=taken) if taken else Read(0, positions=[])

    def receivers(self) -> Iterable[Consumer]:
        return () if self.active is None else (self.active,)

    # --- dispatch ------------------------------------------------------------------------------------------------

    def next_read(self) -> Read | None:
        consumer = self.active
        if consumer is None or self._failover_timer is not None or consumer.permits.available <= 0:
            return None
        if not consumer.is_writable():
            consumer.when_writable(self.loop.wake)
            return None
        limit = min(consumer.permits.available, self.context.settings.max_read_entries)
        if self._waiting:
            return self._held_read(limit)
        if self._passed:
            return Read(limit, sorted(self._passed)[:limit])
        return Read(limit)

    def dispatch(self, spans: list[Span], read: Read) -> int:
        consumer, cursor = self.active, self.context.cursor
        assert consumer is not None, "a read of a consumer that left is dropped"
        if read.positions:
            self._passed = sorted(set(self._passed).difference(read.positions))
        if self._ranges is not None:
            spans = self._within_ranges(spans)
        queued = 0
        for span in self.loop.sift(spans, delayed=False).spans:
            queued += deliver(Target(consumer), cursor, span)
        if queued:
            self.loop.sent_to[consumer] = None
        return queued

    def _within_ranges(self, spans: list[Span]) -> list[Span]:
        """Return the spans without entries of other hashes, which stay unacknowledged."""
        selector, kept = self._ranges, []
        assert selector is not None
        for slab, i, j in spans:
            murmurs = slab.facts(want_hash=True).key_hashes
            assert murmurs is not None
            hashes = memoryview(murmurs).cast("q")
            start = i
            for k in range(i, j):
                if selector.select(selector.hash_of(hashes[k])) is None:
                    if start < k:
                        kept.append(Span(slab, start, k))
                    start = k + 1
            if start < j:
                kept.append(Span(slab, start, j))
        return kept

    def flow(self, _consumer: Consumer) -> None:
        self.loop.wake()

    def dropped_up_to(self, _position: Position) -> None:
        """Do nothing: this type holds no entries."""

    def set_settings(self) -> None:
        self.loop.set_settings()

    def close(self) -> None:
        self._stop_failover_timer()
        self._stop_waiting_timer()
        self.loop.close()

    def cut_cycles(self) -> None:
        self.loop.cut_cycles()
        self.expected = None
