"""Deletion of inactive topics (brokerDeleteInactiveTopics*; Apache Pulsar InactiveTopicPolicies)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.broker.topics.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.protocol.topic_name import TopicName

log = structlog.get_logger(__name__)
WITHOUT_SUBSCRIPTIONS = "delete_when_no_subscriptions"
CAUGHT_UP = "delete_when_subscriptions_caught_up"


def is_deletable(topic: ServedTopic) -> bool:
    """Whether the topic's policy has it deleted now. A non-persistent one has no subscriptions without consumers.

    In a cluster the owner decides: clients of a topic whose bundle is handed over may be with the next owner already.
    """
    policy = topic.config.inactive_topic
    if not policy.delete_while_inactive or topic.name.is_system or not topic.is_idle:
        return False
    if not topic.context.serves(topic.name):
        return False
    limit_s = policy.max_inactive_duration_seconds
    idle_s = topic.context.monotonic() - topic.life.last_used_s
    if idle_s < limit_s:
        return False
    if not isinstance(topic, Topic):
        return True
    retained_s = topic.config.retention.time_in_minutes * 60
    if retained_s < 0 or idle_s < retained_s:
        return False  # what retention keeps must not go with its topic (Apache Pulsar shouldTopicBeRetained)
    subscriptions = [s for s in topic.subscriptions.by_name.values() if s.durable]  # that of compaction counts
    if policy.inactive_topic_delete_mode == WITHOUT_SUBSCRIPTIONS:
        return not subscriptions
    return all(s.cursor.backlog_entries == 0 for s in subscriptions)


async def delete_if_inactive(topic: ServedTopic, delete: Callable[[TopicName], Awaitable[None]]) -> None:
    """The periodic check of one topic; `delete` is that of `TopicLifecycle`: schema and policies go with the topic."""
    if is_deletable(topic):
        log.info("topic.inactive", topic=str(topic.name))
        await delete(topic.name)
