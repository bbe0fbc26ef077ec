"""News of other brokers: names that they have just created, and that the memory of this broker does not have yet.

In a cluster memory has a change some milliseconds after the other broker has answered its client. A request with a name
that memory lacks waits before its handler judges, until memory has every change that was complete when the request
came. A name that memory has waits while a change of its records is being read whose notice has come, as a read through
the cache of Apache Pulsar does; else it costs nothing, and so does every name of a broker alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from magnetar.broker.errors import ServiceNotReadyError, UnreadableRecordError
from magnetar.broker.policies.namespace_store import POLICIES
from magnetar.broker.topics.catalog import partitioned_path
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName

__all__ = ["News"]

_READS: Final = 64
"""Topics whose existence is read at the same time: a storm of requests leaves room for other reads."""
_REPORTED_WITHIN_S: Final = 10.0
"""The longest wait for the report of a topic that the metadata store has."""


class News:
    """Each method returns None if memory can judge the request now, else the wait until it can. A wait raises
    ServiceNotReadyError if the metadata store does not answer.

    may: whether memory grants the role its right; a grant that memory lacks counts as an unknown name.

    catch_up: waits until memory has every change of records that was complete before the call; None for a broker alone.
    stored: whether the metadata store has the managed ledger of that name.
    change_of: the wait until memory has the changes of these records whose notices have come.
    """

    def __init__(
        self,
        namespaces: NamespaceStore,
        topics: Topics,
        stored: Callable[[str], Awaitable[bool]],
        catch_up: Callable[[], Awaitable[None]] | None,
        change_of: Callable[[Sequence[str]], Awaitable[None] | None] = lambda _: None,
    ) -> None:
        self._namespaces, self._topics = namespaces, topics
        self._stored = stored
        self._catch_up, self._change_of = catch_up, change_of
        self._reads = asyncio.Semaphore(_READS)
        self._awaited: dict[str, set[asyncio.Future[None]]] = {}
        """Topic -> the requests that wait for its report. One listener serves all of them: a report costs the same,
        however many requests wait.
        """
        self._end_listening: Callable[[], None] = lambda: None

    def of_anything(self) -> Awaitable[None] | None:
        """For a request about a name that another broker may have deleted, too."""
        return None if self._catch_up is None else self._catch_up()

    def of_tenant(self, tenant: str) -> Awaitable[None] | None:
        if self._catch_up is None:
            return None
        if tenant in self._namespaces.tenants:
            return self._change_of([f"{POLICIES}/{tenant}"])
        return self._catch_up()

    def of_namespace(self, namespace: str, may: Callable[[], bool] = lambda: True) -> Awaitable[None] | None:
        if self._catch_up is None:
            return None
        if self._namespaces.exists(namespace) and may():
            return self._change_of(_paths_of(namespace))
        return self._catch_up()

    def of_topic(
        self, name: TopicName, *, may_create: bool, may: Callable[[], bool] = lambda: True
    ) -> Awaitable[None] | None:
        """may_create: the request creates a missing topic, where auto creation allows that."""
        if self._catch_up is None:
            return None
        if self._namespaces.exists(name.namespace) and self._knows(name):
            if not may():
                return self._catch_up()
            return self._change_of([*_paths_of(name.namespace), partitioned_path(name.base)])
        return self._find(self._catch_up, name, may_create=may_create)

    def _knows(self, name: TopicName) -> bool:
        """Whether memory has the topic, or the partitioned topic of which it is a partition."""
        if self._topics.known(name):
            return True
        try:
            base = self._topics.catalog.partitioned(name.base)
        except UnreadableRecordError:
            return True
        return base is not None and (not name.is_partition or name.partition < base.partitions)

    async def _find(self, catch_up: Callable[[], Awaitable[None]], name: TopicName, *, may_create: bool) -> None:
        await catch_up()
        if not name.persistent or self._knows(name) or not self._namespaces.exists(name.namespace):
            return
        if may_create and self._topics.may_be_created(name) and not self._creates_partitions(name):
            return  # the topic is answered alike, whether it exists or not
        try:
            async with asyncio.timeout(_REPORTED_WITHIN_S):
                await self._wait_reported(name)
        except (StorageError, TimeoutError) as error:
            raise ServiceNotReadyError(f"The metadata store does not answer for {name}") from error

    def _creates_partitions(self, name: TopicName) -> bool:
        return self._topics.context.effective(name).auto_topic_creation_type == "partitioned"

    async def _wait_reported(self, name: TopicName) -> None:
        """Wait for the report of a plain topic that the store has: only the order of reports tells whether another
        broker has deleted the topic since.
        """
        reported = self._expect(str(name))
        try:
            async with self._reads:
                is_stored = await self._stored(name.persistence_name)
            if is_stored and not self._topics.known(name):
                await reported
        finally:
            self._expect_no_more(str(name), reported)

    def _expect(self, topic: str) -> asyncio.Future[None]:
        """The report of the topic, from now on."""
        if not self._awaited:
            self._end_listening = self._topics.catalog.listen(self._reported)
        reported = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(topic, set()).add(reported)
        return reported

    def _expect_no_more(self, topic: str, reported: asyncio.Future[None]) -> None:
        waiting = self._awaited[topic]
        waiting.discard(reported)
        if not waiting:
            del self._awaited[topic]
        if not self._awaited:
            self._end_listening()

    def _reported(self, _namespace: str, new: list[str], _deleted: list[str]) -> None:
        for topic in new:
            for reported in self._awaited.get(topic, ()):
                if not reported.done():
                    reported.set_result(None)


def _paths_of(namespace: str) -> list[str]:
    """The records that a request about the namespace is judged by."""
    return [f"{POLICIES}/{namespace}", f"{POLICIES}/{namespace.partition('/')[0]}"]
