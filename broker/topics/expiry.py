"""Expires messages past their TTL and subscriptions that no consumer used for a long time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.topic import Topic
    from magnetar.storage.position import Position

log = structlog.get_logger(__name__)
_MINUTE_S = 60


async def expire_by_ttl(topic: Topic) -> None:
    """Skip, for every durable subscription, what is older than the topic's message TTL."""
    ttl_s = topic.config.message_ttl_seconds
    if ttl_s > 0:
        for subscription in topic.subscriptions.durable():
            await expire_older_than(topic, subscription, ttl_s)


async def expire_older_than(topic: Topic, subscription: Subscription, seconds: int) -> bool:
    """Skip what was published longer ago than that; False when there was nothing."""
    position = await topic.ledger.position_for_time(topic.context.now_ms() - seconds * 1000)
    return await _expire_before(topic, subscription, position)


async def expire_up_to(topic: Topic, subscription: Subscription, position: Position) -> bool:
    """Skip up to and including that message; False when there was nothing."""
    return await _expire_before(
        topic, subscription, topic.ledger.next_valid(position) or topic.ledger.last_confirmed.next()
    )


async def _expire_before(topic: Topic, subscription: Subscription, position: Position) -> bool:
    before = subscription.cursor.backlog_entries
    await topic.subscriptions.move_to(subscription, position, expired=True)
    expired = before - subscription.cursor.backlog_entries
    if expired:
        log.info("messages.expired", topic=str(topic.name), subscription=subscription.name, entries=expired)
    return expired > 0


async def delete_unused_subscriptions(topic: Topic) -> None:
    """Delete durable subscriptions without a consumer for longer than subscriptionExpirationTimeMinutes.

    Time is counted from the check that first found it unused, and monotonically: setting the wall clock must not
    delete a subscription in use.
    """
    minutes = topic.config.subscription_expiration_minutes
    if minutes <= 0:
        return
    for subscription in topic.subscriptions.durable():
        if topic.subscriptions.unused_s(subscription) > minutes * _MINUTE_S:
            await topic.subscriptions.delete(subscription.name)
            log.info("subscription.expired", topic=str(topic.name), subscription=subscription.name)
