"""The life of topics from creation to deletion, plain or partitioned, with all that belongs to them: partitions, the
record of a partitioned topic, subscriptions of new partitions, schemas and policies of their own.

The admin API, the deletion of unused topics and all other creators and deleters of topics use this module; `Topics`
decides which topics a client's request may create.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from magnetar.broker.compaction.topic_compaction import COMPACTION_CURSOR
from magnetar.broker.compat import rest_refusals, wire_refusals
from magnetar.broker.errors import NotAllowedError, RestError, TopicNotFoundError, UnreadableRecordError
from magnetar.broker.slices import all_ended, in_turns, sliced
from magnetar.broker.topics.catalog import PartitionedTopic
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.protocol.topic_name import PERSISTENT
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName

log = structlog.get_logger(__name__)

_PARTITIONS_AT_A_TIME: Final = 8
"""Partitions of a topic that are deleted at the same time by force."""
_MARK_AGAIN_S: Final = 1.0
"""The pause before another attempt to withdraw the mark of a deletion that failed; it doubles with each attempt."""
_LONGEST_MARK_AGAIN_S: Final = 30.0
_BEFORE_START: Final = ";"
"""Between the id of a broker and the time of its start in the mark of a deletion."""


class ConflictError(Exception):
    """The request contradicts the present state: the topic exists already, or no message can expire. HTTP 409."""


def in_use(name: TopicName, consumers: int, producers: int) -> RestError:
    """The refusal of a deletion without force while these clients are connected."""
    clients = consumers + producers
    if not name.persistent:
        return rest_refusals.TOPIC_IN_USE_NON_PERSISTENT.error(clients=clients)
    words = "1 client" if clients == 1 else f"{clients} clients"
    return rest_refusals.TOPIC_IN_USE.error(clients=words, consumers=consumers, producers=producers)


class TopicsElsewhere(Protocol):
    """Topics that other brokers of the cluster serve."""

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete the topic; no error when it does not exist."""
        ...

    async def unload(self, name: TopicName) -> None: ...

    async def find_owner(self, name: TopicName) -> None:
        """Look the topic up, so that a bundle without an owner gets an owner."""
        ...

    async def brokers(self) -> list[str]:
        """Ids of the brokers of the cluster, this broker among them."""
        ...

    async def durable(self, name: TopicName) -> list[SubscribeRequest]:
        """Requests for subscriptions like the topic's durable subscriptions, with their properties."""
        ...

    async def subscribe(self, name: TopicName, request: SubscribeRequest) -> None:
        """Create the subscription at the first message, unless it exists."""
        ...


