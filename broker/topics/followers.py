"""Loaded topics follow changes of settings, policies and grants.

A role with the right to a namespace chooses when its policies change, and the namespace may have a hundred thousand
loaded topics. So the topics of the change follow in slices: those of the first slice at once, the others one slice a
turn of the event loop. A topic reads the settings and grants of the moment at which it follows; changes need no order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.broker.slices import give_way

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
    """All loaded topics of a broker."""

    def __init__(self, topics: Topics, tasks: TaskSet) -> None:
        self._topics, self._tasks = topics, tasks

    def follow_settings(self) -> None:
        """A setting of the broker changed. Topics loaded last come first."""
        self._tell(list(reversed(self._topics.loaded.values())), self._follow_all)

    def follow_policies(self, change: PolicyChange) -> None:
        """Policies or grants changed: topics follow, clients that lost their right are closed."""
        if change.namespace is not None:  # a tenant has no policies
            self._tell(self._subjects(change), lambda topic: self._follow_change(topic, change))

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

    def _follow_all(self, topic: ServedTopic) -> asyncio.Task[None]:
        topic.recheck_rights()
        return self._tasks.spawn(topic.config_changed(), "topic.config_changed")

    def _follow_change(self, topic: ServedTopic, change: PolicyChange) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._tasks.spawn(topic.config_changed(), "topic.config_changed")
        if change.topic is None or topic.persistent:
            topic.recheck_rights()  # for policies of its own a non-persistent topic does not, as Apache Pulsar 4.2
        return task

    def _tell(self, topics: list[ServedTopic], follow: Callable[[ServedTopic], asyncio.Task[None]]) -> None:
        for topic in topics[:AT_ONCE]:
            follow(topic)
        if len(topics) > AT_ONCE:
            self._tasks.spawn(self._tell_rest(topics, follow), "topics.follow")

    async def _tell_rest(self, topics: list[ServedTopic], follow: Callable[[ServedTopic], asyncio.Task[None]]) -> None:
        for start in range(AT_ONCE, len(topics), AT_ONCE):
            await give_way()
            part = [topic for topic in topics[start : start + AT_ONCE] if self._is_loaded(topic)]
            tasks = [follow(topic) for topic in part]
            if tasks:
                await asyncio.wait(tasks, timeout=_SLICE_S)

    def _is_loaded(self, topic: ServedTopic) -> bool:
        """A topic that was closed meanwhile follows no change."""
        return self._topics.loaded.get(str(topic.name)) is topic
