"""Bring buckets back into service: reads headers, bitmaps, and the segments that are partly or wholly in the past.

The broker serves the topic meanwhile: for entries of buckets that are not yet in service the delivery time in their own
metadata counts. A segment wholly in the past is read for the bits to leave out; of a bucket wholly in the past no
segment is read.
"""

from __future__ import annotations

import asyncio
import inspect
from bisect import bisect_right
from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.delayed.bucket_merge import decoded
from magnetar.delayed.errors import OldSnapshotError, SnapshotError
from magnetar.delayed.immutable_bucket import ImmutableBucket
from magnetar.delayed.snapshot_format import Directory, decode_bitmaps, decode_header
from magnetar.delayed.sorted_run import Columns, SortedRun
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.errors import CorruptEntryError

if TYPE_CHECKING:
    from array import array

    from magnetar.delayed.catalogue import BucketRecord
    from magnetar.delayed.delay_ports import Log, OffLoop, ScanCursor
    from magnetar.delayed.firing import Firing
    from magnetar.delayed.snapshot_store import SnapshotStore
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Span


__all__ = ["recover_bucket", "scan_log"]

Bits = dict[int, BitMap]
_SMALL_BYTES = 64 << 10
"""Smaller bitmaps are decoded on the event loop, which saves a turn of the loop for each of many buckets."""
_READ_ENTRIES, _READ_BYTES = 1000, 1 << 20
_DELAYED = int(EntryFlag.HAS_DELIVER_AT)


async def recover_bucket(record: BucketRecord, firing: Firing, store: SnapshotStore, off_loop: OffLoop) -> None:
    """Put the bucket into service. Raises SnapshotError when its snapshot cannot be used, StorageError."""
    ledger_id = record.ledger_id
    if record.entries <= 0:
        raise OldSnapshotError("the layout of an earlier version", ledger_id)
    try:
        last = record.entries - 1
        *bitmaps, header = await store.read(ledger_id, last - record.bitmap_entries, last)
        directory = decode_header(header)
        if (directory.entries, directory.bitmap_entries) != (record.entries, record.bitmap_entries):
            raise SnapshotError("the header is not that of the record")  # noqa: TRY301 - named below
        bucket = ImmutableBucket(record, directory)
        bits: Bits = {}
        if record.max_time > firing.due_before():
            small = sum(map(len, bitmaps)) < _SMALL_BYTES
            bits = _bits(bitmaps, directory) if small else await off_loop(lambda: _bits(bitmaps, directory))
        current = await _leave_out_past(bucket, bits, firing, store, off_loop)
    except SnapshotError as error:
        raise SnapshotError(error.detail, ledger_id) from error
    _install(bucket, bits, current, firing)


async def _leave_out_past(
    bucket: ImmutableBucket, bits: Bits, firing: Firing, store: SnapshotStore, off_loop: OffLoop
) -> SortedRun | None:
    """Go to the first segment with entries that are not due, and clear the bits of earlier segments.

    Returns that segment if some of its entries are due too, else None: such a segment is loaded on demand. The time
    that decides moves on while segments are read.
    """
    directory = bucket.directory
    if bucket.record.max_time <= firing.due_before():
        bucket.exhaust()
        return None
    while True:
        if bucket.exhausted or directory.first_times[bucket.segment] > firing.due_before():
            return None
        columns = await _segment(bucket, store, off_loop)
        if directory.last_times[bucket.segment] > firing.due_before():
            return SortedRun(columns)
        _clear(bits, columns)
        bucket.segment += 1


async def _segment(bucket: ImmutableBucket, store: SnapshotStore, off_loop: OffLoop) -> Columns:
    segment, directory = bucket.segment, bucket.directory
    (data,) = await store.read(bucket.record.ledger_id, segment, segment)
    return await off_loop(lambda: decoded(data, directory, segment, bucket.record.ledger_id))


def _install(bucket: ImmutableBucket, bits: Bits, current: SortedRun | None, firing: Firing) -> None:
    """Install the recovered state in one step: due entries stop being pending, all others stay pending."""
    if current is not None:
        past = current.take(bisect_right(current.times, firing.due_before()))
        _clear(bits, past)
        bucket.loaded(bucket.segment, current.rest())
        bucket.advance()
    for ledger_id, entries in bits.items():
        cancelled = firing.cancelled.of(ledger_id)
        firing.pending.update(ledger_id, entries if cancelled is None else entries - cancelled)
    firing.buckets.append(bucket)


def _bits(entries: list[bytes], directory: Directory) -> Bits:
    bits: Bits = {}
    for entry in entries:
        for ledger_id, bitmap in decode_bitmaps(entry, directory):
            bits.setdefault(ledger_id, BitMap()).update(bitmap)
    return bits


def _clear(bits: Bits, columns: Columns) -> None:
    groups: dict[int, list[int]] = {}
    ledgers: array[int] = columns.ledgers
    for ledger_id, entry_id in zip(ledgers, columns.entries, strict=True):
        groups.setdefault(ledger_id, []).append(entry_id)
    for ledger_id, ids in groups.items():
        if ledger_id in bits:
            bits[ledger_id].difference_update(BitMap(ids))


async def scan_log(log: Log, first: Position, last: Position, firing: Firing, *, repair: bool) -> int:
    """Index the delayed entries from ``first`` to ``last``; return the number of examined entries.

    An entry that cannot be read stops being pending, so that dispatch reads it and handles the error.
    Raises StorageError.
    """
    cursor: ScanCursor = log.new_read_cursor(first)
    seen = 0
    try:
        while True:
            await asyncio.sleep(0)
            try:
                result = cursor.read(_READ_ENTRIES, _READ_BYTES, last)
                spans = await result if inspect.isawaitable(result) else result
            except CorruptEntryError as error:
                firing.pending.discard(*error.position)
                cursor.move_to(error.position.next())
                continue
            if not spans:
                return seen
            for span in spans:
                seen += span.entries
                _scan(span, firing, repair=repair)
    finally:
        cursor.close()


def _scan(span: Span, firing: Firing, *, repair: bool) -> None:
    slab = span.slab
    facts = slab.facts()
    if facts.deliver_at is None or not facts.any_flags & _DELAYED:
        return
    times, flags = memoryview(facts.deliver_at).cast("q"), memoryview(facts.flags).cast("I")
    first = slab.first_entry_id
    entries = [(first + k, times[k]) for k in range(span.start, span.end) if flags[k] & _DELAYED]
    firing.found_all(slab.ledger_id, entries, repair=repair)
