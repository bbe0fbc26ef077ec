"""Topics' figures for the admin API and the metrics: plain functions from a topic to frozen values."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.broker.admin_backend.deleted_ranges import as_text, count_deleted_ranges, stored_bytes, with_ranges
from magnetar.broker.compaction.earlier_part import EARLIER_PROPERTIES
from magnetar.broker.compaction.record import OWN_PROPERTIES
from magnetar.broker.compat.java_times import instant
from magnetar.broker.slices import sliced
from magnetar.broker.subscriptions.moved_cursors import shown_mark_delete
from magnetar.broker.subscriptions.subscription_stats import (
    SUBSCRIPTIONS_IN_ONE_TURN,
    stats_in_slices,
    subscription_stats,
)
from magnetar.broker.topics.backlog import BytesBehind, bytes_behind, entry_bytes
from magnetar.broker.topics.deduplication import CURSOR_NAME as DEDUPLICATION_CURSOR
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.topic import TOPIC_EPOCH_PROPERTY, Topic
from magnetar.broker.topics.topic_stats import LatencyCounts, ProducerStats, SizeCounts, TopicStats
from magnetar.delayed.bucket_index import BucketDelayIndex
from magnetar.protocol.url_encoder import url_encoded
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.admin_backend.deleted_ranges import DeletedRange
    from magnetar.broker.consumers.consumer_stats import SubscriptionStats
    from magnetar.broker.meters.distributions import Counts
    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.storage.managed.cursors.cursor import ManagedCursor


class Place(NamedTuple):
    """The place of a subscription in the log."""

    backlog_bytes: int
    deleted_ranges: int
    taken: int
    """How many entries behind the mark-delete position the subscription has read."""


class Gathered(NamedTuple):
    """Figures that the caller of `topic_stats` has gathered in slices just before: of subscriptions, and of producers,
    None when they are few.
    """

    stats: Mapping[str, SubscriptionStats] = MappingProxyType({})
    places: Mapping[str, Place] = MappingProxyType({})
    publishers: list[ProducerStats] | None = None


NOTHING_GATHERED: Final = Gathered()
_LEDGERS_IN_ONE_TURN: Final = 2000
PRODUCERS_IN_ONE_TURN: Final = 128


async def gathered_in_slices(topic: ServedTopic) -> Gathered:
    """Gather the figures for which a turn of the event loop has no time (`stats_in_slices`): when there are too many
    subscriptions, also their places, and those of many producers.
    """
    stats = await stats_in_slices(list(topic.subscriptions.by_name.values()))
    places: dict[str, Place] = {}
    if isinstance(topic, Topic) and len(topic.subscriptions) > SUBSCRIPTIONS_IN_ONE_TURN:
        behind = BytesBehind(topic.ledger.ledgers)
        async for some in sliced(list(topic.subscriptions.by_name.values()), SUBSCRIPTIONS_IN_ONE_TURN):
            places |= {each.name: _place(topic, each.cursor, behind) for each in some}
    publishers: list[ProducerStats] | None = None
    if len(topic.producers) > PRODUCERS_IN_ONE_TURN:
        publishers = []
        async for several in sliced(tuple(topic.producers), PRODUCERS_IN_ONE_TURN):
            publishers += [each.stats() for each in several]
    return Gathered(stats, places, publishers)


def client_count(topic: ServedTopic) -> int:
    """How many producers, subscriptions and consumers the statistics of a topic show."""
    subscriptions = topic.subscriptions.by_name.values()
    return len(topic.producers) + len(subscriptions) + sum(len(each.consumers) for each in subscriptions)


def topic_stats(
    topic: ServedTopic, earliest_publish_ms: dict[str, int], gathered: Gathered = NOTHING_GATHERED
) -> TopicStats:
    """All figures of a topic for its stats page; reads no entry of the log."""
    rate = topic.publishing.rate_in.rates()
    stats = TopicStats(
        name=topic.name,
        msg_rate_in=rate.messages_per_second,
        msg_throughput_in=rate.bytes_per_second,
        average_msg_size=rate.average_size,
        msg_in_counter=topic.publishing.rate_in.total_messages,
        unstored_entries_in=topic.publishing.entries_in if isinstance(topic, NonPersistentTopic) else 0,
        bytes_in_counter=topic.publishing.rate_in.total_bytes,
        gone_msg_out_counter=topic.subscriptions.gone_messages,
        gone_bytes_out_counter=topic.subscriptions.gone_bytes,
        msg_chunk_published=topic.name.persistent and topic.producers.have_sent_chunks,
        publishers=_publishers(topic) if gathered.publishers is None else gathered.publishers,
        waiting_publishers=topic.producers.waiting_count,
        subscriptions={
            name: gathered.stats.get(name) or subscription_stats(s) for name, s in topic.subscriptions.by_name.items()
        },
        earliest_publish_ms=earliest_publish_ms,
        deduplication_status=topic.publishing.deduplication.status,
        topic_epoch=topic.producers.epoch,
        created_ms=topic.created_ms,
        last_publish_ms=topic.publishing.last_publish_ms,
        publish_rate_limited_times=topic.publishing.policy.rate.times_limited,
    )
    return _with_storage(stats, topic, gathered.places) if isinstance(topic, Topic) else stats


def _publishers(topic: ServedTopic) -> list[ProducerStats]:
    return [producer.stats() for producer in topic.producers]


def _with_storage(stats: TopicStats, topic: Topic, gathered: Mapping[str, Place]) -> TopicStats:
    from dataclasses import replace  # noqa: PLC0415 - start-up

    slowest, behind = _slowest(topic), BytesBehind(topic.ledger.ledgers)
    places = {
        name: gathered.get(name) or _place(topic, s.cursor, behind) for name, s in topic.subscriptions.by_name.items()
    }
    meters, deduplication = topic.publishing.meters, topic.ledger.cursors.get(DEDUPLICATION_CURSOR)
    return replace(
        stats,
        gone_bytes_out_internal_counter=topic.subscriptions.gone_bytes_of_broker,
        storage_bytes=entry_bytes(topic.ledger.size_bytes, topic.ledger.entries),
        backlog_bytes=0 if slowest is None else behind.of(slowest.mark_delete),
        deduplication_backlog=0 if deduplication is None else deduplication.backlog_entries,
        subscription_backlog_bytes={name: place.backlog_bytes for name, place in places.items()},
        oldest_backlog_age_seconds=topic.backlog.oldest_age_s() or -1,
        oldest_backlog_subscription=topic.backlog.oldest_subscription,
        non_contiguous_deleted_ranges={name: place.deleted_ranges for name, place in places.items()},
        entries_since_mark_delete={name: place.taken for name, place in places.items()},
        delayed_index_bytes=0 if topic.delay_index is None else topic.delay_index.memory_bytes,
        delayed_index=topic.delay_index.stats() if isinstance(topic.delay_index, BucketDelayIndex) else None,
        compaction=topic.compaction.stats(),
        storage_write_rate=meters.written.rates().messages_per_second,
        storage_read_rate=meters.read_rate().messages_per_second,
        storage_read_bytes_rate=meters.read_rate().bytes_per_second,
        failed_reads=meters.counts.failed_reads,
        failed_appends=meters.counts.failed_appends,
        mark_delete_rate=meters.mark_delete_rate(),
        ledger_switch_ms=LatencyCounts(*_parts(meters.ledger_switches_ms())),
        write_latency_ms=LatencyCounts(*_parts(meters.write_latency_ms.last())),
        entry_sizes=SizeCounts(*_parts(meters.entry_sizes.last())),
        compaction_write_latency_ms=LatencyCounts(*_parts(topic.compaction.write_latency_ms())),
        quota_evictions_size=topic.backlog.evictions_size,
        quota_evictions_age=topic.backlog.evictions_age,
    )


def _slowest(topic: Topic) -> ManagedCursor | None:
    """The cursor with the smallest mark-delete position, of the durable subscriptions, compaction and deduplication."""
    cursors = [s.cursor for s in topic.subscriptions.by_name.values() if s.durable]
    deduplication = topic.ledger.cursors.get(DEDUPLICATION_CURSOR)
    if deduplication is not None:
        cursors.append(deduplication)
    return min(cursors, key=lambda cursor: cursor.mark_delete, default=None)


def _place(topic: Topic, cursor: ManagedCursor, behind: BytesBehind) -> Place:
    size = behind.of(_counted_from(topic, cursor.mark_delete))
    return Place(size, count_deleted_ranges(cursor), _taken(topic, cursor))


def _counted_from(topic: Topic, position: Position) -> Position:
    """The position, from which Apache Pulsar 4.2.4 counts bytes: when the topic was terminated before its load, all
    entries of the last ledger count, because the figures of a ledger that is not written are 0.
    """
    ledger = topic.ledger
    was_terminated = ledger.terminated and not ledger.ended_by_this_owner
    if was_terminated and position.ledger_id == ledger.newest_position.ledger_id:
        return Position(position.ledger_id, -1)
    return position


def bytes_after(topic: Topic, position: Position) -> int:
    """Bytes of the entries behind the position; the bytes of all entries if its ledger does not exist yet."""
    if position.ledger_id > max((slot.ledger_id for slot in topic.ledger.ledgers), default=position.ledger_id):
        position = Position(-1, -1)
    return bytes_behind(topic.ledger.ledgers, _counted_from(topic, position))


def broker_properties(topic: Topic) -> dict[str, str]:
    """The topic's properties that belong to the broker: the index, as of the last write of the properties, and the
    epoch of exclusive producers.
    """
    index = {"index": str(topic.properties.index_as_kept)} if topic.ledger.config.entry_index else {}
    epoch = topic.producers.epoch
    return index if epoch is None else index | {TOPIC_EPOCH_PROPERTY: str(epoch)}


async def ranges_bytes(topic: Topic) -> dict[str, int]:
    """Bytes of the acknowledged ranges of each subscription in Apache Pulsar's records: none before the first change
    since the load.
    """
    subscriptions = topic.subscriptions.by_name.items()
    return await stored_bytes({name: s.cursor for name, s in subscriptions if _was_written(topic, s, s.cursor)})


def _parts(counts: Counts) -> tuple[tuple[int, ...], int, float]:
    return counts.buckets, sum(counts.buckets), counts.total


async def internal_stats(topic: Topic) -> dict[str, object]:
    """PersistentTopicInternalStats."""
    ledger = topic.ledger
    cursors: dict[str, dict[str, object]] = {}
    async for name, cursor, ranges in with_ranges(_cursors(topic)):
        cursors[url_encoded(name)] = _cursor(topic, name, cursor, ranges)
    ledgers = await _ledgers(topic)
    last = ledger.last_confirmed if ledger.last_confirmed.entry_id >= 0 else ledger.newest_position
    current = _current_ledger(topic)
    return {
        "entriesAddedCounter": ledger.entries_added,
        "numberOfEntries": ledger.entries,
        "totalSize": entry_bytes(ledger.size_bytes, ledger.entries),
        "currentLedgerEntries": current.entries if current else 0,
        "currentLedgerSize": entry_bytes(current.size_bytes, current.entries) if current else 0,
        "lastLedgerCreatedTimestamp": instant(topic.created_ms),
        "waitingCursorsCount": sum(bool(each["waitingReadOp"]) for each in cursors.values()),
        "pendingAddEntriesCount": ledger.pending_appends,
        "lastConfirmedEntry": f"{last.ledger_id}:{last.entry_id}",
        "state": "Terminated" if ledger.terminated else "LedgerOpened",
        "ledgers": ledgers,
        "cursors": cursors,
        "properties": topic.properties.of_users() | broker_properties(topic),
        "schemaLedgers": [],
        "compactedLedger": topic.compaction.ledger_json(),
    }


async def _ledgers(topic: Topic) -> list[dict[str, object]]:
    """The ledgers of the internal statistics, in slices: their number grows with the log."""
    current = _current_ledger(topic)
    return [
        {
            "ledgerId": slot.ledger_id,
            "entries": 0 if slot is current else slot.entries,
            "size": 0 if slot is current else entry_bytes(slot.size_bytes, slot.entries),
            "offloaded": False,
            "underReplicated": False,
        }
        async for slots in sliced(list(topic.ledger.ledgers) or _empty_ledger_of_the_end(topic), _LEDGERS_IN_ONE_TURN)
        for slot in slots
    ]


def _current_ledger(topic: Topic) -> LedgerSlot | None:
    """The open ledger, or the ledger of the entries since the load for a topic that was terminated meanwhile."""
    last = topic.ledger.ledgers[-1] if topic.ledger.ledgers else None
    if last is None or not last.closed_at_ms:
        return last
    return last if topic.ledger.terminated and topic.ledger.entries_added else None


def _empty_ledger_of_the_end(topic: Topic) -> list[LedgerSlot]:
    """The ledger in which a topic without messages was terminated: Apache Pulsar drops it at the next load."""
    end = topic.ledger.end if topic.ledger.ended_by_this_owner else None
    return [] if end is None or end.entry_id >= 0 else [LedgerSlot(end.ledger_id)]


def unused_info(created_ms: int) -> dict[str, object]:
    """ManagedLedgerInfo of a partition that is recorded and has not been in use since."""
    written = instant(created_ms)
    return {"version": 0, "creationDate": written, "modificationDate": written, "ledgers": [], "cursors": {}}


async def internal_info(topic: Topic) -> dict[str, object]:
    """ManagedLedgerInfo: ledgers and cursors as they are stored. Versions count the writes of a record; they are those
    of a topic and of subscriptions that are as they were created.
    """
    ledger = topic.ledger
    written = instant(topic.created_ms)
    cursors: dict[str, dict[str, object]] = {}

    def is_unchanged(name: str, cursor: ManagedCursor) -> bool:
        return not _was_written(topic, topic.subscriptions.by_name.get(name), cursor)

    async for name, cursor, ranges in with_ranges(ledger.cursors, is_unchanged):
        cursors[url_encoded(name)] = _stored_cursor(topic, name, cursor, written, ranges)
    ledgers = await _stored_ledgers(topic)
    return {
        "version": 1,
        "creationDate": written,
        "modificationDate": written,
        "ledgers": ledgers,
        **({} if ledger.end is None else {"terminatedPosition": _stored(ledger.end)}),
        "cursors": cursors,
        "properties": topic.properties.of_users() | broker_properties(topic),
    }


async def _stored_ledgers(topic: Topic) -> list[dict[str, object]]:
    """Apache Pulsar stores no figures of the ledger that is written, nor of the ledger with the end of the topic."""
    end, slots = topic.ledger.end, list(topic.ledger.ledgers)
    if end is not None and not slots:
        slots = [LedgerSlot(end.ledger_id)]
    return [
        {"ledgerId": slot.ledger_id, "timestamp": slot.closed_at_ms or topic.created_ms, "isOffloaded": False}
        if not slot.closed_at_ms or (end is not None and slot.ledger_id == end.ledger_id)
        else {
            "ledgerId": slot.ledger_id,
            "entries": slot.entries,
            "size": entry_bytes(slot.size_bytes, slot.entries),
            "timestamp": slot.closed_at_ms,
            "isOffloaded": False,
        }
        async for part in sliced(slots, _LEDGERS_IN_ONE_TURN)
        for slot in part
    ]


def _stored_cursor(
    topic: Topic, name: str, cursor: ManagedCursor, written: str, ranges: list[DeletedRange]
) -> dict[str, object]:
    """The record of the cursor. Apache Pulsar writes it when it loads the topic, later changes go to a ledger."""
    subscription = topic.subscriptions.by_name.get(name)
    opened_at = None if subscription is None else subscription.opened_at
    mark_delete = cursor.mark_delete if opened_at is None else opened_at[0]
    was_written = _was_written(topic, subscription, cursor)
    properties = {} if was_written else _shown_properties(cursor)
    shown = [
        {"from": _stored(Position(ledger, low)), "to": _stored(Position(ledger, high))}
        for ledger, low, high in ([] if was_written else ranges)
    ]
    return {
        "version": 1,
        "creationDate": written,
        "modificationDate": written,
        "cursorsLedgerId": cursor.stored_at.ledger_id,
        "markDelete": _stored(_shown(topic, mark_delete)),
        **({"individualDeletedMessages": shown} if shown else {}),
        **({"properties": properties} if properties else {}),
    }


def _stored(position: Position) -> dict[str, int]:
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id}


def _shown(topic: Topic, position: Position) -> Position:
    """The position; for a position before the first ledger, the same entry id in the first ledger (of a terminated
    topic without ledgers: in the ledger of its end).
    """
    slots = topic.ledger.ledgers
    first = slots[0].ledger_id if slots else topic.ledger.newest_position.ledger_id
    return Position(first, position.entry_id) if position.ledger_id < 0 else position


def _shown_properties(cursor: ManagedCursor) -> dict[str, int]:
    """The properties of the cursor that Apache Pulsar has: of a compaction the ledger."""
    hidden = OWN_PROPERTIES | EARLIER_PROPERTIES
    return {key: value for key, value in cursor.position_properties.items() if key not in hidden}


def _waits(topic: Topic, name: str, cursor: ManagedCursor) -> bool:
    """Whether a read of the subscription's consumers waits for new entries."""
    found = topic.subscriptions.by_name.get(name)
    dispatcher = None if found is None or not found.consumers else found.dispatcher
    return dispatcher is not None and dispatcher.loop.waits_for_entries and not cursor.has_more


