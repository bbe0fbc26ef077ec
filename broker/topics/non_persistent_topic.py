"""A non-persistent topic: producers and subscriptions, no log. A message is sent at once or dropped.

Receipts carry the message id (0, 0). The topic passes each publish on within the call, but for topics with thousands of
subscriptions (`fan_out.py`), so a connection never reaches the limit maxConcurrentNonPersistentMessagePerConnection. A
consumer that does not read loses messages, as Apache Pulsar documents for non-persistent topics.
"""

from __future__ import annotations

from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.compat import wire_refusals
from magnetar.broker.compat.java_order import java_order
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.broker.slices import in_turns
from magnetar.broker.subscriptions.non_persistent_subscription import NonPersistentSubscription, as_slab
from magnetar.broker.topics.deduplication import SequenceTable, Verdict
from magnetar.broker.topics.fan_out import FanOut
from magnetar.broker.topics.life import TopicLife, TopicState, nothing_to_forget
from magnetar.broker.topics.producers import TopicProducers
from magnetar.broker.topics.property_room import PropertyRoom
from magnetar.broker.topics.publish_policy import PublishPolicy
from magnetar.broker.topics.subscription_names import RESERVED_PREFIX, check_name
from magnetar.broker.topics.wide_topics import (
    close_without_right,
    close_without_right_in_turns,
    in_turns_of_all,
    is_wide,
    steps_for,
)
from magnetar.storage.managed.append_result import AppendPiece, AppendResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.topics.context import TopicContext, TopicConverter, UnstoredConverter
    from magnetar.broker.topics.producer import Producer, ProducerRequest
    from magnetar.broker.topics.producer_ports import AnsweredProducer, ProducerConnection
    from magnetar.broker.topics.subscribe_request import SubscribeRequest
    from magnetar.protocol.runs import EntryRun
    from magnetar.protocol.topic_name import TopicName

log = structlog.get_logger(__name__)


class NoDeduplication:
    """The interface of `TopicDeduplication` without deduplication: a non-persistent topic stores no sequence ids."""

    enabled = False
    status = "Disabled"
    table = SequenceTable()

    def judge(self, _name: str, run: EntryRun) -> Iterable[tuple[int, int, Verdict]]:
        """Return the whole run as new."""
        return ((0, run.count, Verdict.NEW),)


class NonPersistentSubscriptions:
    """The subscriptions of a non-persistent topic; each lives while it has consumers."""

    def __init__(self, life: TopicLife, context: TopicContext, config: TopicConfig) -> None:
        self._life = life
        self._context = context
        self._config = config
        self.by_name: dict[str, NonPersistentSubscription] = {}
        self.gone_messages = self.gone_bytes = 0
        """Messages and bytes that the subscriptions deleted since the load had sent."""

    def __len__(self) -> int:
        return len(self.by_name)

    @cached_property
    def property_room(self) -> PropertyRoom[NonPersistentSubscription]:
        return PropertyRoom(self.by_name, attrgetter("properties"))

    @property
    def consumer_count(self) -> int:
        return sum(len(s.consumers) for s in self.by_name.values())

    def check_room(self) -> None:
        """Raise ConsumerBusyError when the topic has all the consumers it may have."""
        limit = self._config.max_consumers
        if limit > 0 and self.consumer_count >= limit:
            raise wire_refusals.TOO_MANY_CONSUMERS.error()

    def require_creatable(self, name: str, *, durable: bool) -> None:
        """Raise nothing: a consumer may always create a subscription without storage."""

    async def create(self, request: SubscribeRequest) -> NonPersistentSubscription:
        """Find or create a subscription by the rules of names and limits, for the admin API."""
        if request.subscription not in self.by_name:
            check_name(request.subscription)
            limit = self._config.max_subscriptions
            if 0 < limit <= len(self.by_name):
                raise wire_refusals.TOO_MANY_SUBSCRIPTIONS.error(topic=self._life.name)
        return self._find_or_create(request)

    def _find_or_create(self, request: SubscribeRequest) -> NonPersistentSubscription:
        found = self.by_name.get(request.subscription)
        if found is not None:
            return found
        with self.property_room.taken(request.subscription, request.properties):
            created = self.by_name[request.subscription] = NonPersistentSubscription(
                topic_name=self._life.name,
                name=request.subscription,
                settings=SubscriptionSettings.of(self._context.settings, self._config),
                turns=self._context.turns,
                now_ms=self._context.now_ms,
                on_empty=self._on_empty,
                properties=request.properties,
            )
        return created

    async def subscribe(self, consumer: Consumer, request: SubscribeRequest) -> NonPersistentSubscription:
        """Find or create the subscription and attach the consumer. Raises the BrokerError that answers the client.

        Types that are switched off, blank names and the limit of subscriptions do not count here (Apache Pulsar 4.2.4).
        """
        if request.subscription.startswith(RESERVED_PREFIX):
            raise wire_refusals.SUBSCRIPTION_NAME_RESERVED.error()
        if request.read_compacted:
            raise wire_refusals.READ_COMPACTED_NEEDS_STORED_TOPIC.error()
        self._life.check_usable()
        self.check_room()
        subscription = self._find_or_create(request)
        try:
            await subscription.add_consumer(consumer)
        except Exception:
            self._on_empty(subscription)
            raise
        self._life.used()
        return subscription

    def _on_empty(self, subscription: NonPersistentSubscription) -> None:
        if subscription.is_deserted and self.by_name.get(subscription.name) is subscription:
            del self.by_name[subscription.name]
            self._count_gone(subscription)
            self._life.used()

    async def delete(self, name: str) -> None:
        subscription = self.by_name.pop(name, None)
        if subscription is None:
            raise wire_refusals.SUBSCRIPTION_UNKNOWN.error(subscription=name)
        await subscription.close()
        self._count_gone(subscription)

    def _count_gone(self, subscription: NonPersistentSubscription) -> None:
        self.gone_messages += subscription.gone.total_messages
        self.gone_bytes += subscription.gone.total_bytes

    async def close(self) -> None:
        """Disconnect all consumers, in the order in which Apache Pulsar does."""
        async for subscription in in_turns([self.by_name[name] for name in java_order(self.by_name, concurrent=True)]):
            await subscription.close()
        self.by_name.clear()

    async def config_changed(self, config: TopicConfig) -> None:
        """Apply a changed configuration of the topic to all subscriptions: to thousands of them in turns."""
        self._config, settings = config, SubscriptionSettings.of(self._context.settings, config)

        def apply(subscription: NonPersistentSubscription) -> int:
            if self._config is config:  # a later change has its own turns
                subscription.set_settings(settings)
            return steps_for(subscription)

        await in_turns_of_all(self._context.turns, tuple(self.by_name.values()), apply)

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


