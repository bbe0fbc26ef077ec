"""Enforcement of backlog quotas: the largest backlog of a topic's slowest subscription, in bytes and in age.

A periodic check finds a breach. By the quota's policy the broker then closes the producers and refuses them when they
come back (hold, exception), or skips entries (eviction): those of the slowest subscription for the quota by size, those
that are too old, or in a ledger that was closed too long ago, of all durable subscriptions for the quota by age. The
cursors of compaction and deduplication count, but evictions leave them alone. Where the cursor of deduplication is the
slowest, the broker first takes a snapshot.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.topics.backlog import EXCEPTION, HOLD
from magnetar.broker.topics.deduplication import CURSOR_NAME as DEDUPLICATION_CURSOR
from magnetar.storage.errors import StorageFullError, StorageUnavailableError
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.topic import Topic

log = structlog.get_logger(__name__)
_EVICT_TO = 0.9


async def enforce(topic: Topic) -> None:
    """Run the periodic check of one topic."""
    await topic.backlog.refresh_oldest()
    policy = topic.backlog.exceeded_policy(topic.config)
    if policy is None:
        return
    if policy in (HOLD, EXCEPTION):
        log.info("backlog_quota.exceeded", topic=str(topic.name), policy=policy)
        if not await _deduplication_advanced(topic):
            await topic.producers.disconnect_in_turns(topic.context.turns)
        return
    await _evict(topic)


async def _deduplication_advanced(topic: Topic) -> bool:
    """Take a snapshot of deduplication if its cursor is the slowest; return whether the cursor has moved."""
    cursor, slowest = topic.ledger.cursors.get(DEDUPLICATION_CURSOR), topic.backlog.slowest()
    if cursor is None or slowest is None or cursor.mark_delete > slowest.mark_delete:
        return False
    before = cursor.mark_delete
    with contextlib.suppress(StorageFullError, StorageUnavailableError):  # the next check tries again
        await topic.deduplication.snapshot()
    return cursor.mark_delete > before


async def _evict(topic: Topic) -> None:
    size, age = topic.config.size_quota, topic.config.age_quota
    if size.limit_size >= 0 and topic.backlog.size_bytes() >= size.limit_size:
        await _evict_by_size(topic, size.limit_size * _EVICT_TO)
        topic.backlog.evictions_size += 1
    elif age.limit_time > 0:
        position = await _behind_old_entries(topic, age.limit_time * 1000)
        for subscription in topic.subscriptions.durable() if position > EARLIEST else ():
            await topic.subscriptions.move_to(subscription, position)
            subscription.cursor.enter_next_ledger()  # as in Apache Pulsar evicted ledgers go at once
        topic.backlog.evictions_age += 1


async def _behind_old_entries(topic: Topic, limit_ms: int) -> Position:
    """The position behind the entries that the quota by age evicts: entries older than nine tenths of the limit with
    preciseTimeBasedBacklogQuotaCheck, else (the default) the ledgers that were closed longer ago than the limit.
    """
    now_ms = topic.context.now_ms()
    if topic.context.settings.precise_time_based_backlog_quota_check:
        return await topic.ledger.position_for_time(now_ms - int(limit_ms * _EVICT_TO))
    behind = EARLIEST
    for slot in topic.ledger.ledgers:
        if not slot.closed_at_ms or now_ms - slot.closed_at_ms <= limit_ms:
            break
        behind = Position(slot.ledger_id, slot.entries)
    return behind


async def _evict_by_size(topic: Topic, target_bytes: float) -> None:
    """Skip entries of the slowest subscription until the backlog fits.

    As in Apache Pulsar, entries that are acknowledged between others count as skipped. Stop when the subscription that
    was skipped last is still the slowest, or when the share of its backlog that has to go is less than an entry.
    """
    previous: Subscription | None = None
    while (backlog := topic.backlog.evictable_bytes()) > target_bytes:
        slowest = topic.subscriptions.slowest()
        if slowest is None or slowest is previous:
            return
        previous = slowest
        entries = int(slowest.cursor.backlog_entries * (backlog - target_bytes) / backlog)
        if not entries:
            return
        await topic.subscriptions.skip(slowest, entries, acknowledged=True)
        log.info("backlog_quota.evicted", topic=str(topic.name), subscription=slowest.name, entries=entries)
