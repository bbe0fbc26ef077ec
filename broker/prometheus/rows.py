"""The rows of /metrics: Pulsar's name of a figure, and how it is read from the statistics (reference: Pulsar's
metrics page).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    def of(cls, config: "TopicConfig", *, persistent: bool) -> "QuotaView":
        """The limits; a topic that stores nothing has a limit of 0 bytes, as in Apache Pulsar."""
        return cls(config.size_quota.limit_size if persistent else 0, config.age_quota.limit_time)


class TopicView:
    """A topic's statistics with the sums that several rows need."""

    __slots__ = (
        *("consumers", "internal_out_bytes", "msg_backlog", "out_bytes", "quota", "rate_out", "stats", "system"),
        "throughput_out",
    )

    def __init__(self, stats: "TopicStats", quota: QuotaView) -> None:
        subscriptions = stats.subscriptions.values()
        self.stats = stats
        self.quota = quota
        self.consumers = sum(len(each.consumers) for each in subscriptions)
        self.rate_out = sum(each.msg_rate_out for each in subscriptions)
        self.throughput_out = sum(each.msg_throughput_out for each in subscriptions)
        self.msg_backlog = sum(each.msg_backlog for each in subscriptions)
        self.out_bytes = stats.gone_bytes_out_counter + sum(each.bytes_out_counter for each in subscriptions)
        self.internal_out_bytes = stats.bytes_out_internal_counter
        self.system = stats.name.is_system


class SubscriptionView(NamedTuple):
    """One subscription."""

    stats: "SubscriptionStats"


def _per_second(size: int, view: TopicView) -> float:
    """The rate of the last compaction; 0 before the first compaction."""
    duration_ms = view.stats.compaction.duration_ms
    return size * 1000 / duration_ms if duration_ms else 0.0


def compacted(view: TopicView) -> bool:
    """Whether a compaction of the topic has ended since the topic was loaded."""
    found = view.stats.compaction
    return bool(found.runs_succeeded or found.runs_failed)


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
    Row("pulsar_storage_read_cache_misses_rate", lambda v: v.stats.storage_read_rate),
    Row("pulsar_storage_backlog_quota_limit", lambda v: v.quota.limit_bytes, _largest),
    Row("pulsar_storage_backlog_quota_limit_time", lambda v: v.quota.limit_seconds, _largest),
    Row("pulsar_storage_backlog_age_seconds", lambda v: v.stats.oldest_backlog_age_seconds, _largest),
    Row("pulsar_msg_backlog", lambda v: v.msg_backlog),
    Row("pulsar_delayed_message_index_size_bytes", lambda v: v.stats.delayed_index_bytes),
    *(Row(name, lambda _: 0) for name in TRANSACTION_GAUGES),
)
BROKER_TOTALS: Final[tuple[tuple[str, str, str, Callable[[TopicView], int]], ...]] = (
    ("pulsar_broker_out_bytes_total", "system_subscription", "false", lambda v: v.out_bytes - v.internal_out_bytes),
    ("pulsar_broker_out_bytes_total", "system_subscription", "true", lambda v: v.internal_out_bytes),
    ("pulsar_broker_in_bytes_total", "system_topic", "false", lambda v: 0 if v.system else v.stats.bytes_in_counter),
    ("pulsar_broker_in_bytes_total", "system_topic", "true", lambda v: v.stats.bytes_in_counter if v.system else 0),
)
"""Sums over all topics: family, its label, the value of the label, the figure of a topic."""

COMPACTION_ROWS: Final[tuple[Row[TopicView], ...]] = (
    Row("pulsar_compaction_removed_event_count", lambda v: v.stats.compaction.removed_events_total),
    Row("pulsar_compaction_succeed_count", lambda v: v.stats.compaction.runs_succeeded),
    Row("pulsar_compaction_failed_count", lambda v: v.stats.compaction.runs_failed),
    Row("magnetar_compaction_lost_entries", lambda v: v.stats.compaction.lost_entries),
    Row("pulsar_compaction_duration_time_in_mills", lambda v: v.stats.compaction.duration_total_ms),
    Row("pulsar_compaction_read_throughput", lambda v: _per_second(v.stats.compaction.read_bytes, v)),
    Row("pulsar_compaction_write_throughput", lambda v: _per_second(v.stats.compaction.size_bytes, v)),
    Row("pulsar_compaction_compacted_entries_count", lambda v: v.stats.compaction.entries),
    Row("pulsar_compaction_compacted_entries_size", lambda v: v.stats.compaction.size_bytes),
)
"""Rows of a topic that was compacted since its load."""

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
    Row("pulsar_subscription_delayed_message_index_size_bytes", lambda v: v.stats.delayed_index_bytes),
    Row("pulsar_out_bytes_total", lambda v: v.stats.bytes_out_counter),
    Row("pulsar_out_messages_total", lambda v: v.stats.msg_out_counter),
)

