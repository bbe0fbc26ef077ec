"""The subscriptions of a persistent topic: found or created for a consumer, closed, deleted."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from magnetar.broker.compaction.compacted_reader import CompactedReader
from magnetar.broker.compaction.topic_compaction import COMPACTION_CURSOR, TopicCompaction
from magnetar.broker.compat import wire_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.consumers.consumer import TYPE_NAMES
from magnetar.broker.consumers.host_counts import HostCounts
from magnetar.broker.dispatchers.turns import LEAST_COST_BYTES, ROUND_BYTES
from magnetar.broker.errors import BrokerError, NotAllowedError
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.broker.subscriptions.moved_cursors import OpenedAt, is_consumed
from magnetar.broker.subscriptions.sought_places import SoughtPlace, SoughtPlaces
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.closed_subscriptions import close_subscriptions, wake
from magnetar.broker.topics.deduplication import CURSOR_NAME as DEDUPLICATION_CURSOR
from magnetar.broker.topics.property_room import PropertyRoom
from magnetar.broker.topics.subscription_names import check_name, check_not_reserved
from magnetar.broker.topics.subscription_rates import SubscriptionRates
from magnetar.broker.topics.wide_topics import (
    close_without_right,
    close_without_right_in_turns,
    in_turns_of_all,
    steps_for,
)
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import StorageError
from magnetar.storage.position import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.meters.rates import Rate
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.topics.context import TopicContext, TopicConverter
    from magnetar.broker.topics.delay_indexes import DelayIndex
    from magnetar.broker.topics.life import TopicLife
    from magnetar.broker.topics.subscribe_request import SubscribeRequest
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.managed.ledger_map import LedgerSlot

log = structlog.get_logger(__name__)

INTERNAL_CURSORS = frozenset({DEDUPLICATION_CURSOR})


class SubscribedLog(Protocol):
    """The log of a topic, with the cursors of its subscriptions."""

    @property
    def terminated(self) -> bool: ...
    @property
    def cursors(self) -> Mapping[str, ManagedCursor]: ...
    @property
    def ledgers(self) -> list[LedgerSlot]: ...
    @property
    def last_confirmed(self) -> Position: ...
    async def open_cursor(
        self,
        name: str,
        initial: Literal["earliest", "latest"] | Position = "latest",
        cursor_properties: Mapping[str, str] | None = None,
    ) -> ManagedCursor: ...
    async def delete_cursor(self, name: str) -> None: ...
    def new_read_cursor(self, start: Position) -> ManagedCursor: ...
    async def position_for_time(self, timestamp_ms: int) -> Position: ...
    def previous(self, position: Position) -> Position: ...
    def entries_between(self, after: Position, up_to: Position) -> int: ...


class TopicSubscriptions:
    """The subscriptions of one topic by name."""

    def __init__(
        self,
        ledger: SubscribedLog,
        life: TopicLife,
        context: TopicContext,
        config: TopicConfig,
        converting: TopicConverter | None,
    ) -> None:
        self.compaction: TopicCompaction  # set by the topic; the compaction in turn hands its cursor to `adopt`
        self._ledger = ledger
        self._life = life
        self._context = context
        self._config = config
        self._converting = converting
        self._delay_index: DelayIndex | None = None
        self.by_name: dict[str, Subscription] = {}
        self.gone_messages = self.gone_bytes = self.gone_bytes_of_broker = 0
        """Messages and bytes that deleted subscriptions had sent, and the bytes of the broker's own among them."""
        self._unused: dict[str, tuple[tuple[int, int], float]] = {}
        """By name: the last observed state of a subscription, and the time when it was first observed."""
        self._sought = SoughtPlaces()
        self._opening: Counter[str] = Counter()
        """Names whose durable cursor is being created: no reader may take them meanwhile."""
        self._deleting: set[str] = set()
        """Names whose durable cursor is being deleted: nothing may take them until it is gone."""
        self._rates = SubscriptionRates(context, config)

    def __len__(self) -> int:
        return len(self.by_name)

    @cached_property
    def property_room(self) -> PropertyRoom[Subscription]:
        return PropertyRoom(self.by_name, attrgetter("cursor.cursor_properties"))

    @cached_property
    def _hosts(self) -> HostCounts:
        return HostCounts()

    @property
    def consumer_count(self) -> int:
        return sum(len(s.consumers) for s in self.by_name.values())

    async def open_existing(self, delay_index: DelayIndex) -> None:
        """Bring up every durable subscription the ledger has a cursor for."""
        self._delay_index = delay_index
        for name in list(self._ledger.cursors):
            if name not in INTERNAL_CURSORS:
                cursor = await self._ledger.open_cursor(name, "latest")
                self._attach(name, cursor, with_topic=True)

    def _attach(self, name: str, cursor: ManagedCursor, *, with_topic: bool = False) -> Subscription:
        delay = None
        if self._delay_index is not None:
            delay = self._delay_index.view(name, cursor, lambda: wake(reference))
        subscription = Subscription(
            topic_name=self._life.name,
            name=name,
            cursor=cursor,
            settings=self.settings(),
            now_ms=self._context.now_ms,
            call_later=self._context.call_later,
            delay=delay,
            on_empty=self._on_empty,
            transform=None if self._converting is None else self._converting.transformer(name),
            pinned=name == COMPACTION_CURSOR,
        )
        reference = weakref.ref(subscription)  # the index keeps its views longer than the topic its subscriptions
        subscription.context.turns = self._context.turns
        subscription.context.throttle = self._rates.throttle(subscription)
        subscription.context.unacked_total = self._context.unacked_total
        place = cursor.mark_delete
        followed = self._ledger.ledgers[:-1] if self._ledger.terminated else self._ledger.ledgers
        was_consumed = with_topic and is_consumed(followed, place)
        subscription.opened_at = OpenedAt(place, cursor.individually_deleted_entries, with_topic, was_consumed)
        self.by_name[name] = subscription
        if self._ledger.terminated:
            subscription.on_terminated()
        return subscription

    def adopt(self, cursor: ManagedCursor, *, read: bool) -> None:
        """Show the cursor of compaction, which the broker made for itself, as a subscription; `read`: a run begins."""
        found = self.by_name.get(cursor.name) or self._attach(cursor.name, cursor)
        if read:
            found.read_by_broker, found.last_flow_ms = True, self._context.now_ms()

    def compaction_read(self, messages: int, size_bytes: int) -> None:
        """Count the messages that a compaction read: as in Apache Pulsar, its subscription has sent them."""
        found = self.by_name.get(COMPACTION_CURSOR)
        if found is not None:
            found.gone.add(messages, size_bytes)

    def settings(self) -> SubscriptionSettings:
        """The settings of the dispatchers, from the topic's policies and the broker's settings."""
        return SubscriptionSettings.of(self._context.settings, self._config)

    async def config_changed(self, config: TopicConfig) -> None:
        """Apply a changed configuration to all subscriptions: to thousands of them in turns, until a later change."""
        self._config = config
        settings = self.settings()
        self._rates.config_changed(config)

        def apply(subscription: Subscription) -> int:
            if self._config is config and self.by_name.get(subscription.name) is subscription:
                subscription.set_settings(settings)
                subscription.context.throttle = self._rates.throttle(subscription)
            return steps_for(subscription)

        await in_turns_of_all(self._context.turns, tuple(self.by_name.values()), apply)

    def published(self, rate: Rate) -> None:
        """Adjust the dispatch rates that are relative to the publish rate; `rate`: that of the last period."""
        self._rates.published(rate)

    # --- a consumer comes ----------------------------------------------------------------------------------------

    async def subscribe(self, consumer: Consumer, request: SubscribeRequest) -> Subscription:
        """Find or create the subscription and attach the consumer. Raises the BrokerError that answers the client."""
        if request.read_compacted and consumer.sub_type not in (
            pb.CommandSubscribe.Exclusive,
            pb.CommandSubscribe.Failover,
        ):
            raise wire_refusals.READ_COMPACTED_NEEDS_ONE_READER.error()
        if TYPE_NAMES[consumer.sub_type] not in self._config.subscription_types_enabled:
            raise wire_refusals.SUBSCRIPTION_TYPE_DISABLED.error(
                topic=self._life.name, kind=TYPE_NAMES[consumer.sub_type]
            )
        check_name(request.subscription)
        if not self._rates.may_subscribe(consumer):
            raise wire_refusals.SUBSCRIBE_RATE_EXCEEDED.error()
        self._life.check_usable()
        self._unused.pop(request.subscription, None)
        subscription = self.by_name.get(request.subscription)
        if subscription is None:
            subscription = await self.create(request)
        elif subscription.durable != request.durable:
            raise _collision(durable=subscription.durable)
        if request.replicated and subscription.durable:
            subscription.replicated = True
        subscription.hosts = self._hosts
        with subscription.joining():
            await self._roll_back(subscription, request)
            if not subscription.consumers:
                self._choose_reader(subscription, request)
                reader, is_from_start = subscription.context.reader, request.start in (None, EARLIEST)
                if isinstance(reader, CompactedReader) and not subscription.durable and is_from_start:
                    reader.begin_at_start()
            self.check_room()
            self._check_same_address(consumer)
            await subscription.add_consumer(consumer)
        if self._ledger.terminated:
            subscription.on_terminated()
        return subscription

    def check_room(self) -> None:
        """Raise ConsumerBusyError when the topic has as many consumers as it may have."""
        most = self._config.max_consumers
        if 0 < most <= self._hosts.total:
            raise wire_refusals.TOO_MANY_CONSUMERS.error()

    def _check_same_address(self, consumer: Consumer) -> None:
        limit = self._context.settings.max_same_address_consumers_per_topic
        if 0 < limit <= self._hosts.of(consumer):
            raise wire_refusals.TOO_MANY_CONSUMERS_OF_ADDRESS.error()

    def _choose_reader(self, subscription: Subscription, request: SubscribeRequest) -> None:
        """Choose the source of entries as the first consumer requests: the compacted topic or the log."""
        cursor = subscription.cursor
        reads_compacted = isinstance(subscription.context.reader, CompactedReader)
        if request.read_compacted and not reads_compacted:
            subscription.context.reader = self.compaction.new_reader(cursor)
        elif reads_compacted and not request.read_compacted:
            subscription.context.reader, cursor.earlier = cursor, None

    async def _begin_compacted(self, subscription: Subscription, request: SubscribeRequest) -> None:
        """Set the start of a new subscription to the compacted topic; it may lie before the first entry of the log."""
        if request.read_compacted and (request.start is not None or request.from_earliest):
            self._choose_reader(subscription, request)
            reader = subscription.context.reader
            assert isinstance(reader, CompactedReader)
            reader.begin(EARLIEST if request.start is None else request.start)
            await subscription.cursor.flush()

    async def create(self, request: SubscribeRequest) -> Subscription:
        """Create a subscription by the rules of names and limits. Blank names are refused to consumers alone."""
        check_not_reserved(request.subscription)
        limit = self._config.max_subscriptions
        if limit > 0 and len((self.by_name.keys() | self._opening.keys()) - {request.subscription}) >= limit:
            raise wire_refusals.TOO_MANY_SUBSCRIPTIONS.error(topic=self._life.name)
        if request.subscription in self._deleting:
            raise wire_refusals.SUBSCRIPTION_FENCED.error()
        sought = self._sought.take(request.subscription)
        with self.property_room.taken(request.subscription, request.properties):
            return await (self._create_durable(request) if request.durable else self._create_unsaved(request, sought))

    async def _create_durable(self, request: SubscribeRequest) -> Subscription:
        name = request.subscription
        self._opening[name] += 1
        try:
            cursor = await self._ledger.open_cursor(
                name,
                request.start if request.start is not None else "earliest" if request.from_earliest else "latest",
                request.properties,
            )
        finally:
            self._opening[name] -= 1
            if not self._opening[name]:
                del self._opening[name]
        existing = self.by_name.get(name)
        if existing is not None:
            return existing  # another request created the subscription meanwhile
        if name in self._deleting:  # `open_cursor` returned the cursor that is being deleted
            raise wire_refusals.SUBSCRIPTION_FENCED.error()
        if self._life.has_ended:  # a topic that only takes no publishes keeps the subscription: its cursor exists
            raise wire_refusals.TOPIC_UNAVAILABLE.error(topic=self._life.name)
        subscription = self._attach(name, cursor)
        log.info("subscription.created", topic=str(self._life.name), subscription=name)
        await self._begin_compacted(subscription, request)
        return subscription

    async def _create_unsaved(self, request: SubscribeRequest, sought: SoughtPlace | None) -> Subscription:
        name, ledger = request.subscription, self._ledger
        if name in self._opening or name in ledger.cursors:
            raise _collision(durable=True)
        compacted = self.compaction.current() if request.read_compacted else None  # whose log may be empty
        request = request.within(max(ledger.last_confirmed, EARLIEST if compacted is None else compacted.horizon))
        start = request.start or (EARLIEST if request.from_earliest else LATEST)
        cursor = ledger.new_read_cursor(start if sought is None else sought.read_next)
        cursor.cursor_properties = dict(request.properties)
        subscription = self._attach(name, cursor)
        await self._begin_compacted(subscription, request)
        if sought is not None:
            await cursor.reset(sought.place(compacted=request.read_compacted), sought.ack_set)
        return subscription

    async def _roll_back(self, subscription: Subscription, request: SubscribeRequest) -> None:
        """Apply start_message_rollback_duration_sec: SEEK by time, even when the subscription has consumers."""
        if request.rollback_s > 0:
            ledger = self._ledger
            position = await ledger.position_for_time(self._context.now_ms() - request.rollback_s * 1000)
            with contextlib.suppress(BrokerError):  # the consumer joins all the same
                await subscription.seek(position, rolls_back=True)

    def require_creatable(self, name: str, *, durable: bool) -> None:
        """Raise SubscriptionNotFoundError when SUBSCRIBE may not create the durable subscription `name`.

        The auto creation of subscriptions must be on, unless the subscription exists.
        """
        if durable and name not in self.by_name and not self._config.allow_auto_subscription_creation:
            raise wire_refusals.SUBSCRIPTION_MISSING.error()

    # --- and goes ------------------------------------------------------------------------------------------------

    def _on_empty(self, subscription: Subscription) -> None:
        """Remove a non-durable subscription that its last consumer left."""
        if not subscription.durable and self.by_name.get(subscription.name) is subscription:
            del self.by_name[subscription.name]
            self._rates.forget(subscription.name)
            if self._delay_index is not None:
                self._delay_index.remove_view(subscription.name)
            if subscription.sought is not None:
                self._sought.keep(subscription.name, subscription.sought)
            subscription.end()
            subscription.cursor.close()
            self._count_gone(subscription)

    async def delete(self, name: str) -> None:
        """Delete a subscription that has no consumers any more; durable on return.

        No request can create the name again before its cursor is deleted. When the store fails, the subscription exists
        as before; its consumers are closed.
        """
        subscription = self.by_name.pop(name, None)
        if subscription is None:
            raise wire_refusals.SUBSCRIPTION_UNKNOWN.error(subscription=name)
        self._unused.pop(name, None)
        self._rates.forget(name)
        self._deleting.add(name)
        try:
            await subscription.close(disconnect=True)
            if self._delay_index is not None:
                self._delay_index.remove_view(name)
            if name == COMPACTION_CURSOR:
                await self.compaction.delete_cursor()
            elif subscription.durable:
                await self._ledger.delete_cursor(name)
            else:
                subscription.cursor.close()
        except StorageError:
            if not self._life.has_ended:
                self._attach(name, subscription.cursor)
            raise
        finally:
            self._deleting.discard(name)
        self._count_gone(subscription)
        self._life.used()
        log.info("subscription.deleted", topic=str(self._life.name), subscription=name)

    def _count_gone(self, subscription: Subscription) -> None:
        self.gone_messages += subscription.gone.total_messages
        self.gone_bytes += subscription.gone.total_bytes
        self.gone_bytes_of_broker += subscription.gone.total_bytes if subscription.pinned else 0

    # --- moving ahead --------------------------------------------------------------------------------------------

    def durable(self) -> list[Subscription]:
        """The durable subscriptions of users, without that of compaction, which expiry and quotas leave alone."""
        return [s for s in self.by_name.values() if s.durable and not s.pinned]

    def slowest(self) -> Subscription | None:
        """The durable subscription with the smallest mark-delete position; None without durable subscriptions."""
        return min(self.durable(), key=lambda s: s.cursor.mark_delete, default=None)

    async def move_to(self, subscription: Subscription, position: Position, *, expired: bool = False) -> int:
        """Acknowledge every entry before `position`, durable on return; the cursor never moves back, nor for expiry
        where no entry is. Return how many entries were not acknowledged before; 0 for a deleted subscription.
        """
        subscription.check_movable()
        if self.by_name.get(subscription.name) is not subscription:
            return 0
        last = self._ledger.previous(position)
        cursor = subscription.cursor
        if last <= cursor.mark_delete or (expired and not self._ledger.entries_between(cursor.mark_delete, last)):
            return 0
        before = cursor.backlog_entries
        cursor.ack_cumulative(last)
        dropped = before - cursor.backlog_entries
        subscription.backlog_dropped(last, expired_messages=dropped if expired else 0)
        await cursor.flush()
        return dropped

    def acknowledge_all(self, up_to: Position) -> None:
        """Acknowledge, in memory, every entry up to the position in all subscriptions, and forget held entries at once:
        the save of the acknowledgements may wait for the disk, or fail.
        """
        for subscription in tuple(self.by_name.values()):
            subscription.cursor.ack_cumulative(up_to)
            subscription.backlog_dropped(up_to)

    async def skip(self, subscription: Subscription, entries: int, *, acknowledged: bool = False) -> None:
        """Acknowledge the next entries, durable on return; entries that are acknowledged already count on request."""
        subscription.check_movable()
        (cursor := subscription.cursor).skip(entries, acknowledged=acknowledged)
        subscription.backlog_dropped(cursor.mark_delete)
        delay = subscription.context.delay
        if delay is not None and not cursor.backlog_entries and delay.pending_count:
            delay.clear()  # the in-memory tracker does not check the cursor
        await cursor.flush()

    def unused_s(self, subscription: Subscription) -> float:
        """Seconds without a consumer, as far as earlier calls observed; 0 for a deleted subscription."""
        if self.by_name.get(subscription.name) is not subscription:
            return 0.0
        now_s, seen = self._context.monotonic(), (subscription.last_flow_ms, len(subscription.consumers))
        last_seen, since_s = self._unused.get(subscription.name, (seen, now_s))
        if subscription.consumers or seen != last_seen:
            since_s = now_s
        self._unused[subscription.name] = seen, since_s
        return now_s - since_s

    # --- events of the topic -------------------------------------------------------------------------------------

    def recheck_rights(self) -> None:
        """Close the consumers whose role may no longer consume."""
        close_without_right(self.by_name, self._life.name)

    async def recheck_rights_in_turns(self) -> None:
        """Do the same for thousands of consumers."""
        await close_without_right_in_turns(self.by_name, self._life.name, self._context.turns)

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        for subscription in self.by_name.values():
            subscription.roll_rates(seconds)

    @property
    def only_auto_consume(self) -> bool:
        """Whether no connected consumer has a schema."""
        return all(c.spec.auto_consume for s in self.by_name.values() for c in s.consumers)

    def entries_available(self) -> None:
        """Notify the subscriptions of new entries, once per burst of appends: the first have their turns at once, the
        others in later rounds of the event loop.
        """
        cost = 0
        for subscription in tuple(self.by_name.values()):
            try:
                if cost < ROUND_BYTES:
                    cost += max(subscription.entries_available(), LEAST_COST_BYTES)
                else:
                    subscription.wake()
            except Exception:  # a bug in one turn must not cost the other subscriptions their turns
                log.exception("dispatch.failed", topic=str(self._life.name), subscription=subscription.name)

    async def terminated(self) -> None:
        """A request has terminated the topic, perhaps once more."""

        def end(subscription: Subscription) -> int:
            if self.by_name.get(subscription.name) is subscription:
                subscription.on_terminated(by_request=True)
            return steps_for(subscription)

        await in_turns_of_all(self._context.turns, self._in_order(), end)

    def _in_order(self) -> list[Subscription]:
        """Yield the subscriptions in the order in which Apache Pulsar visits them."""
        return [self.by_name[name] for name in java_order(self.by_name, concurrent=True)]

    async def close(self, *, save: bool = True) -> None:
        """Disconnect all consumers and close every subscription (``close_subscriptions``)."""
        await close_subscriptions(self.by_name, self._in_order(), self._life.name, save=save)


def _collision(*, durable: bool) -> NotAllowedError:
    """A durable and a non-durable subscription never share a name."""
    return wire_refusals.SUBSCRIPTION_DURABILITY_DIFFERS.error(kind="Durable" if durable else "NonDurable")
