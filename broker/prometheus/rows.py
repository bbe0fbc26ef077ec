"""The rows of /metrics: Pulsar's name of a figure, and how it is read from the statistics (reference: Pulsar's
metrics page).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from magnetar.broker.compat.absent_features import FILTER_GAUGES, OFFLOADING_GAUGES, TRANSACTION_GAUGES

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer_stats import ConsumerStats, SubscriptionStats
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.topics.topic_stats import LatencyCounts, ProducerStats, SizeCounts, TopicStats

T = TypeVar("T")
Number = int | float


def _total(values: Sequence[Number]) -> Number:
    return sum(values)


def _largest(values: Sequence[Number]) -> Number:
    return max(values, default=0)


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One metric. `combined` combines the values of several topics into the value of their namespace."""

    name: str
    value: Callable[[T], Number]
    combined: Callable[[Sequence[Number]], Number] = _total


class QuotaView(NamedTuple):
    """The limits of a topic's backlog; -1 is unlimited."""

    limit_bytes: int
    limit_seconds: int

    @classmethod
    def of(cls, config: "TopicConfig") -> "QuotaView":
        return cls(config.size_quota.limit_size, config.age_quota.limit_time)


class TopicView:
    """A topic's statistics with the sums that several rows need."""

    __slots__ = ("consumers", "msg_backlog", "quota", "rate_out", "stats", "throughput_out")

    def __init__(self, stats: "TopicStats", quota: QuotaView) -> None:
        subscriptions = stats.subscriptions.values()
        self.stats = stats
        self.quota = quota
        self.consumers = sum(len(each.consumers) for each in subscriptions)
        self.rate_out = sum(each.msg_rate_out for each in subscriptions)
        self.throughput_out = sum(each.msg_throughput_out for each in subscriptions)
        self.msg_backlog = sum(each.msg_backlog for each in subscriptions)


class SubscriptionView(NamedTuple):
    """One subscription."""

    stats: "SubscriptionStats"


def _per_second(size: int, view: TopicView) -> float:
    """The rate of the last compaction; 0 before the first compaction."""
    duration_ms = view.stats.compaction.duration_ms
    return size * 1000 / duration_ms if duration_ms else 0.0


def _without_consumers(view: TopicView) -> int:
    """Subscriptions of the topic that have no consumer."""
    return sum(not each.consumers for each in view.stats.subscriptions.values())


TOPIC_ROWS: Final[tuple[Row[TopicView], ...]] = (
    Row("pulsar_subscriptions_count", lambda v: len(v.stats.subscriptions)),
    Row("magnetar_subscriptions_without_consumers", _without_consumers),
    Row("pulsar_producers_count", lambda v: len(v.stats.publishers)),
    Row("pulsar_consumers_count", lambda v: v.consumers),
    Row("pulsar_rate_in", lambda v: v.stats.msg_rate_in),
    Row("pulsar_rate_out", lambda v: v.rate_out),
    Row("pulsar_throughput_in", lambda v: v.stats.msg_throughput_in),
    Row("pulsar_throughput_out", lambda v: v.throughput_out),
    Row("pulsar_average_msg_size", lambda v: v.stats.average_msg_size, _largest),
    Row("pulsar_in_bytes_total", lambda v: v.stats.bytes_in_counter),
    Row("pulsar_in_messages_total", lambda v: v.stats.msg_in_counter),
    Row("pulsar_publish_rate_limit_times", lambda v: v.stats.publish_rate_limited_times),
    Row("pulsar_storage_size", lambda v: v.stats.storage_bytes),
    Row("pulsar_storage_logical_size", lambda v: v.stats.storage_bytes),
    Row("pulsar_storage_backlog_size", lambda v: v.stats.backlog_bytes),
    *(Row(name, lambda _: 0) for name in OFFLOADING_GAUGES),
    Row("pulsar_storage_write_rate", lambda v: v.stats.storage_write_rate),
    Row("pulsar_storage_read_rate", lambda v: v.stats.storage_read_rate),
    Row("pulsar_storage_read_cache_misses_rate", lambda v: v.stats.storage_read_misses_rate),
    Row("pulsar_storage_backlog_quota_limit", lambda v: v.quota.limit_bytes, _largest),
    Row("pulsar_storage_backlog_quota_limit_time", lambda v: v.quota.limit_seconds, _largest),
    Row("pulsar_storage_backlog_age_seconds", lambda v: v.stats.oldest_backlog_age_seconds, _largest),
    Row("pulsar_msg_backlog", lambda v: v.msg_backlog),
    Row("pulsar_delayed_message_index_size_bytes", lambda v: v.stats.delayed_index_bytes),
    *(Row(name, lambda _: 0) for name in TRANSACTION_GAUGES),
    Row("pulsar_compaction_removed_event_count", lambda v: v.stats.compaction.removed_events),
    Row("pulsar_compaction_succeed_count", lambda v: v.stats.compaction.runs_succeeded),
    Row("pulsar_compaction_failed_count", lambda v: v.stats.compaction.runs_failed),
    Row("pulsar_compaction_duration_time_in_mills", lambda v: v.stats.compaction.duration_ms),
    Row("pulsar_compaction_read_throughput", lambda v: _per_second(v.stats.compaction.read_bytes, v)),
    Row("pulsar_compaction_write_throughput", lambda v: _per_second(v.stats.compaction.size_bytes, v)),
    Row("pulsar_compaction_compacted_entries_count", lambda v: v.stats.compaction.entries),
    Row("pulsar_compaction_compacted_entries_size", lambda v: v.stats.compaction.size_bytes),
)

