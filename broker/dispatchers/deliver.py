"""Sending a run of entries to one consumer and keeping the books: permits, unacked messages, held entries, redelivery counts.

A run that needs nothing special is one encoder call. Entries of which a part was acknowledged before carry their ack set and
cost only the permits of what is left (reference F.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.broker import ack_sets
from magnetar.broker.dispatchers.sift import batch_sizes, messages_in
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    from magnetar.broker.consumer import Consumer
    from magnetar.broker.dispatchers.ports import AckCursor
    from magnetar.broker.redelivery_tracker import RedeliveryTracker
    from magnetar.storage.slab import Slab


class HashLookup(Protocol):
    """Key hash of each entry of a slab."""

    def __getitem__(self, index: int, /) -> int: ...


_BATCHED = int(EntryFlag.BATCHED)
_CHUNK = int(EntryFlag.NOT_LAST_CHUNK)


def partial_acks(cursor: AckCursor, slab: Slab, i: int, j: int) -> dict[int, list[int]]:
    """Ack sets of those entries i..j-1 that were acknowledged in part, by index."""
    if not cursor.has_partial_acks or not slab.facts().any_flags & _BATCHED:
        return {}
    found = {}
    for k in range(i, j):
        ack_set = cursor.ack_set(slab.position(k))
        if ack_set is not None:
            found[k] = ack_set
    return found


def deliver(
    consumer: Consumer,
    cursor: AckCursor,
    tracker: RedeliveryTracker | None,
    slab: Slab,
    i: int,
    j: int,
    key_hashes: HashLookup | None = None,
) -> int:
    """Queue entries i..j-1 for `consumer` and book them; returns the bytes queued.

    `tracker` is None for single-active types: no redelivery counts. `key_hashes` (of the whole slab) are noted with the
    held entries.
    """
    partial = partial_acks(cursor, slab, i, j)
    if not partial:
        return _whole(consumer, tracker, slab, i, j, key_hashes)
    queued, start = 0, i
    for k, ack_set in partial.items():
        if start < k:
            queued += _whole(consumer, tracker, slab, start, k, key_hashes)
        queued += _part(consumer, tracker, slab, k, ack_set, key_hashes)
        start = k + 1
    if start < j:
        queued += _whole(consumer, tracker, slab, start, j, key_hashes)
    return queued


def _whole(
    consumer: Consumer, tracker: RedeliveryTracker | None, slab: Slab, i: int, j: int, key_hashes: HashLookup | None
) -> int:
    sizes = batch_sizes(slab, i, j)
    messages = j - i if sizes is None else sum(sizes)
    first = slab.first_entry_id + i
    counts = tracker.counts(slab.ledger_id, first, j - i) if tracker else None
    pending = consumer.pending_acks
    if pending is None:
        consumer.permits.sent(messages, 0)
    else:
        consumer.permits.sent(messages, messages)
        if sizes is None and key_hashes is None:
            pending.add_run(slab.ledger_id, first, j - i)
        else:
            for k in range(j - i):
                key_hash = 0 if key_hashes is None else key_hashes[i + k]
                pending.add(slab.ledger_id, first + k, 1 if sizes is None else sizes[k], key_hash)
    if slab.facts().any_flags & _CHUNK:
        flags = memoryview(slab.facts().flags).cast("I")
        consumer.chunked.add(sum(1 for k in range(i, j) if flags[k] & _CHUNK), 0)
    return consumer.push(slab, i, j, messages, counts)


def _part(
    consumer: Consumer,
    tracker: RedeliveryTracker | None,
    slab: Slab,
    k: int,
    ack_set: list[int],
    key_hashes: HashLookup | None,
) -> int:
    messages, left = messages_in(slab, k, k + 1), ack_sets.remaining(ack_set)
    entry_id = slab.first_entry_id + k
    consumer.permits.sent(left, left if consumer.pending_acks is not None else 0)
    if consumer.pending_acks is not None:
        consumer.pending_acks.add(slab.ledger_id, entry_id, left, 0 if key_hashes is None else key_hashes[k])
    count = tracker.get(slab.ledger_id, entry_id) if tracker else 0
    return consumer.push_partial(slab, k, messages, ack_set, count)
