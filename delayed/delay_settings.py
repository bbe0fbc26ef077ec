"""Settings of delayed delivery as plain values: when an entry is due, the rule all trackers share, and the knobs of the
bucket index. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_MAX_BUCKETS", "LONGEST_WAIT_S", "BucketSettings", "DelayPolicy", "is_due"]

DEFAULT_MAX_BUCKETS = 64
"""The limit for delayedDeliveryMaxNumBuckets = -1: without a limit memory and recovery time would grow for ever."""
LONGEST_WAIT_S = 60.0
"""A timer for a time of the wall clock ends after this many seconds at the latest: the clock may be set meanwhile."""
_LARGEST_SEGMENT = 65_536


@dataclass(frozen=True, slots=True)
class DelayPolicy:
    """Policies of a topic. Times in milliseconds."""

    active: bool = True
    """delayedDeliveryEnabled; off: everything is delivered at once."""
    tick_ms: int = 1000
    """delayedDeliveryTickTimeMillis: how early an entry may be delivered when delivery is not strict, and the interval
    of the search for due entries.
    """
    strict: bool = False
    """isDelayedDeliveryDeliverAtTimeStrict: never early."""
    max_delay_ms: int = 0
    """delayedDeliveryMaxDelayInMillis: a longer delay is refused at publish; 0 without limit."""


def is_due(deliver_at_ms: int, now_ms: int, policy: DelayPolicy) -> bool:
    """Whether an entry with that time is to be delivered now; one tick of earliness is allowed unless strict."""
    return not policy.active or deliver_at_ms <= now_ms + (0 if policy.strict else policy.tick_ms)


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """Settings of the bucket index: first those with a key of Apache Pulsar, then those without a key."""

    min_index_count: int = 50_000
    """delayedDeliveryMinIndexCountPerBucket: the mutable bucket is sealed when it holds this many."""
    segment_step_ms: int = 300_000
    """delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds."""
    max_segment_indexes: int = 5_000
    """delayedDeliveryMaxIndexesPerBucketSnapshotSegment; -1 means the largest possible."""
    max_buckets: int = -1
    """delayedDeliveryMaxNumBuckets; -1 means DEFAULT_MAX_BUCKETS."""
    uncovered_entries: int = 1_000_000
    """The largest number of log entries that the index reads after a crash."""
    max_bucket_indexes: int = 4_194_304
    """The most indexes of a merged bucket."""
    prefetch_ms: int = 30_000
    """A segment is loaded this long before its first message is due."""
    slice_indexes: int = 2_048
    """Indexes that fire in one turn of the loop."""
    ready_limit: int = 8_192
    """A subscription keeps the order of up to this many due entries, and only a bitmap of further due entries."""
    min_fire_interval_ms: int = 10
    recovery_patience_ms: int = 1_000
    """The longest time that dispatch waits at the start for the buckets to come into service."""
    retry_initial_ms: int = 1_000
    retry_max_ms: int = 60_000

    @property
    def bucket_limit(self) -> int:
        return self.max_buckets if self.max_buckets > 0 else DEFAULT_MAX_BUCKETS

    @property
    def segment_limit(self) -> int:
        return min(self.max_segment_indexes, _LARGEST_SEGMENT) if self.max_segment_indexes > 0 else _LARGEST_SEGMENT
