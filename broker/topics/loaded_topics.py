"""The loaded topics of a broker by name, with indexes by namespace and by partitioned topic: a change of a policy looks
at the topics of its subject alone, not at those of all tenants.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, ValuesView

    from magnetar.broker.topics.served_topic import ServedTopic

__all__ = ["LoadedTopics"]


class LoadedTopics(MutableMapping[str, "ServedTopic"]):
    """Full name -> topic, in the order of the loads."""

    def __init__(self) -> None:
        self._all: dict[str, ServedTopic] = {}
        self._of_namespace: dict[str, dict[str, ServedTopic]] = {}
        self._partitions: dict[str, dict[str, ServedTopic]] = {}
        """By the name of their partitioned topic."""

    def of_namespace(self, namespace: str) -> list[ServedTopic]:
        """Return the topics of the namespace "tenant/name"."""
        return list(self._of_namespace.get(namespace, {}).values())

    def of_base(self, base: str) -> list[ServedTopic]:
        """Return the topic of that name, and the partitions of the partitioned topic of that name."""
        plain = self._all.get(base)
        return [*(() if plain is None else (plain,)), *self._partitions.get(base, {}).values()]

    def __getitem__(self, name: str) -> ServedTopic:
        return self._all[name]

    def __setitem__(self, name: str, topic: ServedTopic) -> None:
        self.pop(name, None)
        self._all[name] = topic
        self._of_namespace.setdefault(topic.name.namespace, {})[name] = topic
        if topic.name.is_partition:
            self._partitions.setdefault(str(topic.name.base), {})[name] = topic

    def __delitem__(self, name: str) -> None:
        topic = self._all.pop(name)
        _remove(self._of_namespace, topic.name.namespace, name)
        if topic.name.is_partition:
            _remove(self._partitions, str(topic.name.base), name)

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def values(self) -> ValuesView[ServedTopic]:
        return self._all.values()

    def clear(self) -> None:
        for names in (self._all, self._of_namespace, self._partitions):
            names.clear()


def _remove(index: dict[str, dict[str, ServedTopic]], key: str, name: str) -> None:
    del index[key][name]
    if not index[key]:
        del index[key]