def _has_met_end(topic: Topic, name: str) -> bool:
    found = topic.subscriptions.by_name.get(name)
    return found is not None and found.dispatcher is not None and found.dispatcher.loop.has_met_end


def _was_written(topic: Topic, subscription: Subscription | None, cursor: ManagedCursor) -> bool:
    """Whether the cursor's position has changed since the topic was loaded; Apache Pulsar has a cursor ledger then.

    True for the cursor of a reader, which the broker never stores.
    """
    if subscription is None and cursor.durable:  # of deduplication: its first snapshot moves it
        return cursor.mark_delete != topic.deduplication.opened_at
    if subscription is None or not cursor.durable:
        return True
    now = cursor.mark_delete, cursor.individually_deleted_entries
    then = subscription.opened_at
    return then is None or now != then[:2] or subscription.place.was_reset


def _was_moved(subscription: Subscription | None) -> bool:
    return subscription is not None and subscription.opened_at is not None and subscription.opened_at.was_consumed


def _cursors(topic: Topic) -> dict[str, ManagedCursor]:
    """The durable cursors and the cursors of readers, by the names of their subscriptions."""
    return {**topic.ledger.cursors, **{s.name: s.cursor for s in topic.subscriptions.by_name.values() if not s.durable}}


def _taken(topic: Topic, cursor: ManagedCursor) -> int:
    """How many entries behind the mark-delete position the subscription has read."""
    return topic.ledger.entries_between(cursor.mark_delete, cursor.read_position.previous())


