"""The registry of loaded topics: finds topics, creates them by the rules of auto creation, loads, closes, deletes them.

At most one load or close of a name is under way: a caller that arrives meanwhile waits until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import BrokerError, NotAllowedError, ServiceNotReadyError, TopicNotFoundError
from magnetar.broker.meters.operation_meter import OperationMeter
from magnetar.broker.policies.records import bundle_of
from magnetar.broker.slices import sliced
from magnetar.broker.tasks import awaited
from magnetar.broker.topics.catalog import PartitionedTopic
from magnetar.broker.topics.life import nothing_to_forget
from magnetar.broker.topics.loaded_topics import LoadedTopics
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.catalog import TopicCatalog
    from magnetar.broker.topics.context import TopicContext
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.storage.managed.factory import ManagedLedgerFactory

log = structlog.get_logger(__name__)
_LOADS_END_WITHIN_S: Final = 1.0
"""The time that a stop leaves to the loads under way. In a cluster a load may wait for bookies for half a minute."""


_FULL_RANGE = "0x00000000_0xffffffff"
"""The bundle of a namespace that does not exist, in refusals."""


class Topics:
    """The topics of this broker."""

    def __init__(
        self,
        context: TopicContext,
        catalog: TopicCatalog,
        ledgers: ManagedLedgerFactory,
        namespaces: NamespaceStore,
        tasks: TaskSet,
    ) -> None:
        self.context = context
        self.catalog = catalog
        self.loaded = LoadedTopics()
        self._ledgers = ledgers
        self.is_doomed = ledgers.is_doomed
        """Whether the deletion of the managed ledger of that name has begun and did not end."""
        self._namespaces = namespaces
        self._tasks = tasks
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._loading: set[asyncio.Task[None]] = set()
        """The loads among ``_busy``."""
        self._load_limit = 0
        self._loads: asyncio.Semaphore | None = None
        self._closed = False
        self.forget: Callable[[TopicName], Awaitable[None]] = lambda _name: nothing_to_forget()
        """Removes the schemas and policies of a topic that is being deleted; not called for partitions."""
        self.load_times = OperationMeter()
        """The loading times of persistent topics."""
        self.settings_changed()

    def settings_changed(self) -> None:
        """Set how many topics may load at the same time; loads under way do not count against the new limit."""
        limit = self.context.settings.max_concurrent_topic_load_request
        if limit != self._load_limit:
            self._load_limit = limit
            self._loads = asyncio.Semaphore(limit) if limit > 0 else None

    def roll(self) -> None:
        """End a stats period of the figures of all topics together."""
        self.context.publish_latency.roll()
        self.load_times.roll()

    # --- finding -------------------------------------------------------------------------------------------------

    def require_tenant(self, name: TopicName) -> None:
        """Raise TopicNotFoundError when the tenant does not exist."""
        if name.tenant not in self._namespaces.tenants:
            raise wire_refusals.TENANT_OF_TOPIC_MISSING.error(namespace=name.namespace)

    def require_namespace(self, name: TopicName) -> None:
        """Raise TopicNotFoundError when the tenant or the namespace does not exist, UnreadableRecordError."""
        if self._namespaces.policies(name.namespace) is None:
            raise wire_refusals.NAMESPACE_OF_TOPIC_MISSING.error()

    def require_new_topics(self, name: TopicName) -> None:
        """Raise TopicNotFoundError in a namespace that is being deleted: a topic that a client creates behind the
        deletion of the others would be left without its namespace.
        """
        if self._is_ending(name):
            raise wire_refusals.TOPIC_MISSING.error(topic=name)

    def _is_ending(self, name: TopicName) -> bool:
        policies = self._namespaces.policies(name.namespace)
        return policies is not None and policies.deleted

    @property
    def busy_count(self) -> int:
        """Topics that are being loaded or closed now."""
        return len(self._busy)

    def non_persistent_names(self, namespace: str) -> list[str]:
        """Non-persistent topics of the namespace that have a client now."""
        topics = self.loaded.of_namespace(namespace)
        return [str(topic.name) for topic in topics if not topic.persistent and not topic.is_idle]

    def known(self, name: TopicName) -> bool:
        """Whether the topic (a partition or a plain topic) exists now."""
        return self.catalog.exists(name) if name.persistent else str(name) in self.loaded

    def may_exist(self, name: TopicName) -> bool:
        """Whether the topic exists now, or a load or close of the topic is under way."""
        return str(name) in self._busy or self.known(name)

    def require_enabled(self, name: TopicName) -> None:
        """Raise NotAllowedError when the settings switch the topics of this domain off."""
        settings = self.context.settings
        if not (settings.enable_persistent_topics if name.persistent else settings.enable_non_persistent_topics):
            raise wire_refusals.TOPICS_DISABLED.error()

    def is_loaded_by_a_look(self, name: TopicName) -> bool:
        """Whether a request for the topic loads it or is refused: a partition of a non-persistent topic, which has no
        record.
        """
        return name.is_partition and not name.persistent

    def partition_refusal(self, name: TopicName) -> NotAllowedError | None:
        """The refusal of a partition whose partitioned topic does not exist or has fewer partitions."""
        base = self.catalog.partitioned(name.base)
        if base is None:
            return wire_refusals.PARTITION_OF_NOTHING.error(topic=name)
        if name.partition >= base.partitions:
            return wire_refusals.PARTITION_BEYOND_THE_LAST.error(topic=name, most=base.partitions)
        return None

    async def get(self, name: TopicName, *, create: bool) -> ServedTopic:
        """The topic, loaded; created when `create` and the rules of auto creation allow it.

        Raises: TopicNotFoundError, NotAllowedError, ServiceNotReadyError.
        """
        while True:
            topic = self.loaded.get(str(name))
            if topic is not None and str(name) not in self._busy:
                return topic
            if str(name) not in self._busy:
                self._require_served(name)
                if not self._namespaces.exists(name.namespace):
                    raise self._not_served(name)
                self.require_enabled(name)
                if (reading := self.context.policies_ready(name)) is not None:
                    await reading  # before the load begins: the topic with the policies may have to load here too
                    continue
                if not self.known(name):
                    await self._check_creatable(name, create=create)
                self._start_load(name)
            await self._wait(str(name))

    async def _wait(self, key: str) -> None:
        """Wait for the load or close of this topic; it continues after the timeout. No frame of a waiting call has the
        task as a variable: the error of a load would be in a cycle with the frame.

        Raises ServiceNotReadyError after topicLoadTimeoutSeconds.
        """
        timeout_s = self.context.settings.topic_load_timeout_seconds
        try:
            async with asyncio.timeout(timeout_s if timeout_s > 0 else None):
                await asyncio.shield(self._busy[key])
        except TimeoutError as e:
            raise ServiceNotReadyError(f"Topic was not loaded in {timeout_s} seconds") from e

    async def create(self, name: TopicName) -> ServedTopic:
        """Find the topic, or create it without regard to the rules of auto creation, for the admin API; loaded on
        return.
        """
        while True:
            topic = self.loaded.get(str(name))
            if topic is not None and str(name) not in self._busy:
                return topic
            if str(name) not in self._busy:
                self.require_namespace(name)
                self._require_served(name)
                if not self.known(name):
                    _refuse_topic_of_transactions(name)
                    self.require_new_topics(name)
                if (reading := self.context.policies_ready(name)) is not None:
                    await reading
                    continue
                self._start_load(name)
            await asyncio.shield(self._busy[str(name)])

    async def make_known(self, name: TopicName) -> None:
        """Record that a persistent topic exists, unless it is recorded; another broker may serve the topic."""
        await self._ledgers.make_known(name.persistence_name)
        self.catalog.created(name)

    def _require_served(self, name: TopicName) -> None:
        """Raise ServiceNotReadyError for a topic of another broker."""
        if not self.context.serves(name):
            raise self._not_served(name)

    def _not_served(self, name: TopicName) -> BrokerError:
        """The refusal of a topic of another broker, or of a missing namespace, whose one bundle has no owner."""
        bundles = self.context.bundles(name.namespace)
        bundle = _FULL_RANGE if bundles is None else bundle_of(str(name), bundles)
        return wire_refusals.NAMESPACE_NOT_SERVED.error(
            bundle=f"{name.namespace}/{bundle}", topic=name, broker=self.context.broker_id()
        )

    def _start_load(self, name: TopicName) -> asyncio.Task[None]:
        task = self._start(name, self._load(name))
        if name.persistent and not self.known(name):
            self.catalog.creating(name)
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)
        return task

    def _start(self, name: TopicName, work) -> asyncio.Task[None]:  # type: ignore[no-untyped-def]  # noqa: ANN001 - any coroutine
        key = str(name)

        async def run() -> None:
            try:
                async with self._loads or contextlib.nullcontext():
                    await work
            except asyncio.CancelledError as e:  # a stop gives up this load, whose callers are not cancelled
                raise ServiceNotReadyError("The broker is stopping") from e
            finally:
                work.close()  # for work that has not begun: the task ended before its turn
                self._busy.pop(key, None)
                self.catalog.not_creating(name)  # now: the next load may begin before a callback of this task

        task = awaited(run(), f"topic {key}")
        self._busy[key] = task
        return task

    async def _check_creatable(self, name: TopicName, *, create: bool) -> None:
        _refuse_topic_of_transactions(name)
        self.require_new_topics(name)
        base = self.catalog.partitioned(name.base)
        if name.is_partition:
            refusal = self.partition_refusal(name)
            beyond = refusal is not None and base is not None
            if name.persistent and (beyond or not create or not self.may_be_created(name)):
                raise wire_refusals.TOPIC_MISSING.error(topic=name)
            if refusal is None:
                self.require_lasting(name.base)
            self.check_limit(name, 1)
            if refusal is not None:
                raise refusal
            return
        if not create or not self.may_be_created(name):
            raise wire_refusals.TOPIC_MISSING.error(topic=name)
        self.check_limit(name, 1)
        if base is not None:
            raise wire_refusals.TOPIC_PARTITIONED.error(topic=name)

    def require_lasting(self, name: TopicName) -> None:
        """Raise ServiceNotReadyError for a partitioned topic that is being deleted: a client that connects again, or a
        request beside the deletion, would leave a partition without its topic. Clients try this again.
        """
        if self.catalog.is_ending(name):
            raise ServiceNotReadyError(f"{name} is being deleted")

    def may_be_created(self, name: TopicName) -> bool:
        """Whether a client that uses the missing topic creates it, as clients always do with system topics and with
        partitions that were deleted by themselves.
        """
        if name.is_partition and self.partition_refusal(name) is None:
            return True
        return name.is_system or self.context.effective(name).allow_auto_topic_creation

    def has_room(self, name: TopicName, more: int) -> bool:
        """Whether `more` topics fit into maxTopicsPerNamespace, which neither counts nor refuses system topics."""
        if name.is_system or not name.persistent:
            return True
        limit = self.context.effective(name).max_topics_per_namespace
        return limit <= 0 or self.catalog.count_with_new(name.namespace, name) + more <= limit

    def check_limit(self, name: TopicName, more: int) -> None:
        """Raise NotAllowedError when `more` topics would exceed maxTopicsPerNamespace."""
        if not self.has_room(name, more):
            raise wire_refusals.TOO_MANY_TOPICS.error()

    async def _load(self, name: TopicName) -> None:
        if self._closed:
            raise ServiceNotReadyError("The broker is stopping")
        self.require_enabled(name)
        if not name.persistent:
            self._require_served(name)
            self.loaded[str(name)] = NonPersistentTopic(name, self.context)
            return
        with self.load_times.timed():
            await self._load_persistent(name)
        log.info("topic.loaded", topic=str(name))

    async def _load_persistent(self, name: TopicName) -> None:
        config = self.context.shared(self.context.ledger_config(self.context.effective(name)))
        ledger = await self._ledgers.open(name.persistence_name, config)
        topic = Topic(name, ledger, self.context, self._tasks)
        if ledger.is_doomed:
            await self._complete_deletion(topic)
            return
        try:
            await topic.open()
            self._require_served(name)  # another broker may own the topic by now
        except BaseException:
            await topic.abandon()
            raise
        self.loaded[str(name)] = topic
        self.catalog.created(name)

    async def _complete_deletion(self, topic: Topic) -> None:
        """Delete a topic whose deletion a crash or a failure cut off. The callers that wait for its load then find no
        topic.
        """
        try:
            await topic.open_for_deletion()
            self._require_served(topic.name)
        except BaseException:
            await topic.abandon()
            raise
        await topic.delete(self._forgetting(topic.name))
        self.catalog.deleted(topic.name)
        log.info("topic.deletion_completed", topic=str(topic.name))

    def _forgetting(self, name: TopicName) -> Callable[[], Awaitable[None]]:
        """Return the part of a deletion that removes schemas and policies, which partitions share."""
        return nothing_to_forget if name.is_partition else partial(self.forget, name)

    # --- partitioned topics --------------------------------------------------------------------------------------

    async def partitions(self, name: TopicName, *, auto_create: bool) -> int:
        """Partition count as PARTITIONED_METADATA answers it; 0 for a plain topic. Raises TopicNotFoundError, without
        words as in Apache Pulsar.
        """
        await self.catalog.settled(name.base)
        if auto_create:
            self.require_namespace(name)
        elif not self._namespaces.exists(name.namespace):
            raise TopicNotFoundError
        config = self.context.effective(name)
        may_create = auto_create and self.may_be_created(name) and not self._is_ending(name)
        if name.is_partition:
            return self._partition_of(name, may_create=may_create)
        known = self.catalog.partitioned(name)
        if known is not None:
            return known.partitions
        if self.known(name):
            return 0
        if not may_create:
            raise TopicNotFoundError
        if config.auto_topic_creation_type == "partitioned":
            count, most = config.default_num_partitions, self.context.settings.max_num_partitions_per_partitioned_topic
            if 0 < most < count:
                raise wire_refusals.TOO_MANY_PARTITIONS.error(most=most)
            self.check_limit(name, count)
            await self.catalog.create_partitioned(name, PartitionedTopic(partitions=count))
            made = self.catalog.partitioned(name)  # perhaps by another request or broker, with another count
            return count if made is None else made.partitions
        return 0

    def _partition_of(self, name: TopicName, *, may_create: bool) -> int:
        base = self.catalog.partitioned(name.base)
        if base is not None and name.partition >= base.partitions:
            raise TopicNotFoundError
        missing = (base is None or name.persistent) and not self.known(name)  # a partition can be deleted by itself
        if missing and not may_create:
            raise TopicNotFoundError
        return 0

    # --- the end of a topic --------------------------------------------------------------------------------------

    async def unload(self, name: TopicName) -> None:
        """Close the topic if it is loaded; the next request loads it again."""
        await self._end(name)

    async def delete(self, name: TopicName, condition: Callable[[ServedTopic], bool] | None = None) -> None:
        """Delete the topic, loaded or not, with schemas and policies of its own; close its clients by CLOSE_*. The
        topic stays if the ``condition`` does not hold in the moment in which the topic would refuse new clients.
        """
        await self._wait_settled(name)
        if name.persistent and str(name) not in self.loaded and self.catalog.exists(name):
            try:
                await self.get(name, create=False)  # only a loaded topic has the cursors and ledgers to delete
            except TopicNotFoundError:
                if self.catalog.exists(name):
                    raise
                return  # the load has completed an earlier deletion
        await self._end(name, self._forgetting(name), condition)

    async def complete_deletions(self) -> list[TopicName]:
        """Complete the deletions that a crash or a failure cut off, but for topics that this broker does not serve,
        which it returns, and for topics whose load fails: their next load completes the deletion. Raises StorageError.
        """
        left = []
        for ledger_name in await self._ledgers.cut_off_deletions():
            name = TopicName.from_persistence_name(ledger_name)
            if name is None or not self.catalog.exists(name):
                continue
            if not self.context.serves(name):
                left.append(name)
                continue
            try:
                await self.get(name, create=False)
            except TopicNotFoundError:
                continue
            except (BrokerError, StorageError) as error:
                log.warning("topic.deletion_not_completed", topic=str(name), error=str(error))
        return left

    async def _wait_settled(self, name: TopicName) -> None:
        """Return when no load or close of the topic is under way."""
        while (busy := self._busy.get(str(name))) is not None:
            await asyncio.wait([busy])

    async def settled(self, namespace: str) -> None:
        """Return when the loads, closes and creations of the namespace's topics that are under way now have ended."""
        if busy := [task for name, task in self._busy.items() if name.split("://")[1].startswith(f"{namespace}/")]:
            await asyncio.wait(busy)
        await self.catalog.settled_in(namespace)

    async def _end(
        self,
        name: TopicName,
        forget: Callable[[], Awaitable[None]] | None = None,
        condition: Callable[[ServedTopic], bool] | None = None,
    ) -> None:
        """Close the topic; with ``forget`` delete it, if the ``condition`` still holds."""
        await self._wait_settled(name)
        topic = self.loaded.get(str(name))
        if topic is None:
            if forget is not None:
                raise wire_refusals.TOPIC_MISSING.error(topic=name)
            return

        async def end() -> None:
            if condition is not None and not condition(topic):
                return
            try:
                await (topic.close() if forget is None else topic.delete(forget))
            finally:
                self.loaded.pop(str(name), None)
            if forget is not None and name.persistent:
                self.catalog.deleted(name)

        await asyncio.shield(self._start(name, end()))

    async def close(self) -> None:
        """Shut down: close every topic. On return all clients have a notice and all entries are on the disk; later
        calls load no topic. Loads under way end in a moment or are given up.
        """
        self._closed = True
        if self._loading:
            _, late = await asyncio.wait(list(self._loading), timeout=_LOADS_END_WITHIN_S)
            for load in late:
                log.warning("topic.load_given_up", topic=load.get_name().removeprefix("topic "))
                load.cancel()
        while self._busy:
            await asyncio.wait(list(self._busy.values()))
        closing: list[asyncio.Task[None]] = []
        try:
            async for topics in sliced(list(self.loaded.values())):
                closing += [awaited(_close(topic), f"topic {topic.name}") for topic in topics]
            if closing:
                await asyncio.wait(closing)
        finally:
            for task in closing:
                task.cancel()
        self.loaded.clear()


async def _close(topic: ServedTopic) -> None:
    try:
        await topic.close()
    except Exception:
        log.exception("topic.close_failed", topic=str(topic.name))


def _refuse_topic_of_transactions(name: TopicName) -> None:
    """Raise NotAllowedError for a topic that only the transaction coordinator may create."""
    if name.persistent and name.is_of_transactions:
        raise wire_refusals.NO_TRANSACTION_TOPIC.error(topic=name)
