"""One topic and its content, for the admin API (`admin.api.TopicLogsApi`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from magnetar.broker.admin.api import MessagePosition, StoredMessage
from magnetar.broker.admin_backend.log_ranges import LogRanges
from magnetar.broker.admin_backend.scan import entry_of_index, stored_message
from magnetar.broker.admin_backend.topic_figures import (
    NOTHING_GATHERED,
    broker_properties,
    bytes_after,
    client_count,
    gathered_in_slices,
    internal_info,
    internal_stats,
    ranges_bytes,
    topic_stats,
    unused_info,
)
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import (
    BrokerError,
    NotAllowedError,
)
from magnetar.broker.slices import in_turns, sliced
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.broker.topics.log_facts import entry_time_ms
from magnetar.broker.topics.topic import Topic
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.admin.api import Start
    from magnetar.broker.compaction.compaction_stats import CompactionStatus
    from magnetar.broker.foreign_entries.converting_service import Converting
    from magnetar.broker.topics.lifecycle import TopicLifecycle
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.broker.topics.topic_stats import TopicStats
    from magnetar.protocol.topic_name import TopicName


_STATS_IN_ONE_TURN = 16


class AdminTopicLogs:
    """The broker's side of `TopicLogsApi`; its docstrings state the guarantees of each call."""

    def __init__(self, topics: Topics, lifecycle: TopicLifecycle, converting: Converting | None) -> None:
        self._topics = topics
        self._catalog = topics.catalog
        self._lifecycle = lifecycle
        self._converting = converting
        self._log_ranges = LogRanges()

    async def terminate(self, name: TopicName) -> MessagePosition:
        topic = await self._lifecycle.persistent(name)
        before = await topic.position_before_first() if topic.ledger.entries == 0 else None
        last = await topic.terminate()
        return _message(topic, before if before is not None and last == EARLIEST else last)

    async def truncate(self, name: TopicName) -> None:
        topic = await self._lifecycle.persistent(name)
        topic.deduplication.note()  # the entries that name the producers go
        topic.subscriptions.acknowledge_all(topic.ledger.last_confirmed)
        for subscription in topic.subscriptions.by_name.values():
            subscription.place.skipped()
        await topic.ledger.truncate()

    async def trim(self, name: TopicName) -> None:
        topic = await self._lifecycle.persistent(name)
        await topic.ledger.trim(topic.context.now_ms())

    async def compact(self, name: TopicName) -> None:
        """Start a compaction. Without new messages since the last compaction its status stays: NOT_RUN after a load."""
        topic = await self._lifecycle.persistent(name)
        if topic.compaction.covers_all:
            return
        if not topic.compaction.start():
            raise ConflictError(rest_refusals.COMPACTION_RUNNING.text)

    async def compaction_status(self, name: TopicName) -> CompactionStatus:
        status: CompactionStatus = (await self._lifecycle.persistent(name)).compaction.status()
        return status

    async def properties(self, name: TopicName) -> dict[str, str] | None:
        known = self._catalog.partitioned(name)
        if known is not None:
            return known.properties
        topic = await self._lifecycle.persistent(name)
        return topic.properties.of_users() | broker_properties(topic)

    async def change_properties(self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        known = self._catalog.partitioned(name)
        if known is not None:
            await self._catalog.update_partitioned(
                name, lambda now: msgspec.structs.replace(now, properties=change(now.properties or {}))
            )
        else:
            topic = await self._lifecycle.persistent(name)
            own = broker_properties(topic)
            await topic.properties.change(
                lambda now: {key: text for key, text in change(now | own).items() if key not in own}
            )

    async def stats(self, name: TopicName, *, earliest_in_backlog: bool) -> TopicStats:
        topic = await self._topics.get(name, create=False)
        if isinstance(topic, Topic):
            await topic.recall_last_publish()
        earliest: dict[str, int] = {}
        of_slowest = 0
        if earliest_in_backlog and isinstance(topic, Topic):
            slowest = min((each.mark_delete for each in topic.ledger.cursors.values()), default=None)
            first = None if slowest is None else topic.ledger.next_valid(slowest)
            of_slowest = 0 if first is None else await entry_time_ms(topic.ledger, first)
            async for subscription in in_turns(tuple(topic.subscriptions.by_name.values())):
                position = topic.ledger.next_valid(subscription.cursor.mark_delete)
                earliest[subscription.name] = -1 if position is None else await entry_time_ms(topic.ledger, position)
        gathered = await gathered_in_slices(topic)
        sizes = await ranges_bytes(topic) if isinstance(topic, Topic) else {}
        if isinstance(topic, Topic) and topic.life.has_ended:  # an unload ended this topic meanwhile
            topic, gathered = await self._topics.get(name, create=False), NOTHING_GATHERED
        stats = topic_stats(topic, earliest, gathered)
        return replace(stats, earliest_in_backlog_ms=of_slowest, deleted_ranges_bytes=sizes)

    def client_count(self, name: TopicName) -> int:
        topic = self._topics.loaded.get(str(name))
        return 0 if topic is None else client_count(topic)

    async def loaded_stats(self) -> list[TopicStats]:
        found: list[TopicStats] = []
        async for topics in sliced(list(self._topics.loaded.values()), _STATS_IN_ONE_TURN):
            for topic in topics:
                gathered = await gathered_in_slices(topic)
                found.append(topic_stats(topic, {}, gathered))
        return found

    async def internal_stats(self, name: TopicName) -> dict[str, object]:
        topic = await self._lifecycle.persistent(name)
        await topic.ledger.ensure_open_ledger()  # Apache Pulsar opens a ledger when it loads the topic
        return await internal_stats(topic)

    async def internal_info(self, name: TopicName) -> dict[str, object]:
        if name.is_partition and (created_ms := await self._catalog.unused_since_ms(name)) is not None:
            return unused_info(created_ms)
        topic = await self._lifecycle.persistent(name)
        await topic.position_before_first()
        return await internal_info(topic)

    async def last_message(self, name: TopicName) -> MessagePosition:
        topic = await self._lifecycle.persistent(name)
        position, batch_index = await topic.last.entry_id()
        if position.entry_id < 0:
            ended, last = topic.ledger.terminated, topic.ledger.last_confirmed
            kept = any(slot.ledger_id == last.ledger_id for slot in topic.ledger.ledgers)
            if not ended and not kept and last.entry_id >= 0:
                return MessagePosition(-1, -1)
            position = await (topic.ledger.terminate() if ended else topic.position_before_first())
        return _message(topic, position, batch_index)

    async def message_at_time(self, name: TopicName, timestamp_ms: int) -> MessagePosition:
        topic = await self._lifecycle.persistent(name)
        if topic.ledger.entries == 0:
            return _message(topic, (await topic.position_before_first()).next())
        found, ledger = await topic.ledger.position_for_time(timestamp_ms), topic.ledger
        if found > ledger.last_confirmed:  # all entries are older: the next message
            await ledger.ensure_open_ledger()  # Apache Pulsar opens a ledger when it loads the topic
            newest = ledger.newest_position
            found = newest.next() if newest.entry_id < 0 else found
        return _message(topic, found)

    async def message_by_index(self, name: TopicName, index: int) -> MessagePosition | None:
        topic = await self._lifecycle.persistent(name)
        position = await entry_of_index(topic.ledger, index)
        return None if position is None else _message(topic, position)

    async def log_range(self, name: TopicName, *, ledgers: bool) -> dict[str, Any]:
        return await self._log_ranges.of(await self._lifecycle.persistent(name), ledgers=ledgers)

    async def bytes_after(self, name: TopicName, message: MessagePosition) -> int:
        return bytes_after(await self._lifecycle.persistent(name), Position(message.ledger_id, message.entry_id))

    async def read_message(self, name: TopicName, ledger_id: int, entry_id: int) -> StoredMessage | None:
        return await stored_message(await self._lifecycle.persistent(name), Position(ledger_id, entry_id))

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
        return await stored_message(topic, topic.ledger.position_at(ordinal))

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


def _message(topic: Topic, position: Position, batch_index: int = -1) -> MessagePosition:
    return MessagePosition(position.ledger_id, position.entry_id, topic.name.partition, batch_index)
