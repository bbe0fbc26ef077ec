"""Shared: messages are divided among all consumers (reference F.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker import ack_sets
from magnetar.broker.consumer import SHARED
from magnetar.broker.dispatchers.base import Read
from magnetar.broker.dispatchers.deliver import partial_acks
from magnetar.broker.dispatchers.multiple import MultipleConsumersDispatcher
from magnetar.broker.dispatchers.sift import batch_sizes
from magnetar.broker.round_robin_plan import plan_round_robin
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Walk:
    """Takes so many entries at a time from the spans of a read."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self._k = 0

    def take(self, entries: int) -> Iterator[Span]:
        while entries > 0:
            head, rest = self._spans[self._k].cut(entries)
            if rest.start < rest.end:
                self._spans[self._k] = rest
            else:
                self._k += 1
            entries -= head.end - head.start
            yield head


class SharedDispatcher(MultipleConsumersDispatcher):
    """Round robin by priority over consumers that can take messages."""

    sub_type = SHARED

    def _next_read(self) -> Read | None:
        permits = self._usable_permits()
        if permits <= 0 or self.unacked.blocked:
            return None
        limit = min(permits, self.context.settings.max_read_entries)
        self._take_due(limit)
        if self.replay:
            return Read(limit, self.replay.head(limit))
        return Read(limit) if self._may_read() else None

    def _dispatch(self, spans: list[Span], read: Read) -> int:
        spans = self._received(spans, read)
        entries = sum(span.end - span.start for span in spans)
        if not entries:
            return 0
        shares, given = plan_round_robin(
            self.members, entries, self._sizes(spans), self.context.settings.max_round_robin_entries
        )
        queued = 0
        walk = _Walk(spans)
        for consumer, start, end in shares:
            for span in walk.take(end - start):
                queued += self._send(consumer, span, read)
        if read.positions is None:
            for span in walk.take(entries - given):
                self._wait_in_replay(span)
        return queued

    def _sizes(self, spans: list[Span]) -> list[int] | None:
        """Messages each entry still holds, None when it is one for all."""
        sizes: list[int] = []
        plain = True
        for slab, i, j in spans:
            every = batch_sizes(slab, i, j)
            partial = partial_acks(self.context.cursor, Span(slab, i, j))
            if every is None and not partial:
                sizes += [1] * (j - i)
                continue
            plain = False
            whole = [1] * (j - i) if every is None else every
            sizes += [ack_sets.remaining(partial[k]) if k in partial else whole[k - i] for k in range(i, j)]
        return None if plain else sizes
