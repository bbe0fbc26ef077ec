"""Chooses the buckets to merge, and merges them segment by segment, so that memory holds one segment of each source.

A merge has one of two reasons: there are more buckets than the limit, or more than half of a bucket's indexes have
fired (most of its snapshot is then useless, and the bucket holds a segment in memory).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.delayed.due_merge import take_due
from magnetar.delayed.errors import NothingLeftError, SnapshotError
from magnetar.delayed.snapshot_format import SnapshotEncoder, decode_segment
from magnetar.delayed.sorted_run import AFTER_ALL, SortedRun
from magnetar.delayed.sorting import WINDOW_INDEXES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.delayed.delay_ports import OffLoop
    from magnetar.delayed.delay_settings import BucketSettings
    from magnetar.delayed.immutable_bucket import ImmutableBucket
    from magnetar.delayed.snapshot_format import Directory
    from magnetar.delayed.snapshot_store import SnapshotStore, SnapshotWriter
    from magnetar.delayed.sorted_run import Columns, Key

__all__ = ["Bounds", "mergeable", "write_merged"]

Bounds = tuple[tuple[int, int], tuple[int, int]]
"""Smallest and largest position."""

_FAN_IN = 8
_ALONE_BYTES = 1 << 20
"""A snapshot of this size is worth rewriting without others."""


def mergeable(buckets: Sequence[ImmutableBucket], settings: BucketSettings, due_ms: int) -> list[ImmutableBucket]:
    """The buckets to merge, smallest first; [] when there is no reason to merge. ``due_ms``: the time now."""
    usable = [b for b in buckets if not (b.merging or b.gone or b.exhausted)]
    excess = len(buckets) - settings.bucket_limit
    if excess > 0:
        fan_in = min(_FAN_IN, excess + 1) if settings.bucket_limit < _FAN_IN else _FAN_IN
        chosen = _smallest(usable, fan_in, settings)
        if len(chosen) > 1:
            return chosen
    chosen = _smallest([b for b in usable if _is_mostly_past(b, settings, due_ms)], _FAN_IN, settings)
    return chosen if len(chosen) > 1 or (chosen and chosen[0].record.size_bytes >= _ALONE_BYTES) else []


def _smallest(buckets: Sequence[ImmutableBucket], fan_in: int, settings: BucketSettings) -> list[ImmutableBucket]:
    """Choose the smallest buckets: at most `fan_in`, and as many as fit into one bucket, but at least one."""
    chosen: list[ImmutableBucket] = []
    total = 0
    for bucket in sorted(buckets, key=lambda b: b.remaining):
        total += bucket.remaining
        if len(chosen) == fan_in or (chosen and total > settings.max_bucket_indexes):
            break
        chosen.append(bucket)
    return chosen


def _is_mostly_past(bucket: ImmutableBucket, settings: BucketSettings, due_ms: int) -> bool:
    """Whether more than half of the bucket has fired, it was not small at first, and it will not be used up soon."""
    record = bucket.record
    return (
        bucket.remaining * 2 < record.count
        and record.count * 2 >= settings.min_index_count
        and record.max_time > due_ms + settings.prefetch_ms
    )


class _Reader:
    """A `Source` of a bucket's segments from its current segment on; the bucket itself stays unchanged."""

    def __init__(self, bucket: ImmutableBucket) -> None:
        self.directory, self.ledger_id = bucket.directory, bucket.record.ledger_id
        self.segment = bucket.segment
        self._run: SortedRun | None = None

    @property
    def current(self) -> SortedRun | None:
        return self._run if self._run is not None and len(self._run) else None

    def bound(self) -> Key | None:
        return None if self._run is None or self.segment >= self.directory.segments else self._run.last_key

    @property
    def is_at_end(self) -> bool:
        return self.current is None and self.segment >= self.directory.segments

    async def fill(self, store: SnapshotStore) -> None:
        if self.current is None and self.segment < self.directory.segments:
            (data,) = await store.read(self.ledger_id, self.segment, self.segment)
            self._run = SortedRun(decoded(data, self.directory, self.segment, self.ledger_id))
            self.segment += 1


async def write_merged(
    writer: SnapshotWriter,
    sources: Sequence[ImmutableBucket],
    store: SnapshotStore,
    settings: BucketSettings,
    off_loop: OffLoop,
) -> tuple[Directory, Bounds]:
    """Write all indexes of the sources, from their current segments on, as one snapshot.

    Raises NothingLeftError when no source has an index left; SnapshotError, which names the source's ledger;
    StorageError.
    """
    encoder = SnapshotEncoder(settings.segment_limit, settings.segment_step_ms)
    readers = [_Reader(source) for source in sources]

    def window() -> None:
        encoder.add(take_due(readers, AFTER_ALL, WINDOW_INDEXES))

    while readers:
        for reader in readers:
            await reader.fill(store)
        readers = [reader for reader in readers if not reader.is_at_end]
        if readers:
            await off_loop(window)
            await writer.append(encoder.take())
    entries, directory = await off_loop(encoder.finish)
    if not directory.counts:
        raise NothingLeftError
    await writer.append(entries)
    return directory, encoder.bounds()


def decoded(data: bytes, directory: Directory, segment: int, ledger_id: int) -> Columns:
    """A segment. Raises SnapshotError with the ledger's id."""
    try:
        return decode_segment(data, directory, segment)
    except SnapshotError as error:
        raise SnapshotError(error.detail, ledger_id) from error
