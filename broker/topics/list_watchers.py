"""All topic list watchers of a broker: changes of the catalogue reach them in slices.

A change of the catalogue only appends to the list of its namespace. One task per namespace takes all changes of a turn,
matches them once per pattern, and yields to the event loop between patterns and between slices of watchers. The cost
of creating a topic does not depend on the number of watchers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from magnetar.broker.errors import TooManyRequestsError
from magnetar.broker.slices import give_way, sliced
from magnetar.broker.topics.list_watcher import TopicListWatcher, WatchedNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.catalog import TopicCatalog
    from magnetar.broker.topics.list_watcher import WatchingClient
    from magnetar.broker.topics.patterns import Room, TopicPattern

MAX_WATCHED_NAMES: Final = 4_000_000
"""The most names held for all watchers together, each a reference; watchers of equal patterns share their names."""


class _Namespace:
    """The watched patterns of one namespace, and the changes that no watcher has received."""

    def __init__(self) -> None:
        self.watched: dict[str, WatchedNames] = {}
        self.loading: dict[str, asyncio.Task[None]] = {}
        self.changes: list[tuple[str, bool]] = []
        self.recheck = False
        self.busy = False


class TopicListWatchers:
    """The watchers of all clients; WATCH_TOPIC_LIST opens a watcher, `TopicListWatcher.stop` ends it."""

    def __init__(self, catalog: TopicCatalog, tasks: TaskSet) -> None:
        self._catalog = catalog
        self._tasks = tasks
        self._namespaces: dict[str, _Namespace] = {}
        catalog.listen(self._changed)

    def open(
        self,
        client: WatchingClient,
        watcher_id: int,
        namespace: str,
        pattern: TopicPattern,
        room: Room | None = None,
        matching: asyncio.Lock | None = None,
    ) -> TopicListWatcher:
        """Open a watcher, which sends no update before `first_list`.

        room: as in `TopicPattern.filter_in_slices`. matching: held while the watcher matches all names; other watchers
        of the client wait meanwhile, without a list.
        """
        found = self._namespaces.setdefault(namespace, _Namespace())
        watched = found.watched.get(pattern.text)
        if watched is None:
            watched = found.watched[pattern.text] = WatchedNames(pattern)
            work = watched.load(lambda: self._catalog.listed_names(namespace), room, matching)
            found.loading[pattern.text] = self._tasks.spawn(work, "topic_list.load")
        watcher = TopicListWatcher(client, watcher_id, namespace, watched, lambda: self._look_again(namespace))
        watched.watchers[watcher] = None
        watcher.on_stop(lambda stopped: self._stopped(namespace, stopped))
        return watcher

    async def loaded(self, watcher: TopicListWatcher, namespace: str) -> None:
        """Return when the matching names are known."""
        watched, found = watcher.watched, self._namespaces.get(namespace)
        loading = None if found is None else found.loading.get(watched.pattern.text)
        if loading is not None:
            await asyncio.shield(loading)
            assert found is not None
            found.loading.pop(watched.pattern.text, None)

    async def first_list(self, watcher: TopicListWatcher, namespace: str) -> tuple[list[str], str]:
        """The matching names and their hash; updates follow from here on. Raises TooManyRequestsError."""
        await self.loaded(watcher, namespace)
        watched = watcher.watched
        if not watcher.started and self._held_names() > MAX_WATCHED_NAMES:
            watcher.stop()
            raise TooManyRequestsError("Too many topics are watched at this time")
        watcher.started = True
        return list(watched.names), watched.digest

    def recheck(self, tenant: str, namespace: str | None) -> None:
        """Try to send held-back updates again after rights have changed."""
        for name in self._namespaces:
            if name.partition("/")[0] == tenant and namespace in (None, name):
                self._look_again(name)

    def _look_again(self, namespace: str) -> None:
        found = self._namespaces.get(namespace)
        if found is not None:
            found.recheck = True
            self._start(namespace, found)

    def _held_names(self) -> int:
        return sum(len(w.names) for found in self._namespaces.values() for w in found.watched.values())

    def _stopped(self, namespace: str, watcher: TopicListWatcher) -> None:
        found, watched = self._namespaces[namespace], watcher.watched
        watched.watchers.pop(watcher, None)
        if not watched.watchers and found.watched.get(watched.pattern.text) is watched:
            del found.watched[watched.pattern.text]
            found.loading.pop(watched.pattern.text, None)
        if not found.watched and not found.busy:
            del self._namespaces[namespace]

    # --- changes --------------------------------------------------------------------------------------------------

    def _changed(self, namespace: str, new: list[str], deleted: list[str]) -> None:
        found = self._namespaces.get(namespace)
        if found is not None:
            found.changes += [(name, True) for name in new]
            found.changes += [(name, False) for name in deleted]
            self._start(namespace, found)

    def _start(self, namespace: str, found: _Namespace) -> None:
        if not found.busy:
            found.busy = True
            self._tasks.spawn(self._follow(namespace, found), "topic_list.tell")

    async def _follow(self, namespace: str, found: _Namespace) -> None:
        try:
            while found.changes or found.recheck:
                changes, found.changes = found.changes, []
                recheck, found.recheck = found.recheck, False
                for watched in list(found.watched.values()):
                    async for part in sliced(changes, watched.pattern.slice_names):
                        new, gone = watched.apply(part)
                        if new or gone:
                            await watched.refresh_digest()
                            await _tell(watched, new, gone)
                    if recheck:
                        await _tell(watched, (), ())
                    await give_way()
        finally:
            found.busy = False
            if not found.watched and self._namespaces.get(namespace) is found:
                del self._namespaces[namespace]


async def _tell(watched: WatchedNames, new: Sequence[str], gone: Sequence[str]) -> None:
    async for watchers in sliced(list(watched.watchers)):
        for watcher in watchers:
            watcher.tell(new, gone)
