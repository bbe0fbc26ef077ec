"""Loaded topics follow changes of settings, policies and grants.

A role with the right to a namespace chooses when its policies change, and the namespace may have a hundred thousand
loaded topics. So the topics of the change follow in slices: those of the first slice at once, the others one slice a
turn of the event loop. Clients that lost their right are closed first, in all topics, because a topic that follows a
change of its settings may wait for the disk. A topic reads the settings and grants of the moment at which it follows;
changes need no order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.broker.slices import give_way, sliced

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.policies.namespaces import PolicyChange
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.broker.topics.topic_registry import Topics

__all__ = ["AT_ONCE", "TopicFollowers"]

AT_ONCE = 256
"""Topics of a change that follow in one turn."""
_SLICE_S = 1.0
"""Most time for the topics of a slice before those of the next slice begin: a topic may wait for the disk."""


class TopicFollowers:
    """The loaded topics of a broker, which follow changes."""

    def __init__(self, topics: Topics, tasks: TaskSet) -> None:
        self._topics, self._tasks = topics, tasks

    def follow_settings(self) -> None:
        """A setting of the broker changed. Topics loaded last come first."""
        self._tell(list(reversed(self._topics.loaded.values())), lambda topic: topic.recheck_rights())

    def follow_policies(self, change: PolicyChange) -> None:
        """Policies or grants changed: topics follow, clients that lost their right are closed."""
        if change.namespace is not None:  # a tenant has no policies
            self._tell(self._subjects(change), lambda topic: _recheck_rights(topic, change))

    def _subjects(self, change: PolicyChange) -> list[ServedTopic]:
        """The topics of a change: comparing the names of 100,000 topics takes some 10 ms."""
        loaded, subject = self._topics.loaded, change.topic
        if subject is None:
            return [topic for topic in loaded.values() if topic.name.namespace == change.namespace]
        partition = f"{subject}-partition-"
        return [
            topic
            for name, topic in loaded.items()
            if name == subject or (name.startswith(partition) and str(topic.name.base) == subject)
        ]

    def _tell(self, topics: list[ServedTopic], recheck: Callable[[ServedTopic], None]) -> None:
        for topic in topics[:AT_ONCE]:
            self._follow(topic)
            recheck(topic)
        if len(topics) > AT_ONCE:
            self._tasks.spawn(self._tell_rest(topics[AT_ONCE:], recheck), "topics.follow")

    async def _tell_rest(self, topics: list[ServedTopic], recheck: Callable[[ServedTopic], None]) -> None:
        await give_way()
        async for part in sliced(topics, AT_ONCE):
            for topic in filter(self._is_loaded, part):
                recheck(topic)
        await give_way()
        async for part in sliced(topics, AT_ONCE):
            tasks = [self._follow(topic) for topic in part if self._is_loaded(topic)]
            if tasks:
                await asyncio.wait(tasks, timeout=_SLICE_S)

    def _follow(self, topic: ServedTopic) -> asyncio.Task[None]:
        return self._tasks.spawn(topic.config_changed(), "topic.config_changed")

    def _is_loaded(self, topic: ServedTopic) -> bool:
        """A topic that was closed meanwhile follows no change."""
        return self._topics.loaded.get(str(topic.name)) is topic


def _recheck_rights(topic: ServedTopic, change: PolicyChange) -> None:
    """Close clients that lost their right. A non-persistent topic closes no clients for topic policies, as in Apache
    Pulsar 4.2.
    """
    if change.topic is None or topic.persistent:
        topic.recheck_rights()
