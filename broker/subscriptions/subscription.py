"""A subscription of a persistent topic: one cursor, the dispatcher of its type, and the rules of joining, acking and
seeking.

All code runs on the event loop; methods that do not wait are plain functions. While the subscription is *fenced* no
consumer may join: during a SEEK the consumer waits; after UNSUBSCRIBE and close its client gets ServiceNotReady and
subscribes again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.compat import wire_refusals
from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, TYPE_NAMES
from magnetar.broker.consumers.host_counts import HostCounts
from magnetar.broker.dispatchers.admission import refusal_to_join, refusal_to_unsubscribe, turn_to_join
from magnetar.broker.dispatchers.key_shared import KeySharedDispatcher, policy_of
from magnetar.broker.dispatchers.ports import DispatchContext
from magnetar.broker.dispatchers.shared import SharedDispatcher
from magnetar.broker.dispatchers.single_active import SingleActiveDispatcher
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.broker.subscriptions.acknowledge import Acknowledger, entries_by_ledger
from magnetar.broker.subscriptions.closed_consumers import ClosedConsumers
from magnetar.broker.subscriptions.shown_place import ShownPlace
from magnetar.broker.subscriptions.sought_places import SoughtPlace
from magnetar.broker.tasks import TaskSet
from magnetar.converters.entry import wants_raw

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
    from typing import Any

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.dispatcher import Dispatcher
    from magnetar.broker.dispatchers.ports import DelayView, EntryTransformer, Reader
    from magnetar.broker.subscriptions.moved_cursors import OpenedAt
    from magnetar.protocol import pulsar_api_pb2 as pb
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import CallLater
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.position import Position

_REPLICATED = "pulsar.replicated.subscription"

log = structlog.get_logger(__name__)
CAUGHT_UP_ENTRIES = 1000
"""A backlog of fewer entries counts as none: the default of Apache Pulsar's managedLedgerCursorBackloggedThreshold."""


