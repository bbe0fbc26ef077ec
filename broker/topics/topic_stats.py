"""The figures of a topic and its producers as frozen values: the source of the stats JSON and /metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.broker.compaction.compaction_stats import CompactionStats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.consumers.consumer_stats import SubscriptionStats
    from magnetar.delayed.index_stats import DelayIndexStats
    from magnetar.protocol.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """The figures of a producer for the stats page and the metrics; rates per second over the last period."""

    producer_id: int
    producer_name: str
    access_mode: int
    address: str
    client_version: str
    connected_since_ms: int
    metadata: dict[str, str]
    msg_rate_in: float
    msg_throughput_in: float
    average_msg_size: float
    chunked_message_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """A loaded topic. Rates are per second over the last stats period, times milliseconds since 1970, 0: never.

    subscriptions: by name; `backlog_bytes` the size from the slowest subscription's position to the end;
    `subscription_backlog_bytes` and `earliest_publish_ms` per subscription (the latter only on request).
    """

    name: TopicName
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    average_msg_size: float = 0.0
    msg_in_counter: int = 0
    unstored_entries_in: int = 0
    """Entries that a non-persistent topic took."""
    bytes_in_counter: int = 0
    gone_msg_out_counter: int = 0
    """Messages that deleted subscriptions had sent; the next field is their bytes."""
    gone_bytes_out_counter: int = 0
    gone_bytes_out_internal_counter: int = 0
    """Bytes of these that the subscription of compaction had sent."""
    msg_chunk_published: bool = False
    storage_bytes: int = 0
    backlog_bytes: int = 0
    deduplication_backlog: int = 0
    """Entries that no snapshot of deduplication covers."""
    subscription_backlog_bytes: dict[str, int] = field(default_factory=dict)
    earliest_publish_ms: dict[str, int] = field(default_factory=dict)
    earliest_in_backlog_ms: int = 0
    """Publish time of the first entry behind the slowest cursor, of deduplication and compaction as well; 0 when no
    entry is behind it. On request.
    """
    oldest_backlog_age_seconds: int = -1
    oldest_backlog_subscription: str | None = None
    publish_rate_limited_times: int = 0
    publishers: Sequence[ProducerStats] = ()
    waiting_publishers: int = 0
    subscriptions: dict[str, SubscriptionStats] = field(default_factory=dict)
    deduplication_status: str = "Disabled"
    topic_epoch: int | None = None
    non_contiguous_deleted_ranges: dict[str, int] = field(default_factory=dict)
    deleted_ranges_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of these ranges in Apache Pulsar's records of cursors; on request."""
    entries_since_mark_delete: dict[str, int] = field(default_factory=dict)
    """Entries behind the mark-delete position that each subscription has read."""
    delayed_index_bytes: int = 0
    delayed_index: DelayIndexStats | None = None
    compaction: CompactionStats = field(default_factory=CompactionStats)
    created_ms: int = 0
    last_publish_ms: int = 0
    msg_drop_rate: float = 0.0
    storage_write_rate: float = 0.0
    storage_read_rate: float = 0.0
    """Entries that the cache lacked."""
    storage_read_bytes_rate: float = 0.0
    failed_reads: int = 0
    """Reads of the log that failed in the last stats period; the next field: entries whose append failed."""
    failed_appends: int = 0
    mark_delete_rate: float = 0.0
    """Saves of cursors per second."""
    ledger_switch_ms: LatencyCounts | None = None
    write_latency_ms: LatencyCounts | None = None
    entry_sizes: SizeCounts | None = None
    compaction_write_latency_ms: LatencyCounts | None = None
    """Entries that compactions have written since the topic was loaded."""
    quota_evictions_size: int = 0
    quota_evictions_age: int = 0

    @property
    def bytes_out_internal_counter(self) -> int:
        """Bytes that compactions have read since the load."""
        return self.gone_bytes_out_internal_counter + sum(
            each.bytes_out_counter for each in self.subscriptions.values() if each.pinned
        )


@dataclass(frozen=True, slots=True)
class LatencyCounts:
    """Counts per bucket of 0.5, 1, 5, 10, 20, 50, 100, 200, 1000 ms and beyond, of the last stats period; sum in
    ms.
    """

    buckets: tuple[int, ...]
    count: int
    sum: float


@dataclass(frozen=True, slots=True)
class SizeCounts:
    """Counts per bucket of 128, 512, 1k, 2k, 4k, 16k, 100k, 1M bytes and beyond, of the last stats period."""

    buckets: tuple[int, ...]
    count: int
    sum: float