class TopicLifecycle:
    """Creates, grows, unloads and deletes topics. `elsewhere`: None for a broker that serves all topics itself."""

    def __init__(
        self,
        topics: Topics,
        schemas: SchemaRegistry,
        namespaces: NamespaceStore,
        tasks: TaskSet,
        elsewhere: TopicsElsewhere | None = None,
    ) -> None:
        self._tasks = tasks
        self._withdrawing: set[str] = set()
        """Partitioned topics with a task that withdraws the mark of their deletion."""
        self._elsewhere = elsewhere
        self._started_ms = topics.context.now_ms()
        self._topics = topics
        topics.forget = self._forget
        self._catalog = topics.catalog
        self._schemas = schemas
        self._namespaces = namespaces

    async def persistent(self, name: TopicName, *, create: bool = False) -> Topic:
        """The persistent topic, loaded; a missing topic as in `Topics.get`. Raises TopicNotFoundError; NotAllowedError
        for a non-persistent topic.
        """
        topic = await self._topics.get(name, create=create)
        if not isinstance(topic, Topic):
            raise NotAllowedError("not for non-persistent topics")
        return topic

    def parts(self, name: TopicName) -> list[TopicName]:
        """The partitions of a partitioned topic, or the plain topic itself."""
        known = self._catalog.partitioned(name)
        return [name] if known is None else [name.partition_name(i) for i in range(known.partitions)]

    def clients(self, name: TopicName) -> tuple[int, int]:
        """The consumers and producers of the topic or, for a partitioned topic, of its first partition in use."""
        for part in self.parts(name):
            topic = self._topics.loaded.get(str(part))
            if topic is not None and not topic.is_idle:
                return topic.subscriptions.consumer_count, len(topic.producers)
        return 0, 0

    # --- creation ------------------------------------------------------------------------------------------------

    async def create(self, name: TopicName, properties: dict[str, str]) -> None:
        """Create a plain topic or a partition. Raises ConflictError; NotAllowedError at a limit."""
        if self._exists(name):
            raise ConflictError(rest_refusals.TOPIC_EXISTS.text)
        self._topics.check_limit(name, 1)
        topic = await self._topics.create(name)
        if isinstance(topic, Topic) and properties:
            await topic.properties.change(lambda _now: properties)

    async def create_partitioned(self, name: TopicName, partitions: int, properties: dict[str, str]) -> None:
        """Create a topic with all its partitions. Raises ConflictError; NotAllowedError at a limit."""
        if self._exists(name):
            raise ConflictError(rest_refusals.TOPIC_EXISTS.text)
        self._topics.require_new_topics(name)
        self._topics.check_limit(name, partitions)
        with self._catalog.reserved(name, partitions):
            if not await self._catalog.create_partitioned(name, PartitionedTopic(partitions, properties or None)):
                raise ConflictError(rest_refusals.TOPIC_EXISTS.text)
            async with self._adding(name) as added:
                await self._create_partitions(name, range(partitions), added)

    @contextlib.asynccontextmanager
    async def _adding(self, name: TopicName) -> AsyncIterator[list[int]]:
        """Collect the partitions that the block records. If another request, of this or another broker, has deleted the
        topic meanwhile or is deleting the topic, delete them: they would stay as topics of their own.
        """
        added: list[int] = []
        try:
            yield added
        finally:
            if added:
                await self._see_deletion(name)
            for index in added:
                part = name.partition_name(index)
                if self._is_deleted(name) and self._topics.known(part):
                    with contextlib.suppress(TopicNotFoundError):
                        await self.delete(part)

    async def _create_partitions(self, name: TopicName, indexes: Sequence[int], added: list[int]) -> None:
        """Record the partitions; a broker loads each when it is first used, as in Apache Pulsar."""
        if name.persistent:
            async for some in sliced(indexes):  # together: the records share syncs
                self._topics.require_namespace(name)
                self._topics.require_new_topics(name)
                parts = [name.partition_name(index) for index in some]
                added += [index for index, part in zip(some, parts, strict=True) if not self._topics.known(part)]
                await asyncio.gather(*map(self._topics.make_known, parts))

    async def create_missed_partitions(self, name: TopicName, count: int | None = None) -> None:
        """Create the missing partitions among the first ``count`` (None: all). No-op for a topic without partitions.
        Raises ServiceNotReadyError for a topic that is being deleted. As in Apache Pulsar new partitions pass the limit
        of topics; other creations count them.
        """
        known = self._catalog.partitioned(name)
        missing = await self._missing(name, 0, 0 if known is None else known.partitions if count is None else count)
        self._topics.require_lasting(name)
        with self._catalog.reserved(name, len(missing)):
            async with self._adding(name) as added:
                await self._create_partitions(name, missing, added)

    async def _missing(self, name: TopicName, first: int, end: int) -> list[int]:
        """The indexes of the partitions that do not exist, looked for in slices."""
        return [
            index
            async for indexes in sliced(range(first, end))
            for index in indexes
            if not self._topics.known(name.partition_name(index))
        ]

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Add partitions. The durable subscriptions of the first partition then exist on all partitions, as in Apache
        Pulsar, each new subscription from the first message on; that of compaction only on the added, empty partitions.
        Clients see the added partitions afterwards: a subscription misses none of their messages. Raises
        TopicNotFoundError or, for a topic that is being deleted, ServiceNotReadyError, also if another request deletes
        the topic meanwhile; then no added partition stays.

        The record names the growth first: if the broker dies meanwhile, a deletion of the topic takes the partitions
        added so far along, and a repeated growth completes the topic.
        """
        missing = await self._missing(name, self._partitioned(name).partitions, partitions)
        known = self._partitioned(name)
        self._topics.require_lasting(name)
        with self._catalog.reserved(name, len(missing)):
            await self._catalog.update_partitioned(
                name, lambda now: now.growing(partitions, lambda index: self._topics.known(name.partition_name(index)))
            )
            async with self._adding(name) as added:
                await self._grow(name, known.partitions, partitions, added)

    async def _grow(self, name: TopicName, before: int, partitions: int, added: list[int]) -> None:
        first = name.partition_name(0)
        requests = await self._durable(first) if name.persistent and self._topics.known(first) else []
        await self._create_partitions(name, range(before, partitions), added)
        for index in range(1, partitions if requests else 0):
            for request in requests:
                if index >= before or request.subscription != COMPACTION_CURSOR:
                    await self._subscribe(name.partition_name(index), request)
        self._partitioned(name)
        self._topics.require_lasting(name)
        await self._catalog.update_partitioned(name, lambda now: now.grown(partitions))

    async def _see_deletion(self, name: TopicName) -> None:
        """Learn of a deletion by another broker that the watch of the record has not reported yet."""
        if self._elsewhere is not None:
            with contextlib.suppress(StorageError, UnreadableRecordError):
                await self._catalog.reload_partitioned(name)

    def _is_deleted(self, name: TopicName) -> bool:
        return self._catalog.partitioned(name) is None or self._catalog.is_ending(name)

    def _partitioned(self, name: TopicName) -> PartitionedTopic:
        """Require that the topic exists. Raises TopicNotFoundError."""
        found = self._catalog.partitioned(name)
        if found is None:
            raise wire_refusals.TOPIC_NOT_PARTITIONED.error(topic=name)
        return found

    async def _durable(self, part: TopicName) -> list[SubscribeRequest]:
        """Requests for subscriptions like the durable subscriptions of the partition."""
        if self._is_elsewhere(part) and self._elsewhere is not None:
            return await self._elsewhere.durable(part)
        topic = await self.persistent(part)
        return [
            SubscribeRequest(
                each.name,
                from_earliest=True,
                properties={} if each.pinned else dict(each.cursor.cursor_properties),
                replicated=each.replicated,
            )
            for each in topic.subscriptions.by_name.values()
            if each.durable
        ]

    async def _subscribe(self, part: TopicName, request: SubscribeRequest) -> None:
        if self._is_elsewhere(part) and self._elsewhere is not None:
            await self._elsewhere.subscribe(part, request)
            return
        try:
            topic = await self.persistent(part, create=True)  # also a partition that was deleted by itself
        except NotAllowedError:
            self._partitioned(part.base)
            raise
        if request.subscription not in topic.subscriptions.by_name:
            created = await topic.subscriptions.create(request)
            created.replicated = bool(request.replicated)

    def _is_elsewhere(self, name: TopicName) -> bool:
        return self._elsewhere is not None and not self._topics.context.serves(name)

    # --- the end -------------------------------------------------------------------------------------------------

    async def unload(self, name: TopicName) -> None:
        """Close the topic, or all partitions of a partitioned topic; the next request loads it again."""
        async for part in in_turns(self.parts(name)):
            if self._elsewhere is not None and self._is_elsewhere(part):
                await self._elsewhere.unload(part)
            else:
                await self._topics.unload(part)

    async def complete_deletion(self, name: TopicName) -> None:
        """Complete the deletion of a topic that a crash or a failure cut off, before schemas, policies or grants are
        stored for the topic: they would go with it. Raises BrokerError, StorageError.
        """
        if not name.persistent or str(name) in self._topics.loaded or not self._topics.known(name):
            return
        if await self._topics.is_doomed(name.persistence_name):
            with contextlib.suppress(TopicNotFoundError):
                await self._topics.get(name, create=False)

    async def complete_deletions(self) -> None:
        """See ``Topics.complete_deletions``. A topic in a bundle without an owner gets an owner, which completes the
        deletion: this broker at once, another broker in its next turn. Raises StorageError.

        A deletion of a partitioned topic whose broker is gone has failed: the topic loses the mark of the deletion.
        """
        left = await self._topics.complete_deletions()
        if self._elsewhere is None:
            return
        for name in left:
            try:
                await self._elsewhere.find_owner(name)
            except RestError as error:
                log.warning("topic.deletion_not_completed", topic=str(name), error=str(error))
        if any(map(self._topics.context.serves, left)):
            await self._topics.complete_deletions()
        await self._withdraw_marks(self._elsewhere)

    async def _withdraw_marks(self, elsewhere: TopicsElsewhere) -> None:
        """Withdraw the marks of deletions that no broker carries on. Raises StorageError."""
        marked = {name: deleter for name, deleter in self._catalog.marked().items() if deleter}
        if not marked:
            return
        try:
            brokers = await elsewhere.brokers()
        except RestError as error:
            log.warning("topic.marks_not_withdrawn", error=str(error))
            return
        own = self._deleter
        for name, deleter in marked.items():
            broker = deleter.partition(_BEFORE_START)[0]
            if deleter == own:
                goes_on = self._catalog.is_ending_here(name)
            else:
                goes_on = broker in brokers and broker != own.partition(_BEFORE_START)[0]
            if not goes_on:
                await self._withdraw(name, deleter)

    async def _withdraw(self, name: TopicName, deleter: str) -> None:
        was_marked = False

        def unmarked(now: PartitionedTopic) -> PartitionedTopic:
            nonlocal was_marked
            was_marked = now.deleted and now.deleter == deleter
            return now.unmarked(deleter)

        with contextlib.suppress(TopicNotFoundError):
            await self._catalog.update_partitioned(name, unmarked)
            if was_marked:
                log.info("topic.mark_withdrawn", topic=str(name), deleter=deleter)

    async def delete(self, name: TopicName, condition: Callable[[ServedTopic], bool] | None = None) -> None:
        """Delete a plain topic or a partition; close its connected clients. Raises TopicNotFoundError. The topic stays
        if the ``condition`` does not hold at last; another broker, whose topic it is by now, refuses while clients are
        connected.

        Schemas and policies of its own go with a plain topic: a deletion that is cut off leaves nothing to a later
        topic of that name, because the next load of the topic, or the next start, completes the deletion.
        """
        if self._elsewhere is not None and self._is_elsewhere(name):
            await self._elsewhere.delete(name, force=condition is None)
            return
        if name.is_partition:
            await self._see_deletion(name.base)  # before clients of the partition connect again
        await self._topics.delete(name, condition)

    async def delete_inactive(self, name: TopicName, condition: Callable[[ServedTopic], bool] | None = None) -> None:
        """Delete an unused topic as `delete` does, unless a client has come meanwhile. With
        brokerDeleteInactivePartitionedTopicMetadataEnabled a partitioned topic goes with the last partition that
        exists: its record, schemas and policies.
        """
        await self.delete(name, condition)
        settings = self._topics.context.settings
        if not name.is_partition or not settings.broker_delete_inactive_partitioned_topic_metadata_enabled:
            return
        known = self._catalog.partitioned(name.base)
        if known and not any(self._topics.may_exist(name.base.partition_name(index)) for index in known.created):
            await self.delete_partitioned(name.base, force=False)

    async def delete_partitioned(self, name: TopicName, *, force: bool = True) -> None:
        """Delete all partitions, the record of the partitioned topic, its schemas and policies.

        Without `force` a partition that has clients when its deletion begins is refused with RestError 412; the
        partitions before it are then already deleted. Partitions that another request adds meanwhile are deleted too;
        clients add none.
        """
        try:
            with self._catalog.ending(name):
                await self._delete_partitioned(name, force=force)
        except BaseException:
            if not await self._unmark(name) and str(name) not in self._withdrawing:
                self._withdrawing.add(str(name))
                self._tasks.spawn(self._withdraw_mark(name), "topic.mark")
            raise

    @property
    def _deleter(self) -> str:
        """The name of this broker, since its start, in the marks of its deletions."""
        return f"{self._topics.context.broker_id()}{_BEFORE_START}{self._started_ms}"

    async def _mark(self, name: TopicName) -> bool:
        """Report the deletion to the other brokers, which serve some of the partitions. Return whether the record has
        the report; a full store must not prevent the deletion.
        """
        return self._elsewhere is not None and await self._update_mark(name, lambda now: now.marked(self._deleter))

    async def _unmark(self, name: TopicName) -> bool:
        """Report the failure of this broker's deletion. Return whether the record has no mark of this broker, or a
        deletion by this broker goes on, which reports its own end.
        """
        if self._elsewhere is None or self._catalog.is_ending_here(name):
            return True
        return await self._update_mark(name, lambda now: now.unmarked(self._deleter), absent=True)

    async def _update_mark(
        self, name: TopicName, change: Callable[[PartitionedTopic], PartitionedTopic], *, absent: bool = False
    ) -> bool:
        try:
            await self._catalog.update_partitioned(name, change)
        except TopicNotFoundError:
            return absent
        except StorageError as error:
            log.warning("topic.not_marked", topic=str(name), reason=str(error))
            return False
        return True

    async def _withdraw_mark(self, name: TopicName) -> None:
        """Repeat the report of a failure until the metadata service takes it. The mark of another broker, which has
        begun a deletion since then, stays.
        """
        pause_s = _MARK_AGAIN_S
        try:
            while True:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_MARK_AGAIN_S)
                if await self._unmark(name):
                    return
        finally:
            self._withdrawing.discard(str(name))

    async def _delete_partitioned(self, name: TopicName, *, force: bool) -> None:
        while (known := self._catalog.partitioned(name)) is not None:
            marked = await self._mark(name)
            async for indexes in sliced(sorted(known.created), _PARTITIONS_AT_A_TIME if force else 1):
                parts = [name.partition_name(index) for index in indexes]
                await all_ended(self._delete_part(part, force=force) for part in parts)
            await self._forget(name)  # before the record: a deletion that is cut off can be repeated
            if await self._catalog.delete_partitioned(name, known.created, marked=marked):
                break
        await self._forget(name)

    async def _delete_part(self, part: TopicName, *, force: bool) -> None:
        """Delete the partition unless it is gone already; the creation of a client that is under way ends before."""
        if self._elsewhere is not None and self._is_elsewhere(part):
            if self._topics.known(part) or not part.persistent:
                await self._elsewhere.delete(part, force=force)
        elif force:
            with contextlib.suppress(TopicNotFoundError):
                await self._topics.delete(part)
        else:
            await self._delete_unused(part)

    async def _delete_unused(self, part: TopicName) -> None:
        refusals: list[RestError] = []

        def is_unused(topic: ServedTopic) -> bool:
            if not topic.is_idle:
                refusals.append(in_use(part, topic.subscriptions.consumer_count, len(topic.producers)))
            return topic.is_idle

        with contextlib.suppress(TopicNotFoundError):
            await self._topics.delete(part, is_unused)
        if refusals:
            raise refusals[0]

    async def _forget(self, name: TopicName) -> None:
        """Delete schemas and policies. A non-persistent topic leaves the schemas that it shares with a persistent topic
        of its name, whose stored messages need them: a role with a right to the non-persistent topic alone would
        delete them.
        """
        if name.persistent or not self._exists(name.in_domain(PERSISTENT)):
            await self._schemas.forget(name)
        await self._namespaces.delete_topic(name)

    def _exists(self, name: TopicName) -> bool:
        return self._topics.known(name) or self._catalog.partitioned(name) is not None