class Subscription:
    """A subscription with its cursor and its dispatcher.

    on_empty: called when the last consumer of a non-durable subscription left; the topic then drops the subscription.
    reader: the source of entries, the cursor itself unless a compacted view is given. pinned: the subscription is the
    broker's own (that of compaction): clients may read it, but neither acknowledge entries nor move the cursor.
    """

    _has_ended = False
    """Whether UNSUBSCRIBE or close fenced the subscription: the end of a SEEK does not open it again."""
    dispatch_limited: Counter[tuple[str, str]] | None = None
    """How often dispatch had to wait, by the kind of tokens and the level of the rate; None without a rate so far."""

    hosts = HostCounts()
    """Counts the consumers of all subscriptions of the topic, which sets it before a consumer joins."""

    def __init__(
        self,
        *,
        topic_name: TopicName,
        name: str,
        cursor: ManagedCursor,
        settings: SubscriptionSettings,
        now_ms: Callable[[], int],
        call_later: CallLater,
        delay: DelayView | None = None,
        on_empty: Callable[[Subscription], None] | None = None,
        reader: Reader | None = None,
        transform: EntryTransformer | None = None,
        pinned: bool = False,
    ) -> None:
        self.topic_name = topic_name
        self.name = name
        self.cursor = cursor
        self.durable: bool = cursor.durable  # part of its identity: never changed
        self.pinned = pinned
        self.read_by_broker = False
        """Whether compaction has read with this subscription's cursor since the load."""
        self.terminated = False
        self.fenced = False
        self._seeking: asyncio.Event | None = None
        """Set at the end of the SEEK under way; None without one."""
        self.sought: SoughtPlace | None = None
        """Of a non-durable subscription that SEEK ended: the place where the next reader of its name continues."""
        self.dispatcher: Dispatcher | None = None
        self.expired = RateMeter()
        self.gone = RateMeter()
        """Messages and bytes sent to consumers that are no longer connected."""
        self.last_expire_ms = self.last_flow_ms = 0
        self.opened_at: OpenedAt | None = None
        self.place = ShownPlace()
        self._on_empty = on_empty
        self._admitting = 0
        self._tasks = TaskSet()
        self.context = DispatchContext(
            topic_name=str(topic_name),
            subscription_name=name,
            partition=topic_name.partition,
            cursor=cursor,
            reader=reader if reader is not None else cursor,
            settings=settings,
            now_ms=now_ms,
            call_later=call_later,
            tasks=self._tasks,
            delay=delay,
            transform=transform,
            transform_flags=0 if transform is None else transform.flags,
            skipped=self._skip,
            ended=self._ended,
        )
        self.acknowledger = Acknowledger(self.context, cursor, pinned=pinned)
        self._closed = ClosedConsumers(self.context)

    @property
    def replicated(self) -> bool:
        """Whether a client or administrator marked the subscription as replicated; its cursor keeps the mark."""
        return self.cursor.position_properties.get(_REPLICATED) == 1

    @replicated.setter
    def replicated(self, replicated: bool) -> None:
        if replicated == self.replicated:
            return
        others = {key: value for key, value in self.cursor.position_properties.items() if key != _REPLICATED}
        self.cursor.note_properties(others | ({_REPLICATED: 1} if replicated else {}))

    # --- consumers -----------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> Sequence[Consumer]:
        return () if self.dispatcher is None else self.dispatcher.consumers

    async def add_consumer(self, consumer: Consumer) -> None:
        """Admit a consumer. Wait for a SEEK under way, because not every client retries after ServiceNotReady.

        Raises: ServiceNotReadyError while fenced; SubscriptionBusyError when the connected consumers have another type
        or key-shared policy; ConsumerBusyError when a live Exclusive consumer is connected, or all places are taken;
        ConsumerAssignError for unavailable hash ranges.
        """
        with self.joining():
            if consumer.sub_type == KEY_SHARED and self.dispatcher is not None:
                await turn_to_join(self.dispatcher.held, self.context.turns)
            while True:
                if self._seeking is not None:
                    await self._seeking.wait()
                if self.fenced:
                    raise wire_refusals.SUBSCRIPTION_FENCED.error()
                dispatcher = self._dispatcher_for(consumer)
                occupant = dispatcher.occupant(consumer)
                if occupant is None:
                    break
                if await occupant.outbox.check_alive():
                    raise wire_refusals.EXCLUSIVE_CONSUMER_CONNECTED.error()
                self.remove_consumer(occupant)
            consumer.subscription = self
            consumer.wants_raw = consumer.wants_raw or wants_raw(self.cursor.cursor_properties)
            consumer.connected_ms = self.context.now_ms()
            if self.dispatcher is not dispatcher:
                self._replace_dispatcher(dispatcher)  # stays when it refuses the consumer, as in Apache Pulsar
            dispatcher.add_consumer(consumer)
            self.hosts.joined(consumer)
            if len(dispatcher.consumers) == 1:
                self.place.joined()

    @contextlib.contextmanager
    def joining(self) -> Iterator[None]:
        """Keep a non-durable subscription while a consumer is about to join; without a consumer it ends afterwards."""
        self._admitting += 1
        try:
            yield
        finally:
            self._admitting -= 1
            self._check_empty()

    def _dispatcher_for(self, consumer: Consumer) -> Dispatcher:
        """Return the current dispatcher, or a new dispatcher for the consumer's type when no consumer is connected."""
        current = self.dispatcher
        if current is not None:
            sharing = current if isinstance(current, KeySharedDispatcher) else None
            refusal = refusal_to_join(current.sub_type, sharing, consumer)
            if refusal is None:
                return current
            if current.consumers:
                raise refusal
        if consumer.sub_type == SHARED:
            return SharedDispatcher(self.context)
        if consumer.sub_type == KEY_SHARED:
            return KeySharedDispatcher(self.context, policy_of(consumer))
        return SingleActiveDispatcher(self.context, consumer.sub_type)

    def _replace_dispatcher(self, dispatcher: Dispatcher) -> None:
        former, self.dispatcher = self.dispatcher, dispatcher
        self.acknowledger.books = dispatcher.held
        if former is not None:
            former.close()
            former.loop.when_idle(former.cut_cycles)

    def serves(self, consumer: Consumer) -> bool:
        return self.dispatcher is not None and consumer in self.dispatcher.consumers

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer left; safe to call twice."""
        dispatcher = self.dispatcher
        if dispatcher is not None and self.serves(consumer):
            self._left(consumer)
            dispatcher.remove_consumer(consumer)
            self._check_empty()

    def _check_empty(self) -> None:
        if not self.durable and not self.consumers and not self._admitting and not self.fenced and self._on_empty:
            self._on_empty(self)

    def disconnect_all(self, consumers: Iterable[Consumer] | None = None) -> None:
        """Send CLOSE_CONSUMER to all consumers (or the given consumers) and remove them."""
        if consumers is not None:
            for consumer in list(consumers):
                consumer.close_from_broker()
                self.remove_consumer(consumer)
        elif self.dispatcher is not None and self.consumers:
            self._closed.add(list(self.consumers), self.gone, self.hosts)
            self.dispatcher.remove_all()
            self._check_empty()

    def _left(self, consumer: Consumer) -> None:
        self.gone.add(consumer.out.total_messages, consumer.out.total_bytes)
        self.hosts.left(consumer)

    # --- commands ------------------------------------------------------------------------------------------------

    def on_flow(self, consumer: Consumer, permits: int) -> None:
        """FLOW: add permits."""
        now_ms = self.context.now_ms()
        consumer.last_flow_ms = self.last_flow_ms = now_ms
        consumer.first_flow_ms = consumer.first_flow_ms or now_ms
        if consumer.permits.flow(permits) and self.dispatcher is not None:
            self.dispatcher.flow(consumer)

    def on_ack(self, consumer: Consumer, command: pb.CommandAck) -> Awaitable[None] | None:
        """ACK: takes effect at once. With a request id, return an awaitable that ends before ACK_RESPONSE is due.

        Messages that the ack makes possible (a consumer below its limit, a drained key) follow ACK_RESPONSE.
        """
        dispatcher = self.dispatcher
        answered = command.HasField("request_id")
        if dispatcher is None or not answered:
            self.acknowledger.on_ack(consumer, command)
            owed = False
        else:
            dispatcher.loop.hold_wakes()
            try:
                self.acknowledger.on_ack(consumer, command)
            except BaseException:  # the other ids of the command may be acknowledged; no ACK_RESPONSE follows
                if dispatcher.loop.release_wakes():
                    dispatcher.loop.wake()
                raise
            owed = dispatcher.loop.release_wakes()
        if self.terminated:
            self._tell_end_of_topic()
        return self._durable(dispatcher if owed else None) if answered else None

    async def _durable(self, dispatcher: Dispatcher | None) -> None:
        try:
            await self.cursor.flush()
        finally:
            if dispatcher is not None:
                dispatcher.loop.wake()

    def on_redeliver(
        self, consumer: Consumer, message_ids: Iterable[pb.MessageIdData] | None, consumer_epoch: int | None
    ) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES: these messages, or all that the consumer holds."""
        dispatcher = self.dispatcher
        if dispatcher is None or consumer not in dispatcher.consumers:
            return
        self.last_flow_ms = self.context.now_ms()  # permits from the time of a block flow, even when there are none
        if message_ids and consumer.sub_type in (SHARED, KEY_SHARED):
            dispatcher.redeliver(consumer, entries_by_ledger(message_ids))
        else:
            dispatcher.redeliver_all(consumer, consumer_epoch)

    def unsubscribe(self, consumer: Consumer, *, force: bool = False) -> None:
        """Remove all consumers so that the topic can delete the subscription, which stays fenced.

        Raises MetadataError when the consumer is not connected here, and, unless `force` is set, when other consumers
        are connected or the consumer is a standby.
        """
        if refusal := refusal_to_unsubscribe(self.dispatcher, consumer, force=force):
            raise refusal
        self.fenced = self._has_ended = True
        self.remove_consumer(consumer)
        self.disconnect_all()

    def seek(
        self,
        position: Position,
        ack_set: list[int] | None = None,
        *,
        rolls_back: bool = False,
        to_message: bool = False,
    ) -> Coroutine[Any, Any, None]:
        """Continue reading at `position` (inclusive; the nearest valid position), durable when the coroutine returns.

        Consumers are closed at once (of a Failover subscription the active consumer): their clients subscribe again.
        Pending redeliveries and redelivery counts are forgotten, and the delay view is cleared. A non-durable
        subscription ends when the SEEK closes all its consumers; the next reader of its name continues at `position`.
        `rolls_back`: a consumer is about to join, so the subscription does not end. `to_message`: a client named the
        position.
        Raises NotAllowedError for a pinned subscription; the refusal SUBSCRIPTION_NOT_FENCED while fenced.
        """
        self.check_movable()
        if self.fenced:
            raise wire_refusals.SUBSCRIPTION_NOT_FENCED.error()
        self.fenced = True
        self._seeking = asyncio.Event()
        dispatcher = self.dispatcher
        ends = bool(self.consumers) and not rolls_back
        if dispatcher is not None:
            self._closed.add(dispatcher.remove_for_seek(), self.gone, self.hosts)
            dispatcher.loop.paused = True
            dispatcher.forget_read()
            dispatcher.loop.forget_end()  # the next consumer is notified at its first read
        return self._reset(position, ack_set, ends=ends, to_message=to_message)

    async def _reset(self, position: Position, ack_set: list[int] | None, *, ends: bool, to_message: bool) -> None:
        dispatcher = self.dispatcher
        try:
            await self._closed.told()
            if dispatcher is not None:
                await dispatcher.loop.wait_idle()
            await self.cursor.reset(position, ack_set)
            self.place.reset(position, self.cursor.mark_delete)
            if to_message and position == self.cursor.read_position:
                self.place.sought(ack_set)
            if dispatcher is not None:
                dispatcher.reset()
            elif self.context.delay is not None:
                self.context.delay.clear()
        finally:
            self.fenced = self._has_ended
            seeking, self._seeking = self._seeking, None
            if seeking is not None:
                seeking.set()
            if dispatcher is not None:
                dispatcher.loop.paused = False
                dispatcher.loop.wake()
        if ends and not (self.durable or self.consumers or self._admitting):
            self.sought = SoughtPlace.of(position, self.cursor.read_position, ack_set)
            self._check_empty()
        log.info("subscription.reset", topic=self.context.topic_name, subscription=self.name, position=str(position))

    def check_movable(self) -> None:
        """Raise NotAllowedError for a pinned subscription: entries that compaction has not read must stay."""
        if self.pinned:
            raise NotAllowedError(f"Subscription {self.name} is moved by compaction alone")

    async def close(self, *, disconnect: bool = True) -> None:
        """Stop dispatching; idempotent. The topic saves the cursor."""
        self.fenced = self._has_ended = True
        if disconnect:
            self.disconnect_all()
            await self._closed.told()
        self.end()
        if self.dispatcher is not None:
            await self.dispatcher.loop.wait_idle()
        await self._tasks.close()

    def end(self) -> None:
        """Stop dispatching, without a wait for the end of a read under way: no consumer is connected."""
        self.fenced = self._has_ended = True
        if self.context.transform is not None:
            self.context.transform.close()
        if self.dispatcher is None:
            self.context.cut_cycles()
        else:
            self.dispatcher.close()
            self.dispatcher.loop.when_idle(self._cut_cycles)

    def _cut_cycles(self) -> None:
        if self.dispatcher is not None:
            self.dispatcher.cut_cycles()
        self.context.cut_cycles()

    def is_caught_up(self) -> bool:
        """Whether dispatch rates may leave it out, with dispatchThrottlingOnNonBacklogConsumerEnabled=false."""
        return self.cursor.backlog_entries < CAUGHT_UP_ENTRIES

    # --- events --------------------------------------------------------------------------------------------------

    def entries_available(self) -> int:
        """Dispatch new entries; called once per burst of appends, in a callback of the event loop of its own. Return
        the cost in bytes.
        """
        if self.dispatcher is not None and self.dispatcher.consumers:
            return self.dispatcher.loop.entries_available()
        return 0

    def wake(self) -> None:
        """Ask for a turn: entries are readable, delayed entries became due, or held-back entries may be gone."""
        if self.dispatcher is not None and self.dispatcher.consumers:
            self.dispatcher.loop.wake()

    def on_terminated(self, *, by_request: bool = False) -> None:
        """Note that no entry will follow. Notify the consumers when no backlog is left, else when the backlog ends.
        Each request to terminate the topic notifies them, as in Apache Pulsar, also where the end is known.
        """
        was_known, self.terminated = self.terminated, True
        if by_request or not was_known:
            self._tell_end_of_topic()
        if not was_known and self.dispatcher is not None:
            self.dispatcher.loop.topic_ended()

    def _ended(self, known: bool) -> bool:
        """Whether a read that found nothing met the end of the topic. Notify the consumers, of a `known` end only those
        without a notice: Apache Pulsar reads again after a while, but notifies no consumer twice.
        """
        if self.terminated:
            self._tell_end_of_topic(known=known)
        return self.terminated

    def _tell_end_of_topic(self, *, known: bool = False) -> None:
        if self.cursor.backlog_entries == 0:
            for consumer in self.consumers:
                if not (known and consumer.knows_end):
                    consumer.tell_end_of_topic()

    def _skip(self, positions: list[Position]) -> None:
        """Acknowledge entries that no consumer gets (markers, unreadable entries)."""
        if self.pinned:
            return
        self.cursor.ack_many(positions)
        if self.terminated:
            self._tell_end_of_topic()

    def backlog_dropped(self, position: Position, *, expired_messages: int = 0) -> None:
        """Forget held and waiting entries up to `position`, after a skip or expiry moved the cursor there."""
        if expired_messages:
            self.expired.add(expired_messages, 0)
            self.acknowledger.mark_delete_advanced()
        if self.dispatcher is not None:
            self.dispatcher.dropped_up_to(position)
        self.wake()

    def note_expiry(self) -> None:
        """Note the time of a search for expired messages."""
        self.last_expire_ms = self.context.now_ms()

    def set_settings(self, settings: SubscriptionSettings) -> None:
        """Policies changed."""
        self.context.settings = settings
        if self.dispatcher is not None:
            self.dispatcher.set_settings()

    # --- facts ---------------------------------------------------------------------------------------------------

    @property
    def sub_type(self) -> int | None:
        """Type of the connected consumers, or of the last connected consumer."""
        return None if self.dispatcher is None else self.dispatcher.sub_type

    @property
    def type_name(self) -> str:
        if self.sub_type is None:
            return "Exclusive" if self.read_by_broker else ""
        return TYPE_NAMES[self.sub_type]

    @property
    def loaded_at(self) -> Position | None:
        """The mark-delete position when the topic was loaded; None for a subscription created later."""
        return self.opened_at.mark_delete if self.opened_at is not None and self.opened_at.with_topic else None

    def mark_delete_for_client(self) -> Position:
        """consumer_mark_delete_position of GET_LAST_MESSAGE_ID."""
        return self.cursor.mark_delete

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        self.expired.roll(seconds)
        for consumer in self.consumers:
            consumer.roll_rates(seconds)


__all__ = ["EXCLUSIVE", "FAILOVER", "Subscription", "SubscriptionSettings"]
