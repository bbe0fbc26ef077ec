"""The interface that persistent and non-persistent topics share (`Topic`, `NonPersistentTopic`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.broker.topics.life import nothing_to_forget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from magnetar.broker.consumers.consumer import Consumer, ServingSubscription
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.subscriptions.subscription_stats import AnySubscription
    from magnetar.broker.topics.context import TopicContext
    from magnetar.broker.topics.life import TopicLife
    from magnetar.broker.topics.producer import Producer, ProducerRequest
    from magnetar.broker.topics.producer_ports import ProducerConnection, Publishing
    from magnetar.broker.topics.producers import TopicProducers
    from magnetar.broker.topics.subscribe_request import SubscribeRequest
    from magnetar.protocol.topic_name import TopicName


class ServedSubscriptions(Protocol):
    """The subscriptions of a topic."""

    @property
    def by_name(self) -> Mapping[str, AnySubscription]: ...
    @property
    def consumer_count(self) -> int: ...
    def check_room(self) -> None:
        """Raise ConsumerBusyError when the topic has all the consumers it may have."""
        ...

    def require_creatable(self, name: str, *, durable: bool) -> None:
        """Raise SubscriptionNotFoundError when SUBSCRIBE may not create `name` here."""
        ...

    async def create(self, request: SubscribeRequest) -> AnySubscription:
        """Create a subscription by the rules of names and limits."""
        ...

    @property
    def gone_messages(self) -> int:
        """The messages that the subscriptions deleted since the load had sent."""
        ...

    @property
    def gone_bytes(self) -> int:
        """The bytes of these messages."""
        ...

    async def subscribe(self, consumer: Consumer, request: SubscribeRequest) -> ServingSubscription:
        """Find or create the subscription and attach the consumer; raises the refusal."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a subscription; raises SubscriptionNotFoundError."""
        ...


class ServedTopic(Protocol):
    """A loaded topic."""

    name: TopicName
    persistent: bool
    config: TopicConfig
    context: TopicContext
    created_ms: int
    life: TopicLife
    producers: TopicProducers

    @property
    def publishing(self) -> Publishing: ...
    @property
    def subscriptions(self) -> ServedSubscriptions: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_idle(self) -> bool:
        """No producer and no consumer is connected."""
        ...

    @property
    def is_unused(self) -> bool:
        """Whether no schema is stored and no connected client has a schema."""
        ...

    def check_new_producer(self, request: ProducerRequest) -> None:
        """Raise the refusals that do not depend on schema and subscription of the request."""
        ...

    def new_producer(self, connection: ProducerConnection, request: ProducerRequest) -> Producer:
        """A producer of this topic, not yet attached."""
        ...

    async def add_producer(self, producer: Producer, on_queued: Callable[[], None]) -> None:
        """Attach a producer by the rules of access; raises the refusal."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the topic follows its policies as they are now."""
        ...

    async def config_changed(self) -> None:
        """Policies of the topic, its namespace or the broker changed: follow them."""
        ...

    @property
    def is_wide(self) -> bool:
        """Whether a change for all clients and subscriptions takes more than a turn of the event loop."""
        ...

    def recheck_rights(self) -> None:
        """Close producers and consumers whose role lost its right."""
        ...

    async def recheck_rights_in_turns(self) -> None:
        """Do the same for thousands of clients."""
        ...

    def roll_rates(self, seconds: float) -> None:
        """End a stats period."""
        ...

    async def close(self) -> None:
        """Unload: close the clients; on return everything is on the disk."""
        ...

    async def delete(self, forget: Callable[[], Awaitable[None]] = nothing_to_forget) -> None:
        """Remove the topic and all it holds."""
        ...
