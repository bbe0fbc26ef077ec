"""A watcher of a namespace's topics: tells one client which matching topics come and go (PIP-145)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import replies
from magnetar.protocol.topic_list import topics_hash

if TYPE_CHECKING:
    from magnetar.broker.network.connection import Connection
    from magnetar.broker.topics.catalog import TopicCatalog
    from magnetar.broker.topics.patterns import TopicPattern


class TopicListWatcher:
    """Lives from WATCH_TOPIC_LIST to WATCH_TOPIC_LIST_CLOSE or the end of the connection."""

    def __init__(
        self, conn: Connection, watcher_id: int, namespace: str, pattern: TopicPattern, catalog: TopicCatalog
    ) -> None:
        self._conn = conn
        self._watcher_id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self._catalog = catalog
        self.stop = catalog.listen(self._changed)

    def names(self) -> list[str]:
        """The matching topics of now; persistent ones alone are watched."""
        return self._pattern.filter(sorted(str(t) for t in self._catalog.topics(self._namespace) if not t.is_system))

    def _changed(self, namespace: str, new: list[str], deleted: list[str]) -> None:
        if namespace != self._namespace:
            return
        new, deleted = self._pattern.filter(new), self._pattern.filter(deleted)
        if new or deleted:
            self._conn.write(replies.watch_topic_update(self._watcher_id, new, deleted, topics_hash(self.names())))