def _cursor(topic: Topic, name: str, cursor: ManagedCursor, ranges: list[DeletedRange]) -> dict[str, object]:
    mark_delete = _shown(topic, cursor.mark_delete)
    read = _shown(topic, max(cursor.read_position, cursor.mark_delete.next()))
    waiting = _waits(topic, name, cursor)
    subscription = topic.subscriptions.by_name.get(name)
    loaded = topic.deduplication if subscription is None else subscription
    was_moved = _was_moved(subscription)
    if loaded.loaded_at == cursor.mark_delete:
        mark_delete = shown_mark_delete(topic.ledger.ledgers, loaded)
        was_moved = was_moved or (subscription is None and mark_delete != cursor.mark_delete)
        read = max(read, mark_delete.next())
    taken = _taken(topic, cursor)
    # Apache Pulsar puts a cursor that is reset to the start before the first entry, until a consumer reads an entry.
    place = None if subscription is None or taken else subscription.place
    at_start = place is not None and place.is_before_first(cursor.mark_delete)
    if at_start:
        read = mark_delete
    words = "" if place is None else place.words(cursor.mark_delete)
    return {
        "markDeletePosition": f"{mark_delete.ledger_id}:{mark_delete.entry_id}",
        "readPosition": f"{read.ledger_id}:{read.entry_id}{words}",
        "waitingReadOp": waiting,
        "pendingReadOps": 0,
        "messagesConsumedCounter": topic.ledger.entries_added - cursor.backlog_entries,
        "cursorLedger": cursor.stored_at.ledger_id,
        "cursorLedgerLastEntry": cursor.stored_at.entry_id,
        "individuallyDeletedMessages": as_text(ranges),
        "state": "Open" if _was_written(topic, subscription, cursor) or was_moved else "NoLedger",
        "active": subscription is not None and (bool(subscription.consumers) or subscription.place.is_active),
        "lastLedgerSwitchTimestamp": instant(topic.created_ms),
        "numberOfEntriesSinceFirstNotAckedMessage": taken + (not at_start),
        "totalNonContiguousDeletedMessagesRange": count_deleted_ranges(cursor),
        "subscriptionHavePendingRead": waiting and not _has_met_end(topic, name),
        "subscriptionHavePendingReplayRead": False,
        "properties": _shown_properties(cursor),
    }
