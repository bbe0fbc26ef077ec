"""Shared: messages are divided among all consumers."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import SHARED
from magnetar.broker.dispatchers.chunks import ChunkOwners, WaitingChunks, by_ledger, chunk_in
from magnetar.broker.dispatchers.deliver import partial_acks
from magnetar.broker.dispatchers.held_entries import HeldEntries
from magnetar.broker.dispatchers.ports import Order
from magnetar.broker.dispatchers.read_loop import Read, ReadLoop
from magnetar.broker.dispatchers.round_robin_plan import plan_round_robin
from magnetar.broker.dispatchers.sift import batch_sizes
from magnetar.protocol import message_id
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.chunks import Uuid
    from magnetar.broker.dispatchers.ports import DispatchContext, Transformed
    from magnetar.storage.position import Position

_MAX_WAITING = 1000
"""While chunks wait for the permits of their consumer, the dispatcher reads new entries for other consumers as long as
at most this many entries wait in the replay queue.
"""
_CHUNK_COST_BYTES, _MESSAGE_COST_BYTES = 1024, 64
"""Cost of a chunk that has to wait, and of a message with such chunks that a read looks at."""


class _Walk:
    """Takes a given number of entries at a time from the spans of a read."""

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


class SharedDispatcher:
    """Round robin by priority over consumers that can take messages."""

    sub_type = SHARED

    def __init__(self, context: DispatchContext) -> None:
        self.context = context
        self.loop = ReadLoop(context, self, Order.NONE, delays=True)
        self.held = HeldEntries(context, self.loop, self.flow)
        self._chunks = ChunkOwners()
        self._waiting_chunks = WaitingChunks()

    # --- members -------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.held.members.consumers

    def occupant(self, _consumer: Consumer) -> None:
        """None: the dispatcher serves any number of consumers."""

    def add_consumer(self, consumer: Consumer) -> None:
        self.held.add_consumer(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        self._chunks.forget(consumer)
        if consumer in self.consumers:
            self.held.remove_consumer(consumer)
            if not self.consumers:
                self._forget_chunks()

    def remove_all(self) -> None:
        if self.consumers:
            self._forget_chunks()
            self.held.remove_all()

    def remove_for_seek(self) -> list[Consumer]:
        consumers = list(self.consumers)
        self.remove_all()
        return consumers

    def can_unsubscribe(self, consumer: Consumer) -> bool:
        return len(self.consumers) == 1 and self.consumers[0] is consumer

    # --- changes ---------------------------------------------------------------------------------------------------

    def flow(self, _consumer: Consumer) -> None:
        self.loop.wake()

    def redeliver_all(self, consumer: Consumer, _epoch: int | None) -> None:
        self.held.redeliver_all(consumer)

    def redeliver(self, consumer: Consumer, entries: Mapping[int, Sequence[int]]) -> None:
        self.held.redeliver(consumer, entries)

    def dropped_up_to(self, position: Position) -> None:
        self.held.dropped_up_to(position)

    def forget_read(self) -> None:
        self.loop.forget_read()

    def _forget_chunks(self) -> None:
        self._chunks.clear()
        self._waiting_chunks.clear()

    def reset(self) -> None:
        self._forget_chunks()
        self.held.reset()

    def set_settings(self) -> None:
        self.loop.set_settings()
        self.held.set_settings()

    def close(self) -> None:
        self.loop.close()

    def cut_cycles(self) -> None:
        self.loop.cut_cycles()
        self.held.cut_cycles()

    # --- for the read loop -----------------------------------------------------------------------------------------

    def receivers(self) -> Sequence[Consumer]:
        return self.consumers

    def park(self, result: Transformed, _read: Read) -> None:
        for parked in result.parked:
            self.loop.again_later(parked)

    def again(self, position: Position) -> None:
        self.held.replay.add(position.ledger_id, position.entry_id)

    def not_again(self, _position: Position) -> None:
        """Do nothing: no entry waits behind a parked entry."""

    def next_read(self) -> Read | None:
        permits = self.held.usable_permits()
        if permits <= 0:
            return self.loop.waiting_read() if self.loop.waits_for_entries and self.held.may_read() else None
        limit = min(permits, self.context.settings.max_read_entries)
        if (throttle := self.context.throttle) is not None:
            limit = min(limit, max(throttle.room(), 1))  # a used-up rate stops the turn before
        self.held.take_due(limit)
        if self.held.replay.entries:
            positions = self._replayable(limit)
            if positions:
                return Read(limit, positions)
            if self.held.replay.entries > _MAX_WAITING:
                return None
        return Read(limit) if self.held.may_read() else None

    def _replayable(self, limit: int) -> list[Position]:
        """The first positions of the replay queue, without chunks whose consumer cannot take messages now."""
        replay, waiting = self.held.replay, self._waiting_chunks
        if not waiting:
            return replay.head(limit)
        waiting.forget_gone(replay)
        self.loop.note_cost(_MESSAGE_COST_BYTES * len(waiting))
        return replay.head(limit, waiting.blocked(self._chunks))

    def dispatch(self, spans: list[Span], read: Read) -> int:
        spans = self.held.received(spans, read)
        entries = sum(span.end - span.start for span in spans)
        if not entries:
            return 0
        if self._chunks.concern(spans):
            return self._dispatch_chunks(spans, read)
        shares, given = plan_round_robin(
            self.held.members, entries, self._sizes(spans), self.context.settings.max_round_robin_entries
        )
        queued = 0
        walk = _Walk(spans)
        for consumer, start, end in shares:
            for span in walk.take(end - start):
                queued += self.held.send(consumer, span, read)
            consumer.learn_average()
        if read.positions is None:
            for span in walk.take(entries - given):
                self.held.wait_in_replay(span)
        return queued

    def _dispatch_chunks(self, spans: list[Span], read: Read) -> int:
        """Send the chunks of one message to one consumer; chunks that the consumer cannot take now wait."""
        chunks = [chunk_in(span.slab.body(k)) for span in spans for k in range(span.start, span.end)]
        given = self._chunks.plan(self.held.members, chunks, self._sizes(spans), self._waiting_before(read))
        positions = (span.slab.position(k) for span in spans for k in range(span.start, span.end))
        for position, chunk, consumer in zip(positions, chunks, given, strict=True):
            if chunk is None:
                continue
            if consumer is None:
                self._waiting_chunks.add(chunk.uuid, position)
                self.loop.note_cost(_CHUNK_COST_BYTES)
            else:
                self._waiting_chunks.discard(chunk.uuid, position)
        queued, at = 0, 0
        for span in spans:
            parts = groupby(given[at : at + span.end - span.start])
            at += span.end - span.start
            start = span.start
            for consumer, part in parts:
                end = start + sum(1 for _ in part)
                piece, start = Span(span.slab, start, end), end
                if consumer is not None:
                    queued += self.held.send(consumer, piece, read)
                elif read.positions is None:
                    self.held.wait_in_replay(piece)
        return queued

    def _waiting_before(self, read: Read) -> Collection[Uuid]:
        """The uuids of chunks that wait before the end of the read, and are no part of it."""
        if read.positions is None:
            return set(self._waiting_chunks.all())
        return self._waiting_chunks.before(read.positions[-1], self.held.replay, by_ledger(read.positions))

    def _sizes(self, spans: list[Span]) -> list[int] | None:
        """Messages that each entry still holds; None when every entry holds one message."""
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
            sizes += [message_id.remaining(partial[k]) if k in partial else whole[k - i] for k in range(i, j)]
        return None if plain else sizes
