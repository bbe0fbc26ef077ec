"""Sends a run of entries to one consumer and updates permits, unacked messages, held entries and redelivery counts.

A run without special entries takes one encoder call. Partly acknowledged entries carry their ack set and use only the
permits of their remaining messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.broker.dispatchers.sift import messages_in
from magnetar.protocol import message_id
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.ports import AckCursor
    from magnetar.broker.dispatchers.redelivery_tracker import RedeliveryTracker
    from magnetar.storage.slab import Slab


class HashLookup(Protocol):
    """Key hash of each entry of a slab."""

    def __getitem__(self, index: int, /) -> int: ...


_CHUNK = int(EntryFlag.NOT_LAST_CHUNK)
_BATCHED = int(EntryFlag.BATCHED)


class Target(NamedTuple):
    """The consumer that gets entries, with the redelivery counts and key hashes to note."""

    consumer: Consumer
    tracker: RedeliveryTracker | None = None
    """None for single-active types: they count no redeliveries."""
    key_hashes: HashLookup | None = None
    """The key hashes of the whole slab, noted with the held entries."""


def partial_acks(cursor: AckCursor, span: Span) -> dict[int, list[int]]:
    """Ack sets of those entries that were acknowledged in part, by index within the slab."""
    if not cursor.has_partial_acks:
        return {}
    found = {}
    for k in range(span.start, span.end):
        ack_set = cursor.ack_set(span.slab.position(k))
        if ack_set is not None:
            found[k] = ack_set
    return found


def deliver(target: Target, cursor: AckCursor, span: Span) -> int:
    """Queue the entries of `span` for the consumer and book them; returns the bytes queued."""
    partial = partial_acks(cursor, span)
    if not partial:
        return _whole(target, span)
    slab, start, end = span
    queued = 0
    for k, ack_set in partial.items():
        if start < k:
            queued += _whole(target, Span(slab, start, k))
        queued += _part(target, slab, k, ack_set)
        start = k + 1
    return queued + (_whole(target, Span(slab, start, end)) if start < end else 0)


def deliver_picked(consumer: Consumer, slab: Slab, picks: bytes, key_hashes: bytes) -> int:
    """Queue some entries of a slab, each of one message and new, and book them; returns the bytes queued.

    picks, key_hashes: native int64 (`picking.Picked`).
    """
    assert consumer.pending_acks is not None
    indexes = memoryview(picks).cast("q")
    consumer.permits.sent(len(indexes), len(indexes))
    consumer.pending_acks.add_keyed(
        slab.ledger_id, map(slab.first_entry_id.__add__, indexes), memoryview(key_hashes).cast("q")
    )
    return consumer.push_picked(slab, picks)


def _whole(target: Target, span: Span) -> int:
    (slab, i, j), (consumer, tracker, key_hashes) = span, target
    facts = slab.facts()
    sizes = memoryview(facts.batch_sizes).cast("q")[i:j] if facts.any_flags & _BATCHED else None
    messages = j - i if sizes is None else sum(sizes)
    first = slab.first_entry_id + i
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
    if facts.any_flags & _CHUNK:
        flags = memoryview(facts.flags).cast("I")
        consumer.chunked.add(sum(1 for k in range(i, j) if flags[k] & _CHUNK), 0)
    return consumer.push(span, messages, tracker.counts(slab.ledger_id, first, j - i) if tracker else None)


def _part(target: Target, slab: Slab, k: int, ack_set: list[int]) -> int:
    consumer, tracker, key_hashes = target
    entry_id, left = slab.first_entry_id + k, message_id.remaining(ack_set)
    pending = consumer.pending_acks
    consumer.permits.sent(left, 0 if pending is None else left)
    if pending is not None:
        pending.add(slab.ledger_id, entry_id, left, 0 if key_hashes is None else key_hashes[k])
    count = tracker.get(slab.ledger_id, entry_id) if tracker else 0
    return consumer.push_partial(slab, k, messages_in(slab, k, k + 1), ack_set, count)
