"""Selects the entries of a read for sending: markers and unreadable entries are acknowledged and skipped, delayed
entries are held back. Other spans pass untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import Container

    from magnetar.broker.dispatchers.ports import DelayView
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Slab

_SKIPPED = int(EntryFlag.MARKER | EntryFlag.UNREADABLE)
_DELAYED = int(EntryFlag.HAS_DELIVER_AT)
_WATCHED = _SKIPPED | _DELAYED
_BATCHED = int(EntryFlag.BATCHED)


@dataclass(slots=True)
class Sifted:
    """Outcome: entries to send, entries to acknowledge unsent, entries that the delay view keeps."""

    spans: list[Span] = field(default_factory=list)
    skipped: list[Position] = field(default_factory=list)
    held: list[Position] = field(default_factory=list)


def sift(spans: list[Span], delay: DelayView | None) -> Sifted:
    """Sort the entries of `spans`; without a delay view delayed entries are sent like others."""
    watched = _SKIPPED | (_DELAYED if delay is not None else 0)
    last: Slab | None = None
    for span in spans:
        if span.slab is not last:
            last = span.slab
            if last.facts().any_flags & watched:
                break
    else:
        return Sifted(spans)
    result = Sifted()
    for span in spans:
        seen = span.slab.facts().any_flags & watched
        if not seen or (seen == _DELAYED and delay is not None and _is_past(span, delay)):
            result.spans.append(span)
        else:
            _sift_span(span, delay, result)
    return result


def _is_past(span: Span, delay: DelayView) -> bool:
    """Whether the view holds back no entry of the span; one call is enough for most redelivered entries."""
    slab, start, end = span
    deliver_at = slab.facts().deliver_at
    if deliver_at is None:
        return False
    first = slab.first_entry_id
    return delay.holds_none(
        max(memoryview(deliver_at).cast("q")[start:end]), slab.ledger_id, first + start, first + end - 1
    )


def _sift_span(span: Span, delay: DelayView | None, result: Sifted) -> None:
    slab, start = span.slab, span.start
    facts = slab.facts()
    flags = memoryview(facts.flags).cast("I")
    held: Container[int] = ()
    if facts.deliver_at is not None and delay is not None:
        deliver_at, first = memoryview(facts.deliver_at).cast("q"), slab.first_entry_id
        delayed = [i for i in range(start, span.end) if flags[i] & _WATCHED == _DELAYED]
        held = delay.offer(slab.ledger_id, [(first + i, deliver_at[i]) for i in delayed]) if delayed else ()
    for i in range(span.start, span.end):
        watched = flags[i] & _WATCHED
        if watched & _SKIPPED:
            result.skipped.append(slab.position(i))
        elif watched and slab.first_entry_id + i in held:
            result.held.append(slab.position(i))
        else:
            continue
        if start < i:
            result.spans.append(Span(slab, start, i))
        start = i + 1
    if start < span.end:
        result.spans.append(Span(slab, start, span.end))


def batch_sizes(slab: Slab, i: int, j: int) -> memoryview | None:
    """Messages of each of the entries i..j-1 (num_messages_in_batch); None when each entry is a single message."""
    facts = slab.facts()
    return memoryview(facts.batch_sizes).cast("q")[i:j] if facts.any_flags & _BATCHED else None


def messages_in(slab: Slab, i: int, j: int) -> int:
    """How many messages entries i..j-1 hold."""
    sizes = batch_sizes(slab, i, j)
    return j - i if sizes is None else sum(sizes)
