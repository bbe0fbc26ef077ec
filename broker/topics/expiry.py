"""Removal of unused data: messages past their TTL, subscriptions without consumers for a long time, inactive topics
(brokerDeleteInactiveTopics*; Apache Pulsar InactiveTopicPolicies).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.broker.slices import in_turns
from magnetar.broker.topics.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.position import Position


log = structlog.get_logger(__name__)
_MINUTE_S = 60
_LITTLE_BACKLOG = 1000
"""A subscription with a consumer and a backlog of fewer entries counts as nearly caught up."""
WITHOUT_SUBSCRIPTIONS = "delete_when_no_subscriptions"


async def expire_by_ttl(topic: Topic) -> None:
    """Skip, for every durable subscription, messages older than the topic's message TTL."""
    ttl_s = topic.config.message_ttl_seconds
    if ttl_s > 0:
        async for subscription in in_turns(topic.subscriptions.durable()):
            await expire_older_than(topic, subscription, ttl_s)


async def expire_older_than(topic: Topic, subscription: Subscription, seconds: int) -> bool:
    """Skip messages published more than `seconds` ago; False when there were none.

    None is skipped while the first message of the backlog is young enough, though messages with older stamps follow,
    from a time when the clock was behind. In Apache Pulsar 4.2.4 the first stored entry of the topic decides, which may
    be acknowledged: of the ages 100, 0, 100 and 0 s, the first acknowledged, a limit of 60 s skips two more there.
    """
    older_than_ms = topic.context.now_ms() - seconds * 1000
    position = await topic.ledger.position_for_time(older_than_ms, subscription.cursor.mark_delete)
    backlog = subscription.cursor.backlog_entries
    expired = await _expire_before(topic, subscription, position)
    if expired or not is_nearly_caught_up(subscription, backlog):
        subscription.note_expiry()
    return expired


async def expire_up_to(
    topic: Topic, subscription: Subscription, position: Position, left: list[int] | None = None
) -> bool:
    """Skip messages up to and including the position, but for those of its entry that are `left` (words of an ack
    set; empty: all). False when the expiry skips no whole entry.
    """
    subscription.note_expiry()
    if left is not None:
        expired = await _expire_before(topic, subscription, position)
        if left and subscription.context.settings.batch_index_acks:
            subscription.cursor.ack_cumulative(position, left)
            await subscription.cursor.flush()
        return expired
    return await _expire_before(
        topic, subscription, topic.ledger.next_valid(position) or topic.ledger.last_confirmed.next()
    )


async def _expire_before(topic: Topic, subscription: Subscription, position: Position) -> bool:
    expired = await topic.subscriptions.move_to(subscription, position, expired=True)
    if expired:
        log.info("messages.expired", topic=str(topic.name), subscription=subscription.name, entries=expired)
    return expired > 0


def is_nearly_caught_up(subscription: Subscription, backlog: int) -> bool:
    """Whether Apache Pulsar searches no expired messages behind the oldest message."""
    return backlog == 0 or (bool(subscription.consumers) and backlog < _LITTLE_BACKLOG)


async def delete_unused_subscriptions(topic: Topic) -> None:
    """Delete durable subscriptions without a consumer for longer than subscriptionExpirationTimeMinutes.

    The time runs from the first check that finds the subscription unused, by the monotonic clock: a change of the wall
    clock must not delete a subscription in use.
    """
    minutes = topic.config.subscription_expiration_minutes
    if minutes <= 0:
        return
    async for subscription in in_turns(topic.subscriptions.durable()):
        if topic.subscriptions.unused_s(subscription) > minutes * _MINUTE_S:
            await topic.subscriptions.delete(subscription.name)
            log.info("subscription.expired", topic=str(topic.name), subscription=subscription.name)


def is_deletable(topic: ServedTopic) -> bool:
    """Whether the policy of the topic requires its deletion now; a topic in use counts as used at this check.

    In a cluster only the owner of the topic decides: after the broker hands over a bundle, clients of its topics may
    already be connected to the next owner. As in Apache Pulsar no topic is deleted by a policy without a mode.
    """
    policy = topic.config.inactive_topic
    mode = policy.inactive_topic_delete_mode
    if not policy.delete_while_inactive or mode is None or topic.name.is_system or not topic.context.serves(topic.name):
        return False
    if _is_in_use(topic, mode):
        topic.life.used()
        return False
    idle_s = topic.context.monotonic() - topic.life.last_used_s
    return idle_s >= policy.max_inactive_duration_seconds and not _is_retained(topic, idle_s)


def _is_in_use(topic: ServedTopic, mode: str) -> bool:
    """Whether the topic has a producer or a subscription; by the other mode a subscription counts while it has a
    backlog, and consumers do not count. A non-persistent topic has no backlog.
    """
    if len(topic.producers):
        return True
    if mode == WITHOUT_SUBSCRIPTIONS or not isinstance(topic, Topic):
        return bool(topic.subscriptions.by_name)  # the cursor of compaction counts
    return any(s.cursor.backlog_entries for s in topic.subscriptions.by_name.values())


def _is_retained(topic: ServedTopic, idle_s: float) -> bool:
    """Whether retention keeps the topic for its messages (Apache Pulsar shouldTopicBeRetained)."""
    if not isinstance(topic, Topic) or not topic.ledger.entries:
        return False
    retained_s = topic.config.retention.time_in_minutes * 60
    return retained_s < 0 or idle_s < retained_s


async def delete_if_inactive(
    topic: ServedTopic, delete: Callable[[TopicName, Callable[[ServedTopic], bool]], Awaitable[None]]
) -> None:
    """Run the periodic check of one topic. `delete`: `TopicLifecycle.delete_inactive`, which repeats the check when it
    closes the topic; schema and policies go too.
    """
    if is_deletable(topic):
        log.info("topic.inactive", topic=str(topic.name))
        await delete(topic.name, is_deletable)