CONSUMER_TOTALS: "Final[dict[str, Callable[[ConsumerStats], int]]]" = {
    "pulsar_out_bytes_total": lambda c: c.bytes_out_counter,
    "pulsar_out_messages_total": lambda c: c.msg_out_counter,
}
"""Figures of a consumer under the name of a row of its subscription."""

CONSUMER_ROWS: "Final[tuple[Row[ConsumerStats], ...]]" = (
    Row("pulsar_consumer_msg_rate_redeliver", lambda c: c.msg_rate_redeliver),
    Row("pulsar_consumer_unacked_messages", lambda c: c.unacked_messages),
    Row("pulsar_consumer_blocked_on_unacked_messages", lambda c: int(c.blocked_on_unacked)),
    Row("pulsar_consumer_msg_rate_out", lambda c: c.msg_rate_out),
    Row("pulsar_consumer_msg_ack_rate", lambda c: c.message_ack_rate),
    Row("pulsar_consumer_msg_throughput_out", lambda c: c.msg_throughput_out),
    Row("pulsar_consumer_available_permits", lambda c: c.available_permits),
)

NAMESPACE_ROWS: Final[tuple[Row[TopicView], ...]] = (
    *TOPIC_ROWS,
    Row("pulsar_consumer_msg_ack_rate", lambda v: sum(s.message_ack_rate for s in v.stats.subscriptions.values())),
    Row("pulsar_out_bytes_total", lambda v: v.out_bytes),
    Row(
        "pulsar_out_messages_total",
        lambda v: v.stats.gone_msg_out_counter + sum(s.msg_out_counter for s in v.stats.subscriptions.values()),
    ),
    Row("pulsar_subscription_delayed", lambda v: sum(s.msg_delayed for s in v.stats.subscriptions.values())),
    Row("pulsar_subscription_in_replay", lambda v: sum(s.msg_in_replay for s in v.stats.subscriptions.values())),
)
"""Rows of a namespace, where topics have none of their own."""

PRODUCER_ROWS: "Final[tuple[Row[ProducerStats], ...]]" = (
    Row("pulsar_producer_msg_rate_in", lambda p: p.msg_rate_in),
    Row("pulsar_producer_msg_throughput_in", lambda p: p.msg_throughput_in),
    Row("pulsar_producer_msg_average_Size", lambda p: p.average_msg_size),
)


@dataclass(frozen=True, slots=True)
class BucketFamily:
    """Counts per bucket: one metric per suffix, plus _count and _sum. scale: from the sums here to those shown."""

    name: str
    suffixes: tuple[str, ...]
    counts: "Callable[[TopicView], LatencyCounts | SizeCounts | None]"
    scale: int = 1

    def sum_of(self, counts: "LatencyCounts | SizeCounts") -> int:
        """The sum of the counted values, a whole number as in Apache Pulsar."""
        return round(counts.sum * self.scale)


_US_IN_MS: Final = 1000
_LATENCY_SUFFIXES: Final = (
    *(f"_le_{ms}" for ms in ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000")),
    "_overflow",
)
_SIZE_SUFFIXES: Final = tuple(
    f"_le_{size}" for size in ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb", "overflow")
)
BUCKETS: Final = (
    BucketFamily("pulsar_storage_write_latency", _LATENCY_SUFFIXES, lambda v: v.stats.write_latency_ms, _US_IN_MS),
    BucketFamily(
        "pulsar_storage_ledger_write_latency", _LATENCY_SUFFIXES, lambda v: v.stats.write_latency_ms, _US_IN_MS
    ),
    BucketFamily("pulsar_entry_size", _SIZE_SUFFIXES, lambda v: v.stats.entry_sizes),
)

COMPACTION_LATENCY: Final = BucketFamily(
    "pulsar_compaction_latency", _LATENCY_SUFFIXES, lambda v: v.stats.compaction_write_latency_ms, _US_IN_MS
)
"""Of a topic that was compacted since its load."""


def added_up(counts: "Sequence[LatencyCounts | SizeCounts | None]") -> "LatencyCounts | SizeCounts | None":
    """The sum of counts of one family; None where no topic has counts."""
    found = [each for each in counts if each is not None]
    if not found:
        return None
    buckets = tuple(map(sum, zip(*(each.buckets for each in found), strict=True)))
    return replace(found[0], buckets=buckets, count=sum(buckets), sum=sum(each.sum for each in found))