SUBSCRIPTION_ROWS: Final[tuple[Row[SubscriptionView], ...]] = (
    Row("pulsar_subscription_back_log", lambda v: v.stats.msg_backlog),
    Row("pulsar_subscription_back_log_no_delayed", lambda v: v.stats.msg_backlog_no_delayed),
    Row("pulsar_subscription_delayed", lambda v: v.stats.msg_delayed),
    Row("pulsar_subscription_in_replay", lambda v: v.stats.msg_in_replay),
    Row("pulsar_subscription_msg_rate_redeliver", lambda v: v.stats.msg_rate_redeliver),
    Row("pulsar_subscription_unacked_messages", lambda v: v.stats.unacked_messages),
    Row("pulsar_subscription_blocked_on_unacked_messages", lambda v: int(v.stats.blocked_on_unacked)),
    Row("pulsar_subscription_msg_rate_out", lambda v: v.stats.msg_rate_out),
    Row("pulsar_subscription_msg_ack_rate", lambda v: v.stats.message_ack_rate),
    Row("pulsar_subscription_msg_throughput_out", lambda v: v.stats.msg_throughput_out),
    Row("pulsar_subscription_last_expire_timestamp", lambda v: v.stats.last_expire_ms),
    Row("pulsar_subscription_last_acked_timestamp", lambda v: v.stats.last_acked_ms),
    Row("pulsar_subscription_last_consumed_flow_timestamp", lambda v: v.stats.last_consumed_flow_ms),
    Row("pulsar_subscription_last_consumed_timestamp", lambda v: v.stats.last_consumed_ms),
    Row("pulsar_subscription_last_mark_delete_advanced_timestamp", lambda v: v.stats.last_mark_delete_advanced_ms),
    Row("pulsar_subscription_msg_rate_expired", lambda v: v.stats.msg_rate_expired),
    Row("pulsar_subscription_total_msg_expired", lambda v: v.stats.total_msg_expired),
    Row("pulsar_subscription_msg_drop_rate", lambda v: v.stats.msg_drop_rate),
    Row("pulsar_subscription_consumers_count", lambda v: len(v.stats.consumers)),
    *(Row(name, lambda _: 0) for name in FILTER_GAUGES),
    Row("pulsar_out_bytes_total", lambda v: v.stats.bytes_out_counter),
    Row("pulsar_out_messages_total", lambda v: v.stats.msg_out_counter),
)

CONSUMER_ROWS: "Final[tuple[Row[ConsumerStats], ...]]" = (
    Row("pulsar_consumer_msg_rate_redeliver", lambda c: c.msg_rate_redeliver),
    Row("pulsar_consumer_unacked_messages", lambda c: c.unacked_messages),
    Row("pulsar_consumer_blocked_on_unacked_messages", lambda c: int(c.blocked_on_unacked)),
    Row("pulsar_consumer_msg_rate_out", lambda c: c.msg_rate_out),
    Row("pulsar_consumer_msg_ack_rate", lambda c: c.message_ack_rate),
    Row("pulsar_consumer_msg_throughput_out", lambda c: c.msg_throughput_out),
    Row("pulsar_consumer_available_permits", lambda c: c.available_permits),
)

PRODUCER_ROWS: "Final[tuple[Row[ProducerStats], ...]]" = (
    Row("pulsar_producer_msg_rate_in", lambda p: p.msg_rate_in),
    Row("pulsar_producer_msg_throughput_in", lambda p: p.msg_throughput_in),
    Row("pulsar_producer_msg_average_Size", lambda p: p.average_msg_size),
)


@dataclass(frozen=True, slots=True)
class BucketFamily:
    """Counts per bucket: one metric per suffix, plus _count and _sum."""

    name: str
    suffixes: tuple[str, ...]
    counts: "Callable[[TopicView], LatencyCounts | SizeCounts | None]"


_LATENCY_SUFFIXES: Final = (
    *(f"_le_{ms}" for ms in ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000")),
    "_overflow",
)
_SIZE_SUFFIXES: Final = tuple(
    f"_le_{size}" for size in ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb", "overflow")
)
BUCKETS: Final = (
    BucketFamily("pulsar_storage_write_latency", _LATENCY_SUFFIXES, lambda v: v.stats.write_latency_ms),
    BucketFamily("pulsar_storage_ledger_write_latency", _LATENCY_SUFFIXES, lambda v: v.stats.write_latency_ms),
    BucketFamily("pulsar_entry_size", _SIZE_SUFFIXES, lambda v: v.stats.entry_sizes),
)
