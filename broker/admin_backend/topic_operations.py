"""The admin API's operations on topics (`admin.api.TopicOperationsApi`): the implementations of its four parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.admin_backend.admin_publishing import AdminPublishing
from magnetar.broker.admin_backend.admin_subscriptions import AdminSubscriptions
from magnetar.broker.admin_backend.topic_directory import AdminTopics
from magnetar.broker.admin_backend.topic_logs import AdminTopicLogs

if TYPE_CHECKING:
    from magnetar.broker.foreign_entries.converting_service import Converting
    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.topics.append_door import AppendDoor
    from magnetar.broker.topics.lifecycle import TopicLifecycle
    from magnetar.broker.topics.topic_registry import Topics

__all__ = ["TopicOperations"]


class TopicOperations:
    """The four parts: topics, logs, subscriptions and publishing."""

    def __init__(
        self,
        topics: Topics,
        lifecycle: TopicLifecycle,
        schemas: SchemaRegistry,
        door: AppendDoor,
        converting: Converting | None,
    ) -> None:
        self.directory = AdminTopics(topics)
        self.logs = AdminTopicLogs(topics, lifecycle, converting)
        self.subscriptions = AdminSubscriptions(topics, lifecycle)
        self.publishing = AdminPublishing(topics, schemas, door)
