"""A subscription of a non-persistent topic: no cursor; messages that no consumer can take at once are dropped and
counted.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.consumer import TYPE_NAMES
from magnetar.broker.dispatchers.admission import refusal_to_unsubscribe
from magnetar.broker.dispatchers.non_persistent_dispatcher import (
    UnstoredContext,
    can_take,
    make_non_persistent,
    refusal_of,
)
from magnetar.broker.dispatchers.sift import messages_in
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.subscriptions.closed_consumers import ClosedConsumers
from magnetar.protocol import speed
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.slab import Slab, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.non_persistent_dispatcher import NonPersistentDispatcher
    from magnetar.broker.dispatchers.turns import DispatchTurns
    from magnetar.broker.policies.subscription_settings import SubscriptionSettings
    from magnetar.protocol import pulsar_api_pb2 as pb
    from magnetar.protocol.runs import EntryRun
    from magnetar.protocol.topic_name import TopicName

_NOT_SENT = int(EntryFlag.MARKER | EntryFlag.UNREADABLE)


def as_slab(run: EntryRun) -> Slab:
    """The entries of a run as records that all have the id (0, 0), ready to be encoded for any consumer."""
    records, offsets = [], array("q", [0])
    for k in range(run.count):
        record, _ = speed.stamp(run.data, run.offsets, run.num_messages, k, k + 1, 0, 0, -1, -1, -2, run.gap)
        records.append(record)
        offsets.append(offsets[-1] + len(record))
    return Slab(0, 0, b"".join(records), offsets.tobytes())


class NonPersistentSubscription:
    """Has the methods of `Subscription` that make sense without storage."""

    durable = False

    def __init__(
        self,
        *,
        topic_name: TopicName,
        name: str,
        settings: SubscriptionSettings,
        turns: DispatchTurns,
        now_ms: Callable[[], int],
        on_empty: Callable[[NonPersistentSubscription], None] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.name = name
        self.properties = dict(properties or {})
        self.replicated = False
        self.fenced = False
        self.dispatcher: NonPersistentDispatcher | None = None
        self.dropped = RateMeter()
        self.gone = RateMeter()
        self._on_empty = on_empty
        self._admitting = 0
        # the first by priority and name is active on a topic without partitions (Apache Pulsar 4.2.4)
        self.context = UnstoredContext(str(topic_name), max(0, topic_name.partition), settings, turns)
        self._closed = ClosedConsumers(self.context)
        self._now_ms = now_ms

    @property
    def consumers(self) -> Sequence[Consumer]:
        return () if self.dispatcher is None else self.dispatcher.consumers

    @property
    def is_deserted(self) -> bool:
        """Whether no consumer is connected and none is about to join."""
        return not self.consumers and not self._admitting

    async def add_consumer(self, consumer: Consumer) -> None:
        """Admit a consumer; raises as `Subscription.add_consumer` does."""
        self._admitting += 1
        try:
            await self._admit(consumer)
        finally:
            self._admitting -= 1

    async def _admit(self, consumer: Consumer) -> None:
        while True:
            if self.fenced:
                raise wire_refusals.SUBSCRIPTION_FENCED.error()
            dispatcher = self.dispatcher
            refusal = None if dispatcher is None else refusal_of(dispatcher, consumer)
            if refusal is not None and self.consumers:
                raise refusal
            if dispatcher is None or refusal is not None:
                dispatcher = make_non_persistent(self.context, consumer)
            occupant = dispatcher.occupant(consumer)
            if occupant is None:
                break
            if await occupant.outbox.check_alive():
                raise wire_refusals.EXCLUSIVE_CONSUMER_CONNECTED.error()
            self._remove(occupant)
        consumer.subscription = self
        consumer.connected_ms = self._now_ms()
        consumer.hide_entry_metadata()
        consumer.epoch = -1  # messages without an epoch, as in Apache Pulsar 4.2.4
        dispatcher.add_consumer(consumer)
        self.dispatcher = dispatcher

    def _remove(self, consumer: Consumer) -> None:
        if self.dispatcher is not None and self.serves(consumer):
            self.gone.add(consumer.out.total_messages, consumer.out.total_bytes)
            self.dispatcher.remove_consumer(consumer)

    def serves(self, consumer: Consumer) -> bool:
        return self.dispatcher is not None and consumer in self.dispatcher.consumers

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer left; safe to call twice."""
        self._remove(consumer)
        self._check_empty()

    def _check_empty(self) -> None:
        if self.is_deserted and not self.fenced and self._on_empty is not None:
            self._on_empty(self)

    def disconnect_all(self, consumers: Iterable[Consumer] | None = None) -> None:
        """Send CLOSE_CONSUMER to all consumers (or the given consumers) and remove them."""
        if consumers is not None:
            for consumer in list(consumers):
                consumer.close_from_broker()
                self.remove_consumer(consumer)
        elif self.dispatcher is not None and self.consumers:
            self._closed.add(list(self.consumers), self.gone, None)
            self.dispatcher.remove_all()
            self._check_empty()

    # --- messages ------------------------------------------------------------------------------------------------

    def publish(self, slab: Slab) -> int:
        """Send the entries of one burst (see `as_slab`) now, or drop them; return the bytes queued.

        No consumer gets a marker; a consumer that could have taken the marker keeps its permit, and the marker does not
        count as dropped.
        """
        sent_to: dict[Consumer, None] = {}
        if self.dispatcher is None:
            self.dropped.add(messages_in(slab, 0, slab.count), slab.size_bytes)
            return 0
        if not any(map(can_take, self.dispatcher.consumers)):  # no choice for each entry
            self.dropped.add(messages_in(slab, 0, slab.count), 0)
            return 0
        start, previous, dropped, queued = 0, None, 0, 0
        facts = slab.facts()
        flags = memoryview(facts.flags).cast("I") if facts.any_flags & _NOT_SENT else None
        for k, chosen in enumerate(self.dispatcher.choose(slab)):
            held_back = 0 if flags is None else flags[k] & _NOT_SENT
            consumer = None if held_back else chosen
            if consumer is not previous:
                queued += self._push(previous, slab, start, k)
                start, previous = k, consumer
            if consumer is not None:
                consumer.permits.sent(messages_in(slab, k, k + 1), 0)
                sent_to[consumer] = None
            elif chosen is None or held_back & EntryFlag.UNREADABLE:
                dropped += messages_in(slab, k, k + 1)
        queued += self._push(previous, slab, start, slab.count)
        if dropped:
            self.dropped.add(dropped, 0)
        now_ms = self._now_ms()
        for consumer in sent_to:
            consumer.flush(now_ms)
        return queued

    def _push(self, consumer: Consumer | None, slab: Slab, i: int, j: int) -> int:
        if consumer is None or i == j:
            return 0
        return consumer.push(Span(slab, i, j), messages_in(slab, i, j))

    # --- commands ------------------------------------------------------------------------------------------------

    def on_flow(self, consumer: Consumer, permits: int) -> None:
        """FLOW: add permits."""
        now_ms = self._now_ms()
        consumer.last_flow_ms = now_ms
        consumer.first_flow_ms = consumer.first_flow_ms or now_ms
        consumer.permits.flow(permits)

    def on_ack(self, consumer: Consumer, command: pb.CommandAck) -> None:
        """Answer a request id at once: the subscription keeps nothing that could be acknowledged."""
        consumer.last_acked_ms = self._now_ms()
        consumer.acks.add(len(command.message_id), 0)

    def on_redeliver(self, consumer: Consumer, message_ids: object, consumer_epoch: int | None) -> None:
        """Do nothing: the subscription can deliver nothing again."""

    def unsubscribe(self, consumer: Consumer, *, force: bool = False) -> None:
        """Remove the consumers as `Subscription.unsubscribe` does."""
        if refusal := refusal_to_unsubscribe(self.dispatcher, consumer, force=force):
            raise refusal
        self.fenced = True
        self._remove(consumer)
        self.disconnect_all()

    async def seek(self, position: Position, ack_set: list[int] | None = None, *, to_message: bool = False) -> None:
        """Do nothing without a cursor: the client gets SUCCESS, no consumer is closed (Apache Pulsar 4.2.4)."""

    async def close(self, *, disconnect: bool = True) -> None:
        """No more consumers; idempotent."""
        self.fenced = True
        if disconnect:
            self.disconnect_all()
            await self._closed.told()

    def set_settings(self, settings: SubscriptionSettings) -> None:
        """Policies changed."""
        self.context.settings = settings

    # --- facts ---------------------------------------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        return "" if self.dispatcher is None else TYPE_NAMES[self.dispatcher.sub_type]

    def mark_delete_for_client(self) -> Position:
        """There is no cursor."""
        return EARLIEST

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        self.dropped.roll(seconds)
        for consumer in self.consumers:
            consumer.roll_rates(seconds)
