"""Topics' figures for the admin API and the metrics: plain functions from a topic to frozen values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.admin.api import TopicStats
from magnetar.broker.topic import Topic
from magnetar.delayed.bucket_index import BucketDelayIndex

if TYPE_CHECKING:
    from magnetar.broker.topics import AnyTopic
    from magnetar.storage.cursor import ManagedCursor


def topic_stats(topic: AnyTopic, earliest_publish_ms: dict[str, int]) -> TopicStats:
    """Everything the stats page says of a topic; nothing is read from the log."""
    rate = topic.rate_in.rates()
    stats = TopicStats(
        name=topic.name,
        msg_rate_in=rate.messages_per_second,
        msg_throughput_in=rate.bytes_per_second,
        average_msg_size=rate.average_size,
        msg_in_counter=topic.rate_in.total_messages,
        bytes_in_counter=topic.rate_in.total_bytes,
        publishers=[producer.stats() for producer in topic.producers],
        waiting_publishers=topic.producers.waiting_count,
        subscriptions={name: s.stats() for name, s in topic.subscriptions.by_name.items()},
        earliest_publish_ms=earliest_publish_ms,
        deduplication_status=topic.deduplication.status,
        topic_epoch=topic.producers.epoch,
        created_ms=topic.created_ms,
        last_publish_ms=topic.last_publish_ms,
    )
    return _with_storage(stats, topic) if isinstance(topic, Topic) else stats


def _with_storage(stats: TopicStats, topic: Topic) -> TopicStats:
    from dataclasses import replace  # noqa: PLC0415 - start-up

    subscriptions = topic.subscriptions.by_name
    return replace(
        stats,
        msg_chunk_published=topic.chunks_in > 0,
        storage_bytes=topic.ledger.size_bytes,
        backlog_bytes=topic.backlog_bytes(),
        subscription_backlog_bytes={name: s.cursor.backlog_bytes for name, s in subscriptions.items()},
        oldest_backlog_age_seconds=topic.oldest_backlog_age_s() or -1,
        non_contiguous_deleted_ranges={name: len(deleted_ranges(topic, s.cursor)) for name, s in subscriptions.items()},
        delayed_index_bytes=0 if topic.delay_index is None else topic.delay_index.memory_bytes,
        delayed_index=topic.delay_index.stats() if isinstance(topic.delay_index, BucketDelayIndex) else None,
        compaction=topic.compaction.stats(),
        quota_evictions_size=topic.quota_evictions_size,
        quota_evictions_age=topic.quota_evictions_age,
    )


def internal_stats(topic: Topic) -> dict[str, object]:
    """PersistentTopicInternalStats (reference G.2)."""
    ledger = topic.ledger
    slots = ledger.ledgers
    last = ledger.last_confirmed
    current = slots[-1] if slots and not slots[-1].closed_at_ms else None
    return {
        "entriesAddedCounter": ledger.entries_added,
        "numberOfEntries": ledger.entries,
        "totalSize": ledger.size_bytes,
        "currentLedgerEntries": current.entries if current else 0,
        "currentLedgerSize": current.size_bytes if current else 0,
        "waitingCursorsCount": sum(not c.has_more for c in ledger.cursors.values()),
        "pendingAddEntriesCount": ledger.pending_appends,
        "lastConfirmedEntry": f"{last.ledger_id}:{last.entry_id}",
        "state": "Terminated" if ledger.terminated else "LedgerOpened",
        "ledgers": [
            {
                "ledgerId": slot.ledger_id,
                "entries": 0 if slot is current else slot.entries,
                "size": 0 if slot is current else slot.size_bytes,
                "offloaded": False,
                "underReplicated": False,
            }
            for slot in slots
        ],
        "cursors": {name: _cursor(topic, name) for name in ledger.cursors},
        "schemaLedgers": [],
        "compactedLedger": topic.compaction.ledger_json(),
    }


def deleted_ranges(topic: Topic, cursor: ManagedCursor) -> list[tuple[int, int, int]]:
    """(ledger, before the first, last) of each run of entries acknowledged behind mark-delete."""
    ranges: list[tuple[int, int, int]] = []
    for slot in topic.ledger.ledgers:
        bitmap = cursor.deleted_in(slot.ledger_id)
        start = previous = -2
        for entry in bitmap or ():
            if entry != previous + 1:
                if previous >= 0:
                    ranges.append((slot.ledger_id, start - 1, previous))
                start = entry
            previous = entry
        if previous >= 0:
            ranges.append((slot.ledger_id, start - 1, previous))
    return ranges


def deleted_text(topic: Topic, cursor: ManagedCursor) -> str:
    """The ranges as Pulsar prints them: ``[(l:e..l:e]]``, open at the lower end."""
    texts = [f"({ledger}:{low}..{ledger}:{high}]" for ledger, low, high in deleted_ranges(topic, cursor)]
    return f"[{','.join(texts)}]"


def _cursor(topic: Topic, name: str) -> dict[str, object]:
    cursor = topic.ledger.cursors[name]
    mark_delete, read = cursor.mark_delete, cursor.read_position
    return {
        "markDeletePosition": f"{mark_delete.ledger_id}:{mark_delete.entry_id}",
        "readPosition": f"{read.ledger_id}:{read.entry_id}",
        "waitingReadOp": not cursor.has_more,
        "pendingReadOps": 0,
        "messagesConsumedCounter": topic.ledger.entries_added - cursor.backlog_entries,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": deleted_text(topic, cursor),
        "state": "Open" if cursor.durable else "NoLedger",
        "active": not cursor.has_more,
        "numberOfEntriesSinceFirstNotAckedMessage": topic.ledger.entries_between(mark_delete, read.previous()) + 1,
        "totalNonContiguousDeletedMessagesRange": len(deleted_ranges(topic, cursor)),
        "subscriptionHavePendingRead": not cursor.has_more,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.position_properties),
    }
