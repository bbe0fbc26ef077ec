"""Which entries of a read are sent at all: markers, unreadable and rejected entries are acknowledged
and skipped, delayed ones are held back. A span that has nothing special goes through untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.broker.dispatchers.ports import FilterResult
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.broker.dispatchers.ports import DelayView, EntryFilter
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Slab

_SKIPPED = int(EntryFlag.MARKER | EntryFlag.UNREADABLE)
_DELAYED = int(EntryFlag.HAS_DELIVER_AT)
_BATCHED = int(EntryFlag.BATCHED)


@dataclass(slots=True)
class Sifted:
    """Outcome: what to send, what to acknowledge unsent, what the delay view or the rescheduling keeps."""

    spans: list[Span] = field(default_factory=list)
    skipped: list[Position] = field(default_factory=list)
    held: list[Position] = field(default_factory=list)
    rescheduled: list[Position] = field(default_factory=list)


@dataclass(slots=True)
class Judge:
    """Asks the entry filter and counts its verdicts. Where order counts, what should be sent later is sent now."""

    entry_filter: EntryFilter
    verdicts: dict[FilterResult, int]
    may_reschedule: bool

    def target(self, slab: Slab, i: int, result: Sifted) -> list[Position] | None:
        """Where the filter sends the entry, None when it accepts it."""
        verdict = self.entry_filter(slab, i)
        self.verdicts[verdict] += 1
        if verdict is FilterResult.REJECT:
            return result.skipped
        return result.rescheduled if verdict is FilterResult.RESCHEDULE and self.may_reschedule else None


def sift(spans: Iterable[Span], delay: DelayView | None, judge: Judge | None) -> Sifted:
    """Sort the entries of `spans`; without a delay view delayed entries are sent like others."""
    result = Sifted()
    watched = _SKIPPED | (_DELAYED if delay is not None else 0)
    for span in spans:
        seen = 0 if judge is not None else span.slab.facts().any_flags & watched
        if judge is None and (not seen or (seen == _DELAYED and delay is not None and _is_past(span, delay))):
            result.spans.append(span)
        else:
            _sift_span(span, delay, judge, result)
    return result


def _is_past(span: Span, delay: DelayView) -> bool:
    """Whether nothing of the span is held back, asked at once: most of what is read again was due before."""
    slab, start, end = span
    deliver_at = slab.facts().deliver_at
    if deliver_at is None:
        return False
    first = slab.first_entry_id
    return delay.holds_none(
        max(memoryview(deliver_at).cast("q")[start:end]), slab.ledger_id, first + start, first + end - 1
    )


def _sift_span(span: Span, delay: DelayView | None, judge: Judge | None, result: Sifted) -> None:
    slab, start = span.slab, span.start
    facts = slab.facts()
    flags = memoryview(facts.flags).cast("I")
    deliver_at = None if facts.deliver_at is None or delay is None else memoryview(facts.deliver_at).cast("q")
    for i in range(span.start, span.end):
        position = slab.position(i)
        target = None if judge is None else judge.target(slab, i, result)
        if target is None:
            if flags[i] & _SKIPPED:
                target = result.skipped
            elif (
                deliver_at is not None
                and delay is not None
                and flags[i] & _DELAYED
                and delay.offer(deliver_at[i], position)
            ):
                target = result.held
            else:
                continue
        target.append(position)
        if start < i:
            result.spans.append(Span(slab, start, i))
        start = i + 1
    if start < span.end:
        result.spans.append(Span(slab, start, span.end))


def batch_sizes(slab: Slab, i: int, j: int) -> memoryview | None:
    """Messages of each of the entries i..j-1 (num_messages_in_batch), None when no entry is a batch: one each."""
    facts = slab.facts()
    return memoryview(facts.batch_sizes).cast("q")[i:j] if facts.any_flags & _BATCHED else None


def messages_in(slab: Slab, i: int, j: int) -> int:
    """How many messages entries i..j-1 hold."""
    sizes = batch_sizes(slab, i, j)
    return j - i if sizes is None else sum(sizes)
