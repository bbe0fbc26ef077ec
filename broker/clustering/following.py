"""Follows changes of other brokers to policies, to settings and to the set of topics: watches report changed nodes, and
the broker reads these nodes again.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import structlog

from magnetar.broker.dynamic_settings import CONFIGURATION
from magnetar.broker.errors import UnreadableRecordError
from magnetar.broker.policies.failure_domains import DOMAINS_NODE
from magnetar.broker.policies.isolation_store import ISOLATION_NODE
from magnetar.broker.policies.namespace_store import DEFAULT_QUOTA, POLICIES, QUOTAS, RESOURCE_GROUPS
from magnetar.broker.topics.catalog import ROOT as PARTITIONED
from magnetar.protocol.topic_name import PERSISTENT, TopicName
from magnetar.protocol.url_encoder import url_encoder_path
from magnetar.storage.errors import StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from magnetar.broker.dynamic_settings import DynamicSettings
    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.catalog import TopicCatalog
    from magnetar.storage.coordination import Coordination

__all__ = ["Following"]

log = structlog.get_logger(__name__)

_CLUSTERS: Final = "/admin/clusters"
_TOPICS: Final = "/managed-ledgers"
_TOGETHER: Final = 500
"""The number of names that are compared in one turn of the event loop."""
_RETRY_S: Final = 0.2
_APPLIED_WITHIN_S: Final = 3.0
"""The longest wait of a request for a change whose notice has come: without the metadata service the last policies stay
in force.
"""


class Following:
    """Follows the changes. Call ``start`` before the broker reads policies and topics for the first time.

    events_appeared: called with a namespace whose topic of events was created.
    """

    def __init__(
        self, metadata: Coordination, tasks: TaskSet, events_appeared: Callable[[str], None] = lambda _: None
    ) -> None:
        self._events_appeared = events_appeared
        self._metadata = metadata
        self._tasks = tasks
        self._stops: list[Callable[[], None]] = []
        self._topic_watches: dict[str, Callable[[], None]] = {}
        self._work: set[asyncio.Task[object]] = set()
        """Reports that this broker applies now."""
        self._applying: dict[str, set[asyncio.Task[object]]] = {}
        """The same by path."""
        self._reports = asyncio.Lock()
        self._children: dict[str, frozenset[str]] = {}
        """Namespace -> names of its topics in the last report. Of a new report only the names that differ are
        handled.
        """
        self._unreported: dict[str, list[TopicName]] = {}
        """Namespace -> its known topics when the watch of its topics was requested. The first report removes those
        that it lacks.
        """
        self._namespaces: NamespaceStore
        self._catalog: TopicCatalog
        self._settings: DynamicSettings | None = None
        self._ready = False
        self._early: dict[str, Callable[[str], None]] = {}
        """Path -> handler of the changes before ``follow``; the broker may have read these values before the change."""

    async def start(self) -> None:
        """Set the watches: they report every change of a value that is read after this call has returned."""
        for prefix, changed in (
            (POLICIES, self._policies_changed),
            (_CLUSTERS, self._cluster_changed),
            (RESOURCE_GROUPS, self._resource_group_changed),
            (QUOTAS, self._quota_changed),
            (PARTITIONED, self._partitioned_changed),
            (CONFIGURATION, self._configuration_changed),
        ):
            self._stops.append(self._metadata.watch(prefix, partial(self._changed, changed)))
        await self._metadata.watching()

    async def follow(
        self, namespaces: NamespaceStore, catalog: TopicCatalog, settings: DynamicSettings | None = None
    ) -> None:
        """Apply changes to these stores from now on, first the changes since ``start``. Raises StorageError."""
        self._namespaces, self._catalog, self._settings = namespaces, catalog, settings
        self._ready = True
        early, self._early = self._early, {}
        for path, changed in early.items():
            changed(path)
        for namespace in namespaces.namespaces.names():
            self._watch_topics(namespace)
        await self._metadata.watching()

    async def caught_up(self) -> None:
        """Wait until the stores have every change that was complete before the call, but for the topics that come and
        go in known namespaces. Raises StorageUnavailableError.
        """
        await self._metadata.caught_up()
        await self._applied()
        if self._unreported:  # the first topics of a namespace
            await self._metadata.watching()
            await self._applied()

    def change_of(self, paths: Sequence[str]) -> Awaitable[None] | None:
        """The wait until the stores have the changes of these nodes whose notices have come to this broker; None
        without such a change. Never raises.
        """
        notices = [notice for path in paths if (notice := self._metadata.change_of(path)) is not None]
        keys = [url_encoder_path(path) for path in paths]
        if not notices and not any(key in self._applying for key in keys):
            return None
        return self._apply(notices, keys)

    async def _apply(self, notices: list[Awaitable[object]], keys: list[str]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_APPLIED_WITHIN_S):
                await asyncio.gather(*notices)
                works = [work for key in keys for work in self._applying.get(key, ())]
                if works:
                    await asyncio.wait(works)

    async def _applied(self) -> None:
        if self._work:
            await asyncio.wait(set(self._work))

    def close(self) -> None:
        for stop in (*self._stops, *self._topic_watches.values()):
            stop()

    def _changed(self, changed: Callable[[str], None], path: str) -> None:
        if self._ready:
            changed(path)
        else:
            self._early[path] = changed

    # --- policies ------------------------------------------------------------------------------------------------

    def _policies_changed(self, path: str) -> None:
        name = path.removeprefix(POLICIES).removeprefix("/")
        if name and name.count("/") <= 1:
            self._spawn(partial(self._reload_policies, name), path)

    async def _reload_policies(self, name: str) -> None:
        await self._namespaces.reload(name)
        if "/" in name:
            if name in self._namespaces.namespaces:
                self._watch_topics(name)
            else:
                self._forget_topics(name)

    def _cluster_changed(self, path: str) -> None:
        name = path.removeprefix(_CLUSTERS).removeprefix("/")
        cluster, _, part = name.partition("/")
        if not name:
            return
        if not part:
            self._spawn(partial(self._namespaces.clusters.load, unquote(name)), path)
        elif part.partition("/")[0] == DOMAINS_NODE:
            self._spawn(partial(self._namespaces.failure_domains.load, unquote(cluster)), path)
        elif part == ISOLATION_NODE:
            self._spawn(partial(self._namespaces.isolation.load, unquote(cluster)), path)

    def _resource_group_changed(self, path: str) -> None:
        if name := path.removeprefix(RESOURCE_GROUPS).removeprefix("/"):
            self._spawn(partial(self._namespaces.resource_groups.load, unquote(name)), path)

    def _quota_changed(self, path: str) -> None:
        name = path.removeprefix(QUOTAS).removeprefix("/")
        if name == DEFAULT_QUOTA or name.count("/") == 2:  # else a parent of the quotas of bundles
            self._spawn(partial(self._namespaces.quotas.load, name), path)

    def _configuration_changed(self, path: str) -> None:
        if self._settings is not None and path == CONFIGURATION:
            self._spawn(self._settings.load, path)

    # --- topics --------------------------------------------------------------------------------------------------

    def _watch_topics(self, namespace: str) -> None:
        if namespace not in self._topic_watches:
            path = f"{_TOPICS}/{namespace}/{PERSISTENT}"
            self._unreported[namespace] = self._catalog.topics(namespace)

            def changed(children: list[str]) -> None:
                self._spawn(partial(self._topics_changed, namespace, children), path)

            self._topic_watches[namespace] = self._metadata.watch_children(path, changed)

    def _forget_topics(self, namespace: str) -> None:
        """End the watch of a deleted namespace: no report follows, even of topics that went last."""
        stop = self._topic_watches.pop(namespace, None)
        if stop is not None:
            stop()
            self._children.pop(namespace, None)
            self._unreported.pop(namespace, None)
            for name in self._catalog.topics(namespace):
                self._catalog.deleted(name)

    async def _topics_changed(self, namespace: str, children: list[str]) -> None:
        """Handle a report of the watch; lists from other reads may be older than the last report. A topic that the
        previous report names and this report lacks is deleted. A topic that this broker has just created may be missing
        in this report: a later report names it.
        """
        async with self._reports:
            if namespace not in self._topic_watches:
                return
            names, before = frozenset(children), self._children.get(namespace)
            self._children[namespace] = names
            listed = await self._parsed(namespace, names - (before or frozenset()))
            if before is None:
                gone = [name for name in self._unreported.pop(namespace, ()) if str(name) not in listed]
            else:
                gone = list((await self._parsed(namespace, before - names)).values())
            if self._children.get(namespace) is not names:
                return  # the namespace was deleted meanwhile
            for name in listed.values():
                self._catalog.created(name)
                if name.is_of_policies:
                    self._events_appeared(namespace)
            for name in gone:
                self._catalog.deleted(name)

    async def _parsed(self, namespace: str, children: Iterable[str]) -> dict[str, TopicName]:
        found = {}
        for number, child in enumerate(children, 1):
            name = TopicName.from_persistence_name(f"{namespace}/{PERSISTENT}/{child}")
            if name is not None:
                found[str(name)] = name
            if number % _TOGETHER == 0:
                await asyncio.sleep(0)
        return found

    def _partitioned_changed(self, path: str) -> None:
        parts = path.removeprefix(PARTITIONED).split("/")[1:]
        if len(parts) == 4:
            self._spawn(partial(self._catalog.reload_record, *parts), path)

    def _spawn(self, work: Callable[[], Coroutine[object, object, object]], path: str) -> None:
        task = self._tasks.spawn(self._followed(work, path), "clustering.follow")
        self._work.add(task)
        self._applying.setdefault(url_encoder_path(path), set()).add(task)
        task.add_done_callback(partial(self._ended, path))

    def _ended(self, path: str, task: asyncio.Task[object]) -> None:
        self._work.discard(task)
        key = url_encoder_path(path)
        works = self._applying[key]
        works.discard(task)
        if not works:
            del self._applying[key]

    async def _followed(self, work: Callable[[], Coroutine[object, object, object]], path: str) -> None:
        """Do the work, and repeat it until the metadata service answers: no watch reports the same change again."""
        while True:
            try:
                await work()
            except StorageUnavailableError as error:
                log.warning("cluster.node_not_followed", path=path, reason=str(error), again_s=_RETRY_S)
                await asyncio.sleep(_RETRY_S)
            except (StorageError, UnreadableRecordError) as error:
                log.warning("cluster.node_not_followed", path=path, reason=str(error.__cause__ or error))
                return
            else:
                return
