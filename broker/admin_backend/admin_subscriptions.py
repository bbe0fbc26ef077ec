"""The subscriptions of one topic, for the admin API (`admin.api.SubscriptionsApi`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.admin.api import MessagePosition, StoredMessage
from magnetar.broker.admin_backend.scan import analyze_backlog, left_by_expiry, place_of_reset, stored_message
from magnetar.broker.compat import rest_refusals, wire_refusals
from magnetar.broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics import expiry
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.storage.position import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from magnetar.broker.admin.api import Start
    from magnetar.broker.topics.lifecycle import TopicLifecycle
    from magnetar.broker.topics.non_persistent_topic import NonPersistentSubscriptions
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName


class AdminSubscriptions:
    """The broker's side of `SubscriptionsApi`; its docstrings state the guarantees of each call."""

    def __init__(self, topics: Topics, lifecycle: TopicLifecycle) -> None:
        self._topics = topics
        self._lifecycle = lifecycle

    async def subscriptions(self, name: TopicName) -> list[str]:
        topic = await self._topics.get(name, create=False)
        return list(topic.subscriptions.by_name)

    async def _subscription(self, name: TopicName, subscription: str) -> tuple[Topic, Subscription]:
        topic = await self._lifecycle.persistent(name)
        found = topic.subscriptions.by_name.get(subscription)
        if found is None:
            raise wire_refusals.SUBSCRIPTION_OF_TOPIC_UNKNOWN.error(subscription=subscription, topic=name)
        return topic, found

    async def _unstored(
        self, name: TopicName, subscription: str
    ) -> tuple[NonPersistentSubscriptions, NonPersistentSubscription]:
        topic = await self._topics.get(name, create=False)
        found = topic.subscriptions.by_name.get(subscription)
        if not isinstance(topic, NonPersistentTopic) or not isinstance(found, NonPersistentSubscription):
            raise wire_refusals.SUBSCRIPTION_OF_TOPIC_UNKNOWN.error(subscription=subscription, topic=name)
        return topic.subscriptions, found

    async def create_subscription(
        self,
        name: TopicName,
        subscription: str,
        start: Start | MessagePosition,
        properties: dict[str, str],
        *,
        replicated: bool,
    ) -> None:
        topic = await self._topics.get(name, create=True)
        if subscription in topic.subscriptions.by_name:
            raise ConflictError(rest_refusals.SUBSCRIPTION_EXISTS.text)
        request = SubscribeRequest(subscription, properties=properties, from_earliest=start == "earliest")
        if isinstance(start, MessagePosition):
            request.start = Position(start.ledger_id, start.entry_id)
        created = await topic.subscriptions.create(request)
        created.replicated = replicated
        if isinstance(created, Subscription) and isinstance(topic, Topic) and created.opened_at is not None:
            # Apache Pulsar creates the cursor at the end, and then resets it.
            created.opened_at = created.opened_at._replace(mark_delete=topic.ledger.last_confirmed)
            created.place.reset(EARLIEST if start == "earliest" else LATEST, created.cursor.mark_delete)

    async def delete_subscription(self, name: TopicName, subscription: str, *, force: bool) -> None:
        topic = await self._topics.get(name, create=False)
        found = topic.subscriptions.by_name.get(subscription)
        if found is None:
            raise wire_refusals.SUBSCRIPTION_OF_TOPIC_UNKNOWN.error(subscription=subscription, topic=name)
        if found.consumers and not force and name.persistent:
            raise wire_refusals.CONSUMERS_CONNECTED.error()
        await topic.subscriptions.delete(subscription)

    async def replicated(self, name: TopicName, subscription: str) -> bool:
        _, found = await self._subscription(name, subscription)
        return found.replicated

    async def set_replicated(self, name: TopicName, subscription: str, *, on: bool) -> None:
        _, found = await self._subscription(name, subscription)
        found.replicated = on

    async def reset_to_time(self, name: TopicName, subscription: str, timestamp_ms: int) -> None:
        topic, found = await self._subscription(name, subscription)
        await _reset(found, await topic.ledger.position_for_time(timestamp_ms), None)

    async def reset_to_message(
        self, name: TopicName, subscription: str, message: MessagePosition, *, excluded: bool
    ) -> None:
        topic, found = await self._subscription(name, subscription)
        await _reset(found, *await place_of_reset(topic, message, excluded=excluded))

    async def skip(self, name: TopicName, subscription: str, messages: int | None) -> None:
        topic, found = await self._subscription(name, subscription)
        await topic.subscriptions.skip(found, found.cursor.backlog_entries if messages is None else messages)
        if messages is None:
            found.place.reset(LATEST, found.cursor.mark_delete)
            return
        found.place.skipped()
        if messages:
            found.place.continued()

    async def expire(self, name: TopicName, subscription: str, older_than_s: int | MessagePosition) -> bool:
        topic, found = await self._subscription(name, subscription)
        if isinstance(older_than_s, MessagePosition):
            position = Position(older_than_s.ledger_id, older_than_s.entry_id)
            last = topic.ledger.last_confirmed if topic.ledger.entries else await topic.position_before_first()
            if position > last:
                return False
            left = await left_by_expiry(topic, older_than_s) if topic.ledger.entries else None
            await expiry.expire_up_to(topic, found, position, left)
            return True
        backlog = found.cursor.backlog_entries
        if older_than_s == 0 and found.consumers and expiry.is_nearly_caught_up(found, backlog):
            return False  # as in Apache Pulsar no message is older than an age of zero
        expired = await expiry.expire_older_than(topic, found, older_than_s)
        return expired or not expiry.is_nearly_caught_up(found, backlog)

    async def peek(self, name: TopicName, subscription: str, number: int) -> StoredMessage | None:
        topic = await self._lifecycle.persistent(name)
        found = topic.subscriptions.by_name.get(subscription)
        if found is None:  # as in Apache Pulsar, the request creates the subscription
            found = await topic.subscriptions.create(SubscribeRequest(subscription, from_earliest=True))
            found.place.is_active = True
        position = found.cursor.unacknowledged(max(0, number - 1))
        return None if position is None else await stored_message(topic, position)

    async def analyze_backlog(
        self, name: TopicName, subscription: str, start: MessagePosition | None
    ) -> dict[str, object]:
        topic, found = await self._subscription(name, subscription)
        position = None if start is None else Position(start.ledger_id, start.entry_id)
        return await analyze_backlog(
            topic, found, EARLIEST if position is not None and position < EARLIEST else position
        )

    async def subscription_properties(self, name: TopicName, subscription: str) -> dict[str, str]:
        if not name.persistent:
            _, unstored = await self._unstored(name, subscription)
            return dict(unstored.properties)
        _, found = await self._subscription(name, subscription)
        return dict(found.cursor.cursor_properties)

    async def set_subscription_properties(self, name: TopicName, subscription: str, properties: dict[str, str]) -> None:
        if not name.persistent:
            subscriptions, unstored = await self._unstored(name, subscription)
            with subscriptions.property_room.taken(subscription, properties):
                unstored.properties = dict(properties)
            return
        topic, found = await self._subscription(name, subscription)
        with topic.subscriptions.property_room.taken(subscription, properties):
            await found.cursor.set_cursor_properties(properties)


async def _reset(subscription: Subscription, position: Position, ack_set: list[int] | None) -> None:
    """Raise ConsumerBusyError while another reset is under way."""
    if subscription.fenced:
        raise wire_refusals.SUBSCRIPTION_NOT_FENCED_TO_DELETE.error()
    await subscription.seek(position, ack_set)
