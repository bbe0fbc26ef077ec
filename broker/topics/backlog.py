"""The backlog of a persistent topic's subscriptions, and its quotas.

Sizes are estimates from the ledgers' lengths, ages come from the entry after the slowest mark-delete position.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.topics.log_facts import ReadableLog, entry_time_ms
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.subscriptions import TopicSubscriptions
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.managed.ledger_map import LedgerSlot
    from magnetar.storage.position import Position

HOLD = "producer_request_hold"
EXCEPTION = "producer_exception"


def entry_bytes(stored_bytes: int, entries: int) -> int:
    """Bytes of entries without the headers of their records in the log: the size that Apache Pulsar shows."""
    return stored_bytes - entries * RECORD_HEADER_BYTES


class BytesBehind:
    """Apache Pulsar's estimates of the bytes behind positions of a log: entries up to the position have the average
    size of their ledger, rounded down. The ledgers are added up once for all positions, and later changes of the log
    have no effect.
    """

    def __init__(self, slots: Sequence[LedgerSlot]) -> None:
        self._ids = [slot.ledger_id for slot in slots]
        self._entries = [slot.entries for slot in slots]
        sizes = [entry_bytes(slot.size_bytes, slot.entries) for slot in slots]
        self._from = list(accumulate(reversed(sizes), initial=0))[::-1]
        """The bytes from each ledger to the end."""

    def of(self, position: Position) -> int:
        k = bisect_left(self._ids, position.ledger_id)
        total, taken = self._from[k], position.entry_id + 1
        if taken <= 0 or k == len(self._ids):
            return total
        entries = self._entries[k]
        if self._ids[k] != position.ledger_id or not entries:
            return total
        size = total - self._from[k + 1]
        return total - (size if taken >= entries else taken * (size // entries))


def bytes_behind(slots: Sequence[LedgerSlot], position: Position) -> int:
    """The estimate for a single position."""
    return BytesBehind(slots).of(position)


class TrimmedLog(ReadableLog, Protocol):
    """A log that lists its remaining ledgers, oldest first, and its durable cursors. end: of a terminated log."""

    @property
    def ledgers(self) -> Sequence[LedgerSlot]: ...
    @property
    def cursors(self) -> Mapping[str, ManagedCursor]: ...
    @property
    def end(self) -> Position | None: ...
    def next_valid(self, position: Position) -> Position | None: ...


class TopicBacklog:
    """The backlog of the slowest durable cursor. evictions_*: how often a quota dropped entries."""

    def __init__(
        self,
        ledger: TrimmedLog,
        subscriptions: TopicSubscriptions,
        settings: Settings,
        now_ms: Callable[[], int],
        *,
        has_quotas: bool = True,
    ) -> None:
        """has_quotas: false for the topics of the broker, which no quota stops, as in Apache Pulsar."""
        self._has_quotas = has_quotas
        self.evictions_size = 0
        self.evictions_age = 0
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._settings = settings
        self._now_ms = now_ms
        self._oldest_ms = 0
        self._oldest_at: Position | None = None
        self.oldest_subscription: str | None = None
        """The slowest durable cursor, compaction and deduplication included, while its oldest entry has an age in
        Apache Pulsar: while the ledger of the entry is closed and without the end of a terminated topic, or with
        preciseTimeBasedBacklogQuotaCheck.
        """

    def slowest(self) -> ManagedCursor | None:
        """The durable cursor with the smallest mark-delete position, compaction and deduplication included."""
        return min(self._ledger.cursors.values(), key=attrgetter("mark_delete"), default=None)

    def size_bytes(self) -> int:
        """Estimated bytes behind the slowest durable cursor; 0 without cursors."""
        slowest = self.slowest()
        return 0 if slowest is None else bytes_behind(self._ledger.ledgers, slowest.mark_delete)

    def evictable_bytes(self) -> int:
        """Estimated bytes that the slowest durable subscription of users has not acknowledged."""
        slowest = self._subscriptions.slowest()
        return 0 if slowest is None else bytes_behind(self._ledger.ledgers, slowest.cursor.mark_delete)

    def age_s(self) -> int:
        """Age of the backlog in seconds, for the quota by age.

        With preciseTimeBasedBacklogQuotaCheck the age of the oldest entry; else (the default) the time since the ledger
        of the oldest entry was closed, 0 while that ledger is open.
        """
        if self._settings.precise_time_based_backlog_quota_check:
            return self.oldest_age_s()
        slowest = self.slowest()
        first = None if slowest is None else self._ledger.next_valid(slowest.mark_delete)
        if first is None:
            return 0
        closed_ms = self._closed_ms(first)
        return max(0, self._now_ms() - closed_ms) // 1000 if closed_ms else 0

    def oldest_age_s(self) -> int:
        """Age in seconds of the oldest entry behind the slowest durable cursor, while a subscription has a backlog.

        The entry is that of the last `refresh_oldest`; 0 without such an entry.
        """
        return max(0, self._now_ms() - self._oldest_ms) // 1000 if self._oldest_ms else 0

    async def refresh_oldest(self) -> None:
        """Read the time of the entry behind the slowest mark-delete position, once for each entry: the check of
        thousands of topics that stand still must not read an entry of each again.
        """
        slowest, position = self.slowest(), None
        if slowest is not None and self._has_backlog():
            position = self._ledger.next_valid(slowest.mark_delete)
        if position is None or position != self._oldest_at or not self._oldest_ms:
            oldest_ms = 0 if position is None else await entry_time_ms(self._ledger, position)
            # Behind the read: the age of before counts meanwhile.
            self._oldest_ms, self._oldest_at = oldest_ms, position
        self.oldest_subscription = self._oldest_name()

    def _has_backlog(self) -> bool:
        return any(s.cursor.backlog_entries for s in self._subscriptions.by_name.values())

    def _oldest_name(self) -> str | None:
        """The name of the slowest cursor, while a subscription has a backlog and the cursor's next entry has an age."""
        if not self._has_backlog():
            return None
        slowest = self.slowest()
        position = None if slowest is None else self._ledger.next_valid(slowest.mark_delete)
        if slowest is None or position is None:
            return None
        end = self._ledger.end
        is_closed = self._closed_ms(position) and (end is None or position.ledger_id != end.ledger_id)
        return slowest.name if is_closed or self._settings.precise_time_based_backlog_quota_check else None

    def _closed_ms(self, position: Position) -> int:
        """The time at which the ledger of the position was closed; 0 while the ledger is open."""
        return next((s.closed_at_ms for s in self._ledger.ledgers if s.ledger_id == position.ledger_id), 0)

    def exceeded_policy(self, config: TopicConfig) -> str | None:
        """The policy of the first exceeded quota, by size before age; None if no quota is exceeded."""
        if not self._has_quotas:
            return None
        size, age = config.size_quota, config.age_quota
        if size.limit_size >= 0 and self.size_bytes() >= size.limit_size:
            return str(size.policy)
        if age.limit_time > 0 and self.age_s() > age.limit_time:
            return str(age.policy)
        return None

    def check_quota(self, config: TopicConfig) -> None:
        """Raise the refusal of a new producer while a quota is breached."""
        policy = self.exceeded_policy(config)
        if policy == HOLD:
            raise wire_refusals.BACKLOG_QUOTA_HOLDS.error()
        if policy == EXCEPTION:
            raise wire_refusals.BACKLOG_QUOTA_EXCEEDED.error()
