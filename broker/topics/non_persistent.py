"""A non-persistent topic: producers and subscriptions, no log. A message is sent at once or dropped.

Receipts name the message (0, 0). Publishes are handed on within the call, so none is ever in flight and the limit
maxConcurrentNonPersistentMessagePerConnection cannot be reached; a consumer that does not read loses messages, as
promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from magnetar.broker.errors import (
    ConsumerBusyError,
    MetadataError,
    NamingError,
    NotAllowedError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
)
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription, as_slab
from magnetar.broker.subscriptions.settings import SubscriptionSettings
from magnetar.broker.topics.deduplication import SequenceTable, Verdict
from magnetar.broker.topics.producer import Producer
from magnetar.broker.topics.producers import TopicProducers
from magnetar.broker.topics.rates_in_force import TopicPublishRate
from magnetar.broker.topics.subscriptions import RESERVED_PREFIX, check_name
from magnetar.broker.topics.topic import max_entry_bytes
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.managed.append_result import AppendPiece, AppendResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.network.connection import Connection
    from magnetar.broker.topics.context import TopicContext
    from magnetar.broker.topics.producer import ProducerRequest
    from magnetar.broker.topics.rates_in_force import AnyPublishThrottle
    from magnetar.broker.topics.subscriptions import SubscribeRequest
    from magnetar.protocol.runs import EntryRun
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.slab import Slab

log = structlog.get_logger(__name__)


class NoDeduplication:
    """The face of `TopicDeduplication` where there is nothing to compare with."""

    enabled = False
    status = "Disabled"
    table = SequenceTable()

    def judge(self, _name: str, run: EntryRun) -> Iterable[tuple[int, int, Verdict]]:
        """Everything is new."""
        return ((0, run.count, Verdict.NEW),)


class NonPersistentSubscriptions:
    """The subscriptions of a non-persistent topic; each lives while it has consumers."""

    def __init__(self, topic: NonPersistentTopic) -> None:
        self._topic = topic
        self.by_name: dict[str, NonPersistentSubscription] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def consumer_count(self) -> int:
        return sum(len(s.consumers) for s in self.by_name.values())

    def check_room(self) -> None:
        """Raise ConsumerBusyError when the topic has all the consumers it may have."""
        limit = self._topic.config.max_consumers
        if limit > 0 and self.consumer_count >= limit:
            raise ConsumerBusyError("Topic reached max consumers limit")

    def require_creatable(self, name: str, *, durable: bool) -> None:
        """Subscriptions without storage are always created on demand."""

    async def create(self, request: SubscribeRequest) -> NonPersistentSubscription:
        """Find or create a subscription by the rules of names and limits (the admin API's door)."""
        if request.subscription not in self.by_name:
            check_name(request.subscription)
            limit = self._topic.config.max_subscriptions
            if 0 < limit <= len(self.by_name):
                raise NotAllowedError(f"Exceed the maximum number of subscriptions of the topic: {self._topic.name}")
        return self._find_or_create(request)

    def _find_or_create(self, request: SubscribeRequest) -> NonPersistentSubscription:
        found = self.by_name.get(request.subscription)
        if found is not None:
            return found
        topic = self._topic
        created = NonPersistentSubscription(
            topic_name=topic.name,
            name=request.subscription,
            settings=SubscriptionSettings.of(topic.context.settings, topic.config),
            now_ms=topic.context.now_ms,
            on_empty=self._on_empty,
        )
        self.by_name[request.subscription] = created
        return created

    async def subscribe(self, consumer: Consumer, request: SubscribeRequest) -> NonPersistentSubscription:
        """Find or create the subscription and attach the consumer; raises what the client is told.

        Types that are switched off, blank names and the limit of subscriptions do not count here (Apache Pulsar 4.2.4).
        """
        topic = self._topic
        if request.subscription.startswith(RESERVED_PREFIX):
            raise NamingError(f"Subscription with reserved subscription name attempted: {request.subscription}")
        if request.read_compacted:
            raise NotAllowedError("readCompacted only valid on persistent topics")
        topic.check_usable()
        self.check_room()
        subscription = self._find_or_create(request)
        try:
            await subscription.add_consumer(consumer)
        except Exception:
            self._on_empty(subscription)
            raise
        topic.last_used_s = topic.context.monotonic()
        return subscription

    def _on_empty(self, subscription: NonPersistentSubscription) -> None:
        if not subscription.consumers and self.by_name.get(subscription.name) is subscription:
            del self.by_name[subscription.name]
            self._topic.last_used_s = self._topic.context.monotonic()

    async def delete(self, name: str) -> None:
        subscription = self.by_name.pop(name, None)
        if subscription is None:
            raise SubscriptionNotFoundError(f"Subscription {name} not found")
        await subscription.close()

    async def close(self) -> None:
        for subscription in list(self.by_name.values()):
            await subscription.close()
        self.by_name.clear()


class NonPersistentTopic:
    """A non-persistent topic with clients. It has the face of `Topic`, as far as that makes sense without a log."""

    persistent = False
    receipt_step = 0

    def __init__(self, name: TopicName, context: TopicContext) -> None:
        self.name = name
        self.context = context
        self.config = context.effective(name)
        self.created_ms = context.now_ms()
        self.last_publish_ms = 0
        self.last_used_s = context.monotonic()
        self.rate_in = RateMeter()
        self.closed = False
        self.max_message_bytes = 0
        self.encryption_required = False
        self.max_delay_ms = 0
        self.publish_rate = TopicPublishRate(context.rates)
        self.publish_throttle: AnyPublishThrottle | None = None
        self.deduplication = NoDeduplication()
        self.delay_index: Any = None
        self.producers = TopicProducers(None, _keep_in_memory)
        self.subscriptions = NonPersistentSubscriptions(self)
        self.converting = None if context.converting is None else context.converting.topic(name, dict)
        self._unstored = None if self.converting is None else self.converting.unstored(self._publish)
        self._apply_config()

    # --- publishing ----------------------------------------------------------------------------------------------

    def takes_publishes(self, _producer: Producer, _run: EntryRun) -> bool:
        return not self.closed

    def append(self, run: EntryRun, done: Callable[[AppendResult], None]) -> None:
        """Hand the entries to every subscription; they are sent or dropped when this returns, or converted first."""
        if self.subscriptions.by_name:
            slab = as_slab(run)
            if self._unstored is None:
                self._publish(slab)
            else:
                self._unstored.send(slab)
        done(AppendResult(run, [AppendPiece(0, 0, 0, run.count)], None))

    def _publish(self, slab: Slab) -> None:
        for subscription in self.subscriptions.by_name.values():
            subscription.publish(slab)

    def stored(self, _producer: Producer, run: EntryRun, _count: int, _pieces: object) -> None:
        self.rate_in.add(run.total_messages, run.size_bytes)
        self.last_publish_ms = self.context.now_ms()

    def append_failed(self, _producer: Producer, _run: EntryRun, _stored: int, error: Exception) -> None:
        raise AssertionError("nothing is appended, so nothing fails") from error

    # --- producers -----------------------------------------------------------------------------------------------

    def new_producer(self, connection: Connection, request: ProducerRequest) -> Producer:
        return Producer(connection, self, request, self.context.now_ms())

    def check_new_producer(self, request: ProducerRequest) -> None:
        self.check_usable()
        self.producers.check_limit(self.config.max_producers)
        if self.encryption_required and not request.encrypted:
            raise MetadataError("Encryption is required in this topic")

    async def add_producer(self, producer: Producer, on_queued: Callable[[], None]) -> None:
        self.check_usable()

        def check() -> None:
            self.producers.check_same_address(producer, self.context.settings.max_same_address_producers_per_topic)
            self.producers.check_limit(self.config.max_producers)

        await self.producers.admit(producer, on_queued, check)
        self.last_used_s = self.context.monotonic()

    def remove_producer(self, producer: Producer) -> None:
        self.producers.remove(producer)
        self.last_used_s = self.context.monotonic()

    def check_usable(self) -> None:
        if self.closed:
            raise ServiceNotReadyError(f"Topic {self.name} is temporarily unavailable")

    # --- policies and facts --------------------------------------------------------------------------------------

    async def config_changed(self) -> None:
        previous, self.config = self.config, self.context.effective(self.name)
        if previous == self.config:
            return
        self._apply_config()
        if self.encryption_required:
            for producer in self.producers:
                if not producer.encrypted:
                    producer.close_from_broker()
        settings = SubscriptionSettings.of(self.context.settings, self.config)
        for subscription in self.subscriptions.by_name.values():
            subscription.set_settings(settings)

    def _apply_config(self) -> None:
        self.publish_throttle = self.publish_rate.throttle(self.config)
        self.max_message_bytes = max_entry_bytes(self.context, self.config)
        self.encryption_required = self.config.encryption_required

    def recheck_rights(self) -> None:
        """The namespace changed: close producers and consumers whose role lost its right."""
        for producer in self.producers:
            if not producer.connection.may(pb.BaseCommand.PRODUCER, self.name):
                producer.close_from_broker()
        for subscription in list(self.subscriptions.by_name.values()):
            for consumer in list(subscription.consumers):
                if not consumer.outbox.may(pb.BaseCommand.SUBSCRIBE, self.name, subscription.name):
                    subscription.disconnect_all([consumer])

    def roll_rates(self, seconds: float) -> None:
        self.rate_in.roll(seconds)
        for producer in self.producers:
            producer.rate_in.roll(seconds)
        for subscription in self.subscriptions.by_name.values():
            subscription.roll_rates(seconds)

    @property
    def is_open(self) -> bool:
        return not self.closed

    @property
    def is_idle(self) -> bool:
        return not len(self.producers) and not self.subscriptions.consumer_count

    @property
    def is_unused(self) -> bool:
        consumers = (c for s in self.subscriptions.by_name.values() for c in s.consumers)
        return not len(self.producers) and all(c.spec.auto_consume for c in consumers)

    # --- end of its life -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Unload: every client is told."""
        if not self.closed:
            self.closed = True
            self.producers.fail_waiting(ServiceNotReadyError("Topic is being closed"))
            self.producers.disconnect_all()
            await self.subscriptions.close()
            if self.converting is not None and self._unstored is not None:
                await self._unstored.close()
                self.converting.close()

    async def delete(self) -> None:
        await self.close()


async def _keep_in_memory(_epoch: int) -> None:
    """The epoch of a topic that is never stored."""