class UnstoredPublishing:
    """Passes runs to the subscriptions: entries are sent or dropped within the call, or converted first."""

    receipt_step = 0
    """0: all entries have the id (0, 0)."""

    def __init__(
        self, subscriptions: NonPersistentSubscriptions, life: TopicLife, policy: PublishPolicy, context: TopicContext
    ) -> None:
        self.policy = policy
        self.deduplication = NoDeduplication()
        self.rate_in = RateMeter()
        self.entries_in = 0
        self.last_publish_ms = 0
        self._by_name = subscriptions.by_name
        self._life = life
        self._now_ms = context.now_ms
        self._converter: UnstoredConverter | None = None
        self._fan_out = FanOut(life.name, subscriptions.by_name, lambda: context.turns)

    def convert(self, converting: TopicConverter) -> None:
        """From now on convert entries before they go to the subscriptions."""
        self._converter = converting.unstored(self._fan_out.send)

    def takes(self, producer: AnsweredProducer, _run: EntryRun) -> bool:
        """Whether publishes are taken now. The producer spends as many commands as the last run cost."""
        if self._fan_out.last_cost:
            producer.spend(self._fan_out.last_cost)
        return self._life.is_open

    def append(self, run: EntryRun, done: Callable[[AppendResult], None], _notice: object = None) -> None:
        """Hand the entries to every subscription, after the receipts: as in Apache Pulsar, a connection that produces
        and consumes gets the receipt before the message.
        """
        self._fan_out.begin(partial(self._begin, run, done))

    def _begin(self, run: EntryRun, done: Callable[[AppendResult], None]) -> None:
        slab = as_slab(run) if self._by_name else None
        done(AppendResult(run, [AppendPiece(0, 0, 0, run.count)], None))
        if slab is None:
            return
        if self._converter is None:
            self._fan_out.send(slab)
        else:
            self._converter.send(slab)

    def stored(self, _producer: AnsweredProducer, run: EntryRun, _count: int, _pieces: object) -> None:
        """Count the run; a non-persistent topic has nothing on a disk."""
        self.rate_in.add(run.total_messages, run.size_bytes)
        self.entries_in += run.count
        self.last_publish_ms = self._now_ms()

    def append_failed(self, _producer: AnsweredProducer, _run: EntryRun, _stored: int, error: Exception) -> None:
        raise AssertionError("nothing is appended, so nothing fails") from error

    def end(self) -> None:
        """Drop the entries that some subscriptions have not got yet; producers get the receipts that they wait for."""
        self._fan_out.end()

    async def close(self) -> None:
        """Drop the entries that wait for a conversion."""
        if self._converter is not None:
            await self._converter.close()


