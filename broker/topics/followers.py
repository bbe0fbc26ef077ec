"""Loaded topics follow changes of settings, policies and grants.

A role with the right to a namespace chooses when its policies change, and the namespace may have a hundred thousand
loaded topics. The topics of a change therefore follow in slices: the topics of the first slice at once, the others in
two rounds with one slice a turn of the event loop. The first round closes the clients that lost their right, in all
topics; in the second round the topics apply their settings, for which a topic may wait for the disk. A topic reads the
settings and grants that are in force when it follows. Changes therefore need no order, and changes of the same subject
share a round: a change during a round marks the subject for one more round. A topic with many clients or subscriptions
("wide") has turns of its own within the rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.errors import BrokerError
from magnetar.broker.slices import give_way, sliced
from magnetar.broker.topics.expiry import expire_by_ttl
from magnetar.broker.topics.topic import Topic
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.policies.namespace_store import PolicyChange
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.broker.topics.topic_registry import Topics

    Subject = PolicyChange | None
    """The subject of a change; None: the settings of the broker."""

__all__ = ["AT_ONCE", "TopicFollowers"]

log = structlog.get_logger(__name__)
AT_ONCE = 256
"""The most topics of a change that follow in one turn of the event loop."""
_SLICE_S = 1.0
"""The next slice begins after this time at the latest: a topic of the current slice may wait for the disk."""
_UNLOAD_ATTEMPTS = 3


class TopicFollowers:
    """The loaded topics of a broker, which follow changes."""

    def __init__(self, topics: Topics, tasks: TaskSet, is_foreign: Callable[[str], bool]) -> None:
        """is_foreign: whether other clusters serve a namespace, whose topics this broker unloads."""
        self._topics, self._tasks, self._is_foreign = topics, tasks, is_foreign
        self._rights = _Rounds(self._recheck_all, self._subjects, tasks)
        self._settings = _Rounds(self._follow_all, self._subjects, tasks)
        self._unloads = _Rounds(self._unload_all, self._subjects, tasks)

    def follow_settings(self) -> None:
        """Have all loaded topics follow a changed setting of the broker."""
        self._changed(None)

    def follow_policies(self, change: PolicyChange) -> None:
        """Have the topics follow changed policies or grants, and close the clients that lost their right."""
        if change.namespace is None:  # a tenant has no policies
            return
        self._changed(change)
        if change.topic is None and self._is_foreign(change.namespace):
            self._unloads.begin(change, self._subjects(change))

    def _changed(self, subject: Subject) -> None:
        if self._rights.again(subject):
            return
        topics = self._subjects(subject)
        later = topics[AT_ONCE:]
        for topic in topics[:AT_ONCE]:
            if not topic.is_current:
                self._follow(topic)
            if topic.is_wide:
                later.append(topic)
            else:
                _recheck_rights(topic, subject)
        if later:
            self._rights.begin(subject, later)

    def _subjects(self, subject: Subject) -> list[ServedTopic]:
        """Return the loaded topics of a change; for a setting of the broker the topic loaded last comes first."""
        loaded = self._topics.loaded
        if subject is None:
            return list(loaded.values())[::-1]
        if subject.topic is not None:
            return loaded.of_base(subject.topic)
        return [] if subject.namespace is None else loaded.of_namespace(subject.namespace)

    async def _recheck_all(self, subject: Subject, topics: list[ServedTopic]) -> None:
        wide: list[ServedTopic] = []
        async for part in sliced(topics, AT_ONCE):
            for topic in filter(self._is_loaded, part):
                if topic.is_wide:
                    wide.append(topic)
                else:
                    _recheck_rights(topic, subject)
        for topic in filter(self._is_loaded, wide):
            if _reaches_clients(subject, topic):
                await topic.recheck_rights_in_turns()
        self._settings.begin(subject, topics)

    async def _follow_all(self, _subject: Subject, topics: list[ServedTopic]) -> None:
        async for part in sliced(topics, AT_ONCE):
            tasks = [self._follow(topic) for topic in part if self._is_loaded(topic) and not topic.is_current]
            if tasks:
                await asyncio.wait(tasks, timeout=_SLICE_S)

    async def _unload_all(self, subject: Subject, topics: list[ServedTopic]) -> None:
        """Unload the topics of a namespace that other clusters serve from now on; their messages stay. A topic whose
        unload fails, or that was loading meanwhile, has further attempts behind all others.
        """
        assert subject is not None
        assert subject.namespace is not None
        for _ in range(_UNLOAD_ATTEMPTS):
            unloads = []
            async for part in sliced(topics, AT_ONCE):
                if not self._is_foreign(subject.namespace):
                    return
                tasks = [self._tasks.spawn(self._unload(topic), "topic.unload") for topic in part]
                await asyncio.wait(tasks, timeout=_SLICE_S)
                unloads += tasks
            if unloads:
                await asyncio.wait(unloads)
            await self._topics.settled(subject.namespace)
            topics = self._subjects(subject)
            if not topics:
                return

    async def _unload(self, topic: ServedTopic) -> None:
        if self._is_loaded(topic):
            try:
                await self._topics.unload(topic.name)
            except (BrokerError, StorageError) as error:
                log.warning("topic.unload_failed", topic=str(topic.name), error=str(error))

    def _follow(self, topic: ServedTopic) -> asyncio.Task[None]:
        return self._tasks.spawn(_follow(topic), "topic.config_changed")

    def _is_loaded(self, topic: ServedTopic) -> bool:
        """Whether the topic is still loaded: a topic that was closed meanwhile follows no change."""
        return self._topics.loaded.get(str(topic.name)) is topic


async def _follow(topic: ServedTopic) -> None:
    """Apply the policies to the topic; messages that are older than the message TTL expire at once, as in Apache
    Pulsar.
    """
    await topic.config_changed()
    if isinstance(topic, Topic) and topic.is_open:
        with contextlib.suppress(BrokerError):  # subscriptions that end
            await expire_by_ttl(topic)


class _Rounds:
    """Rounds through the topics of changes, at most one round of each subject at a time."""

    def __init__(
        self,
        go: Callable[[Subject, list[ServedTopic]], Awaitable[None]],
        topics_of: Callable[[Subject], list[ServedTopic]],
        tasks: TaskSet,
    ) -> None:
        self._go, self._topics_of, self._tasks = go, topics_of, tasks
        self._marked: dict[Subject, bool] = {}
        """Subjects with a round under way: whether one more round follows."""

    def again(self, subject: Subject) -> bool:
        """Mark the subject for one more round; return False when no round of it is under way."""
        if subject not in self._marked:
            return False
        self._marked[subject] = True
        return True

    def begin(self, subject: Subject, topics: list[ServedTopic]) -> None:
        """Begin a round through these topics, or mark the subject for one more round through all of its topics."""
        if not self.again(subject):
            self._marked[subject] = False
            self._tasks.spawn(self._run(subject, topics), "topics.follow")

    async def _run(self, subject: Subject, topics: list[ServedTopic]) -> None:
        try:
            await give_way()
            await self._go(subject, topics)
            while self._marked[subject]:
                self._marked[subject] = False
                await self._go(subject, self._topics_of(subject))
        finally:
            del self._marked[subject]


def _reaches_clients(change: Subject, topic: ServedTopic) -> bool:
    """Whether the change closes clients: topic policies do not in a non-persistent topic, as in Apache Pulsar 4.2."""
    return change is None or change.topic is None or topic.persistent


def _recheck_rights(topic: ServedTopic, change: Subject) -> None:
    """Close clients that lost their right."""
    if _reaches_clients(change, topic):
        try:
            topic.recheck_rights()
        except Exception:  # a bug in one topic must not keep the others from a revocation
            log.exception("topic.recheck_failed", topic=str(topic.name))
