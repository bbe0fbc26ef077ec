"""Which topics there are, for the admin API (`admin.api.TopicsApi`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.admin.api import Domain
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName


# With a consumer and less than this behind, a subscription counts as caught up: nothing is looked for.
_LITTLE_BACKLOG = 1000
_STATS_IN_ONE_TURN = 16


class AdminTopics:
    """The broker's side of `TopicsApi`; see there for what each call promises."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._catalog = topics.catalog
        self.offloads_asked: set[TopicName] = set()

    def names(self, namespace: str, domain: Domain) -> list[str]:
        if domain == "persistent":
            return self._catalog.names(namespace)
        return [str(t.name) for t in self._topics.loaded.values() if not t.persistent and t.name.namespace == namespace]

    def partitioned_names(self, namespace: str, domain: Domain) -> list[str]:
        return self._catalog.partitioned_names(namespace, domain)

    def partition_count(self, name: TopicName) -> int | None:
        found = self._catalog.partitioned(name)
        return None if found is None else found.partitions

    def exists(self, name: TopicName) -> bool:
        return self._topics.known(name)

    async def partitions_for_clients(self, name: TopicName, *, auto_create: bool) -> int:
        return await self._topics.partitions(name, auto_create=auto_create)

    def loaded_names(self, namespace: str | None = None) -> list[TopicName]:
        names = [topic.name for topic in self._topics.loaded.values()]
        return names if namespace is None else [name for name in names if name.namespace == namespace]