class NonPersistentTopic:
    """A non-persistent topic with clients."""

    persistent = False

    def __init__(self, name: TopicName, context: TopicContext) -> None:
        self.name = name
        self.context = context
        self.config = context.effective(name)
        self.created_ms = context.now_ms()
        self.life = TopicLife(name, context.monotonic)
        self.producers = TopicProducers(None, _keep_in_memory)
        self.subscriptions = NonPersistentSubscriptions(self.life, context, self.config)
        policy = PublishPolicy(context.rates, context.settings, persistent=False)
        self.publishing = UnstoredPublishing(self.subscriptions, self.life, policy, context)
        self.converting = None if context.converting is None else context.converting.topic(name, dict)
        if self.converting is not None:
            self.publishing.convert(self.converting)
        policy.apply(self.config)

    # --- producers -----------------------------------------------------------------------------------------------

    def new_producer(self, connection: ProducerConnection, request: ProducerRequest) -> Producer:
        return self.context.make_producer(connection, self, request, self.context.now_ms())

    def check_new_producer(self, request: ProducerRequest) -> None:
        self.life.check_usable()
        self.producers.check_limit(self.name, self.config.max_producers)
        if self.config.encryption_required and not request.encrypted:
            raise wire_refusals.ENCRYPTION_REQUIRED_TO_PRODUCE.error(topic=self.name)

    async def add_producer(self, producer: Producer, on_queued: Callable[[], None]) -> None:
        self.life.check_usable()

        def check() -> None:
            self.life.check_not_ended()
            self.producers.check_same_address(producer, self.context.settings.max_same_address_producers_per_topic)
            self.producers.check_limit(self.name, self.config.max_producers)

        await self.producers.admit(producer, on_queued, check)
        self.life.used()

    def remove_producer(self, producer: Producer) -> None:
        self.producers.remove(producer)
        self.life.used()

    # --- policies and facts --------------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the topic follows its policies as they are now; False where that takes a comparison."""
        return self.config is self.context.effective(self.name)

    async def config_changed(self) -> None:
        """Policies of the topic, its namespace or the broker changed: follow them."""
        previous, self.config = self.config, self.context.effective(self.name)
        if previous == self.config:
            return
        self.publishing.policy.apply(self.config)
        if self.config.encryption_required:
            self.producers.close_unencrypted()
        await self.subscriptions.config_changed(self.config)

    def recheck_rights(self) -> None:
        """The namespace changed: close producers and consumers whose role lost its right."""
        self.producers.recheck_rights(self.name)
        self.subscriptions.recheck_rights()

    @property
    def is_wide(self) -> bool:
        """Whether a change for all clients takes more than a turn of the event loop."""
        return is_wide(len(self.producers), self.subscriptions.by_name)

    async def recheck_rights_in_turns(self) -> None:
        """Do the same for thousands of clients."""
        await self.producers.recheck_rights_in_turns(self.name, self.context.turns)
        await self.subscriptions.recheck_rights_in_turns()

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        self.publishing.rate_in.roll(seconds)
        self.producers.roll_rates(seconds)
        self.subscriptions.roll_rates(seconds)

    @property
    def is_open(self) -> bool:
        return self.life.is_open

    @property
    def is_idle(self) -> bool:
        """No producer and no consumer is connected."""
        return not len(self.producers) and not self.subscriptions.consumer_count

    @property
    def is_unused(self) -> bool:
        """Whether a consumer's schema may be the topic's first: no message has come since the load and no connected
        client has fixed a schema.
        """
        return not len(self.producers) and not self.publishing.entries_in and self.subscriptions.only_auto_consume

    # --- end of its life -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Unload: close every client by CLOSE_*."""
        if self.life.has_ended:
            return
        self.life.state = TopicState.CLOSED
        self.producers.fail_waiting(wire_refusals.TOPIC_OF_WAITING_PRODUCER_UNAVAILABLE.error())
        self.publishing.end()
        await self.producers.disconnect_in_turns(self.context.turns)
        self.publishing.policy.rate.end()
        await self.subscriptions.close()
        await self.publishing.close()
        if self.converting is not None:
            self.converting.close()

    async def delete(self, forget: Callable[[], Awaitable[None]] = nothing_to_forget) -> None:
        """Close the topic as `close` does, and forget its schemas and policies: it stores nothing else."""
        await self.close()
        await forget()


async def _keep_in_memory(_epoch: int) -> None:
    """The epoch of a topic that is never stored."""
