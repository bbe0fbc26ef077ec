"""What the admin API asks of topics (`admin.api.TopicsApi`): their life and their subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.admin.api import MessagePosition, StoredMessage
from magnetar.broker.admin_backend.log_ranges import LogRanges
from magnetar.broker.admin_backend.scan import analyze_backlog, entry_of_index, place_of_reset
from magnetar.broker.admin_backend.topic_figures import (
    broker_properties,
    bytes_after,
    internal_info,
    internal_stats,
    topic_stats,
)
from magnetar.broker.errors import (
    BrokerError,
    ConsumerBusyError,
    NotAllowedError,
    SubscriptionNotFoundError,
)
from magnetar.broker.slices import sliced
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics import expiry
from magnetar.broker.topics.catalog import PartitionedTopic
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.broker.topics.log_facts import entry_time_ms
from magnetar.broker.topics.subscriptions import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.storage.errors import NoSuchEntryError
from magnetar.storage.position import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from magnetar.broker.admin.api import Domain, Start
    from magnetar.broker.compaction.compaction_stats import CompactionStatus
    from magnetar.broker.foreign_entries.service import Converting
    from magnetar.broker.schemas.registry import SchemaRegistry
    from magnetar.broker.topics.lifecycle import TopicLifecycle
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.broker.topics.topic_stats import TopicStats
    from magnetar.protocol.topic_name import TopicName


# With a consumer and less than this behind, a subscription counts as caught up: nothing is looked for.
_LITTLE_BACKLOG = 1000
_STATS_IN_ONE_TURN = 16


class AdminTopics:
    """The broker's side of `TopicsApi`; see there for what each call promises."""

    def __init__(
        self, topics: Topics, lifecycle: TopicLifecycle, schemas: SchemaRegistry, converting: Converting | None
    ) -> None:
        self._topics = topics
        self._catalog = topics.catalog
        self._lifecycle = lifecycle
        self._schemas = schemas
        self._converting = converting
        self.offloads_asked: set[TopicName] = set()
        self._log_ranges = LogRanges()

    # --- which there are -----------------------------------------------------------------------------------------

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

    # --- their life ----------------------------------------------------------------------------------------------

    async def create(self, name: TopicName, properties: dict[str, str]) -> None:
        await self._lifecycle.create(name, properties)

    async def create_partitioned(self, name: TopicName, partitions: int, properties: dict[str, str]) -> None:
        await self._lifecycle.create_partitioned(name, partitions, properties)

    async def create_missed_partitions(self, name: TopicName) -> None:
        await self._lifecycle.create_missed_partitions(name)

    async def grow(self, name: TopicName, partitions: int) -> None:
        await self._lifecycle.grow(name, partitions)

    def in_use(self, name: TopicName) -> bool:
        return self._lifecycle.in_use(name)

    async def delete(self, name: TopicName) -> None:
        await self._lifecycle.delete(name)

    async def forget_schema(self, name: TopicName) -> None:
        await self._schemas.forget(name)

    async def delete_partitioned(self, name: TopicName) -> None:
        await self._lifecycle.delete_partitioned(name)

    async def unload(self, name: TopicName) -> None:
        await self._lifecycle.unload(name)

    async def terminate(self, name: TopicName) -> MessagePosition:
        topic = await self._lifecycle.persistent(name)
        before = await topic.position_before_first() if topic.ledger.entries == 0 else None
        last = await topic.terminate()
        return _message(topic, before if before is not None and last == EARLIEST else last)

    async def truncate(self, name: TopicName) -> None:
        topic = await self._lifecycle.persistent(name)
        last = topic.ledger.last_confirmed
        await topic.ledger.truncate()
        for subscription in topic.subscriptions.by_name.values():
            subscription.backlog_dropped(last)

    async def trim(self, name: TopicName) -> None:
        topic = await self._lifecycle.persistent(name)
        await topic.ledger.trim(topic.context.now_ms())

    async def compact(self, name: TopicName) -> None:
        topic = await self._lifecycle.persistent(name)
        if not topic.compaction.start():
            raise ConflictError("Compaction already in progress")

    async def compaction_status(self, name: TopicName) -> CompactionStatus:
        status: CompactionStatus = (await self._lifecycle.persistent(name)).compaction.status()
        return status

    async def properties(self, name: TopicName) -> dict[str, str] | None:
        known = self._catalog.partitioned(name)
        if known is not None:
            return known.properties
        topic = await self._lifecycle.persistent(name)
        return topic.properties.of_users() | broker_properties(topic)

    async def set_properties(self, name: TopicName, properties: dict[str, str]) -> None:
        known = self._catalog.partitioned(name)
        if known is not None:
            await self._catalog.update_partitioned(name, PartitionedTopic(known.partitions, properties))
        else:
            topic = await self._lifecycle.persistent(name)
            own = broker_properties(topic)
            await topic.properties.replace({key: text for key, text in properties.items() if key not in own})

    # --- what is in them -----------------------------------------------------------------------------------------

    async def stats(self, name: TopicName, *, earliest_in_backlog: bool) -> TopicStats:
        topic = await self._topics.get(name, create=False)
        if isinstance(topic, Topic):
            await topic.recall_last_publish()
        earliest: dict[str, int] = {}
        if earliest_in_backlog and isinstance(topic, Topic):
            for subscription in topic.subscriptions.by_name.values():
                position = topic.ledger.next_valid(subscription.cursor.mark_delete)
                earliest[subscription.name] = -1 if position is None else await entry_time_ms(topic.ledger, position)
        return topic_stats(topic, earliest)

    def loaded_names(self, namespace: str | None = None) -> list[TopicName]:
        names = [topic.name for topic in self._topics.loaded.values()]
        return names if namespace is None else [name for name in names if name.namespace == namespace]

    async def loaded_stats(self) -> list[TopicStats]:
        found: list[TopicStats] = []
        async for topics in sliced(list(self._topics.loaded.values()), _STATS_IN_ONE_TURN):
            found += [topic_stats(topic, {}) for topic in topics]
        return found

    async def internal_stats(self, name: TopicName) -> dict[str, object]:
        topic = await self._lifecycle.persistent(name)
        await topic.position_before_first()  # an empty topic has its first ledger
        return internal_stats(topic)

    async def internal_info(self, name: TopicName) -> dict[str, object]:
        topic = await self._lifecycle.persistent(name)
        await topic.position_before_first()
        return internal_info(topic)

    async def last_message(self, name: TopicName) -> MessagePosition:
        topic = await self._lifecycle.persistent(name)
        position, batch_index = await topic.last_message_id()
        if position.entry_id < 0:
            ended = topic.ledger.terminated
            position = await (topic.ledger.terminate() if ended else topic.position_before_first())
        return _message(topic, position, batch_index)

    async def message_at_time(self, name: TopicName, timestamp_ms: int) -> MessagePosition:
        topic = await self._lifecycle.persistent(name)
        if topic.ledger.entries == 0:
            return _message(topic, (await topic.position_before_first()).next())
        return _message(topic, await topic.ledger.position_for_time(timestamp_ms))

    async def message_by_index(self, name: TopicName, index: int) -> MessagePosition | None:
        topic = await self._lifecycle.persistent(name)
        position = await entry_of_index(topic.ledger, index)
        return None if position is None else _message(topic, position)

    async def log_range(self, name: TopicName, *, ledgers: bool) -> dict[str, object]:
        return await self._log_ranges.of(await self._lifecycle.persistent(name), ledgers=ledgers)

    async def bytes_after(self, name: TopicName, message: MessagePosition) -> int:
        return bytes_after(await self._lifecycle.persistent(name), Position(message.ledger_id, message.entry_id))

    async def read_message(self, name: TopicName, ledger_id: int, entry_id: int) -> StoredMessage | None:
        return await _stored(await self._lifecycle.persistent(name), Position(ledger_id, entry_id))

    async def has_ledger(self, name: TopicName, ledger_id: int) -> bool:
        return any(slot.ledger_id == ledger_id for slot in (await self._lifecycle.persistent(name)).ledger.ledgers)

    async def examine_message(self, name: TopicName, start: Start, number: int) -> StoredMessage | None:
        topic = await self._lifecycle.persistent(name)
        total = topic.ledger.entries
        if total == 0:
            return None
        ordinal = min(number, total) - 1 if start == "earliest" else total - number
        if ordinal < 0:
            raise BrokerError(f"there are no {number} messages")
        return await _stored(topic, topic.ledger.position_at(ordinal))

    # --- subscriptions -------------------------------------------------------------------------------------------

    async def subscriptions(self, name: TopicName) -> list[str]:
        topic = await self._topics.get(name, create=False)
        return list(topic.subscriptions.by_name)

    async def _subscription(self, name: TopicName, subscription: str) -> tuple[Topic, Subscription]:
        topic = await self._lifecycle.persistent(name)
        found = topic.subscriptions.by_name.get(subscription)
        if found is None:
            raise SubscriptionNotFoundError(f"Subscription {subscription} not found")
        return topic, found

    async def create_subscription(
        self,
        name: TopicName,
        subscription: str,
        start: Start | MessagePosition,
        properties: dict[str, str],
        *,
        replicated: bool,
    ) -> None:
        topic = await self._topics.get(name, create=True)
        if subscription in topic.subscriptions.by_name:
            raise ConflictError("Subscription already exists for topic")
        request = SubscribeRequest(subscription, properties=properties, from_earliest=start == "earliest")
        if isinstance(start, MessagePosition):
            request.start = Position(start.ledger_id, start.entry_id)
        created = await topic.subscriptions.create(request)
        created.replicated = replicated
        if isinstance(created, Subscription):
            created.note_reset(EARLIEST if start == "earliest" else LATEST)

    async def delete_subscription(self, name: TopicName, subscription: str, *, force: bool) -> None:
        topic = await self._topics.get(name, create=False)
        found = topic.subscriptions.by_name.get(subscription)
        if found is None:
            raise SubscriptionNotFoundError(f"Subscription {subscription} not found")
        if found.consumers and not force and name.persistent:
            raise ConsumerBusyError("Subscription has active connected consumers")
        await topic.subscriptions.delete(subscription)

    async def replicated(self, name: TopicName, subscription: str) -> bool:
        _, found = await self._subscription(name, subscription)
        return found.replicated

    async def set_replicated(self, name: TopicName, subscription: str, *, on: bool) -> None:
        _, found = await self._subscription(name, subscription)
        found.replicated = on

    async def reset_to_time(self, name: TopicName, subscription: str, timestamp_ms: int) -> None:
        topic, found = await self._subscription(name, subscription)
        await _reset(found, await topic.ledger.position_for_time(timestamp_ms), None)

    async def reset_to_message(
        self, name: TopicName, subscription: str, message: MessagePosition, *, excluded: bool
    ) -> None:
        topic, found = await self._subscription(name, subscription)
        await _reset(found, *await place_of_reset(topic, message, excluded=excluded))

    async def skip(self, name: TopicName, subscription: str, messages: int | None) -> None:
        topic, found = await self._subscription(name, subscription)
        await topic.subscriptions.skip(found, found.cursor.backlog_entries if messages is None else messages)

    async def expire(self, name: TopicName, subscription: str, older_than_s: int | MessagePosition) -> bool:
        topic, found = await self._subscription(name, subscription)
        if isinstance(older_than_s, MessagePosition):
            position = Position(older_than_s.ledger_id, older_than_s.entry_id)
            last = topic.ledger.last_confirmed if topic.ledger.entries else await topic.position_before_first()
            if position > last:
                return False
            await expiry.expire_up_to(topic, found, position)
            return True
        backlog = found.cursor.backlog_entries
        expired = await expiry.expire_older_than(topic, found, older_than_s)
        nearly_caught_up = backlog == 0 or (bool(found.consumers) and backlog < _LITTLE_BACKLOG)
        return expired or not nearly_caught_up

    async def peek(self, name: TopicName, subscription: str, number: int) -> StoredMessage | None:
        topic = await self._lifecycle.persistent(name)
        found = topic.subscriptions.by_name.get(subscription)
        if found is None:  # as in Apache Pulsar, who asks for a message of it makes it
            found = await topic.subscriptions.create(SubscribeRequest(subscription, from_earliest=True))
        position = found.cursor.unacknowledged(max(0, number - 1))
        return None if position is None else await _stored(topic, position)

    async def as_delivered(self, name: TopicName, message: StoredMessage) -> StoredMessage:
        if self._converting is None:
            return message
        entry, conversion = await self._converting.show(str(name), message.entry)
        return StoredMessage(message.position, entry, conversion)

    async def _delay_index(self, name: TopicName) -> BucketDelayIndex:
        index = (await self._lifecycle.persistent(name)).delay_index
        if not isinstance(index, BucketDelayIndex):
            raise NotAllowedError("the in-memory tracker of delayed messages does not tell")
        return index

    async def delayed_messages(self, name: TopicName) -> dict[str, int]:
        index = await self._delay_index(name)
        times = {"earliest": index.earliest_ms, "latest": index.latest_ms}
        return {"count": index.pending_count} | {key: ms for key, ms in times.items() if ms is not None}

    async def cancel_delayed(self, name: TopicName, position: Position) -> bool:
        return await (await self._delay_index(name)).cancel(position)

    async def analyze_backlog(
        self, name: TopicName, subscription: str, start: MessagePosition | None
    ) -> dict[str, object]:
        topic, found = await self._subscription(name, subscription)
        position = None if start is None else Position(start.ledger_id, start.entry_id)
        return await analyze_backlog(
            topic, found, EARLIEST if position is not None and position < EARLIEST else position
        )

    async def subscription_properties(self, name: TopicName, subscription: str) -> dict[str, str]:
        _, found = await self._subscription(name, subscription)
        return dict(found.cursor.cursor_properties)

    async def set_subscription_properties(self, name: TopicName, subscription: str, properties: dict[str, str]) -> None:
        _, found = await self._subscription(name, subscription)
        await found.cursor.set_cursor_properties(properties)


def _message(topic: Topic, position: Position, batch_index: int = -1) -> MessagePosition:
    return MessagePosition(position.ledger_id, position.entry_id, topic.name.partition, batch_index)


async def _reset(subscription: Subscription, position: Position, ack_set: list[int] | None) -> None:
    """Raise ConsumerBusyError while another reset is under way."""
    if subscription.fenced:
        raise ConsumerBusyError("Failed for Subscription Busy: Failed to fence subscription")
    await subscription.seek(position, ack_set)


async def _stored(topic: Topic, position: Position) -> StoredMessage | None:
    try:
        span = await topic.ledger.read_entry(position)
    except NoSuchEntryError:
        return None
    return StoredMessage(span.first_position, bytes(span.body(0)))
