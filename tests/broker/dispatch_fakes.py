"""Fakes for dispatch tests: a hand-driven scheduler, a connection that decodes its frames, a naive cursor over a
log.
"""

from __future__ import annotations

import asyncio
import heapq
import struct
from array import array
from dataclasses import dataclass, field
from itertools import count

from magnetar.broker.consumers.consumer import Consumer, ConsumerSpec, KeySharedPolicy
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import speed
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.slab import Slab, Span
from tests.twins.fake_connection import FakeConnection

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = (
    pb.CommandSubscribe.Exclusive,
    pb.CommandSubscribe.Shared,
    pb.CommandSubscribe.Failover,
    pb.CommandSubscribe.Key_Shared,
)
TOPIC = TopicName.parse("persistent://public/default/t")


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Scheduler:
    """call_later by hand; time moves only in `advance`."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._order = count()
        self._queue: list = []

    def call_later(self, delay, callback):
        timer = Timer()
        heapq.heappush(self._queue, (self.now + delay, next(self._order), callback, timer))
        return timer

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def run(self) -> None:
        """Run all calls that are due now, and the calls that they make due."""
        for _ in range(100_000):
            if not self._queue or self._queue[0][0] > self.now:
                return
            _, _, callback, timer = heapq.heappop(self._queue)
            if not timer.cancelled:
                callback()
        raise AssertionError("the dispatcher spins")

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now = max(self.now, self._queue[0][0])
            self.run()
        self.now = end


def entry(payload: bytes = b"x", *, key: str | None = None, batch: int = 0, **metadata) -> bytes:
    """Headers and payload of one entry; the payload of a batch has at least the length that its number of messages
    needs.
    """
    payload = payload.rjust(6 * batch, b".")
    m = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if key is not None:
        m.partition_key = key
    if batch:
        m.num_messages_in_batch = batch
    for name, value in metadata.items():
        setattr(m, name, value)
    raw = m.SerializeToString()
    return struct.pack(">I", len(raw)) + raw + payload


def slab_of(ledger_id: int, first: int, bodies: list[bytes]) -> Slab:
    offsets = array("q", [0])
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    ones = array("q", [1] * len(bodies)).tobytes()
    data, records = speed.stamp(b"".join(bodies), offsets.tobytes(), ones, 0, len(bodies), ledger_id, first, -1, -1, -2)
    return Slab(ledger_id, first, data, records)


@dataclass
class Log:
    """Entries of one ledger, appended in bursts."""

    ledger_id: int = 7
    slabs: list[Slab] = field(default_factory=list)
    entries: int = 0

    def append(self, *bodies: bytes) -> list[Position]:
        slab = slab_of(self.ledger_id, self.entries, list(bodies))
        self.slabs.append(slab)
        first = self.entries
        self.entries += len(bodies)
        return [Position(self.ledger_id, first + k) for k in range(len(bodies))]

    def span(self, entry_id: int) -> Span:
        for slab in self.slabs:
            if slab.first_entry_id <= entry_id <= slab.last_entry_id:
                k = entry_id - slab.first_entry_id
                return Span(slab, k, k + 1)
        raise AssertionError(entry_id)


class Cursor:
    """The managed cursor, naively: a set of deleted entries."""

    durable = True

    def __init__(self, log: Log, *, cold: bool = False, error=None) -> None:
        self.log = log
        self.cold = cold
        self.errors: list = []
        self.deleted: set[int] = set()
        self.sets: dict[Position, int] = {}
        self.at = 0
        self.cursor_properties: dict = {}
        self.position_properties: dict = {}
        self.flushes = 0
        self.reads = 0
        self.start = 0

    @property
    def mark_delete(self) -> Position:
        e = self.start - 1
        while e + 1 in self.deleted:
            e += 1
        return Position(self.log.ledger_id, e)

    @property
    def read_position(self) -> Position:
        return Position(self.log.ledger_id, self.at)

    @property
    def last_confirmed(self) -> Position:
        return Position(self.log.ledger_id, self.log.entries - 1)

    @property
    def has_more(self) -> bool:
        return self.at < self.log.entries

    @property
    def has_partial_acks(self) -> bool:
        return bool(self.sets)

    @property
    def backlog_entries(self) -> int:
        return sum(1 for e in range(self.start, self.log.entries) if e not in self.deleted)

    def read(self, max_entries, max_bytes, upto=None, skip=None):
        self.reads += 1
        if self.errors:
            raise self.errors.pop(0)

        def take():
            found, pending = [], None if skip is None else skip(self.log.ledger_id)
            while self.at < self.log.entries and len(found) < max_entries:
                e = self.at
                self.at += 1
                if e not in self.deleted and (pending is None or e not in pending):
                    found.append(e)
            return self._spans(found)

        if self.cold and self.has_more:
            return self._later(take)
        return take()

    async def _later(self, take):
        await asyncio.sleep(0)
        found = take()
        await asyncio.sleep(0)
        return found

    def read_positions(self, positions):
        self.reads += 1

        def take():
            return self._spans([p.entry_id for p in positions if not self.is_deleted(p)])

        return self._later(take) if self.cold else take()

    def _spans(self, entries) -> list[Span]:
        spans: list[Span] = []
        for e in entries:
            span = self.log.span(e)
            if spans and spans[-1].slab is span.slab and spans[-1].end == span.start:
                spans[-1] = Span(span.slab, spans[-1].start, span.end)
            else:
                spans.append(span)
        return spans

    def ack_many(self, positions) -> None:
        for p in positions:
            self.ack(p, None)

    def ack_entries(self, ledger_id, entry_ids) -> None:
        self.ack_many([Position(ledger_id, entry_id) for entry_id in entry_ids])

    def ack(self, position, ack_set) -> None:
        if position.ledger_id != self.log.ledger_id or not 0 <= position.entry_id < self.log.entries:
            return
        if self.is_deleted(position):
            return
        if ack_set is not None:
            bits = sum((w & (2**64 - 1)) << 64 * i for i, w in enumerate(ack_set))
            bits &= self.sets.get(position, bits)
            if bits:
                self.sets[position] = bits
                return
        self.sets.pop(position, None)
        self.deleted.add(position.entry_id)

    def ack_cumulative(self, position, ack_set=None) -> None:
        for e in range(self.start, min(position.entry_id + (ack_set is None), self.log.entries)):
            self.deleted.add(e)
            self.sets.pop(Position(self.log.ledger_id, e), None)
        if ack_set is not None:
            self.ack(position, ack_set)

    def is_deleted(self, position) -> bool:
        return position.entry_id in self.deleted or position.entry_id < self.start

    def positions_in(self, ledger_id):
        return [Position(ledger_id, e) for e in range(self.log.entries)] if ledger_id == self.log.ledger_id else []

    def ack_set(self, position):
        bits = self.sets.get(position)
        return None if bits is None else [bits]

    async def flush(self) -> None:
        await asyncio.sleep(0)
        self.flushes += 1

    def rewind(self) -> None:
        self.at = self.mark_delete.entry_id + 1

    async def reset(self, position, ack_set=None) -> None:
        await asyncio.sleep(0)
        self.start = self.at = max(0, min(position.entry_id, self.log.entries)) if position != EARLIEST else 0
        self.deleted.clear()
        self.sets.clear()
        if ack_set:
            self.ack(position, ack_set)

    def close(self) -> None: ...


class Bench:
    """A log, a subscription on it, and consumers joining."""

    def __init__(self, *, cold: bool = False, topic: TopicName = TOPIC, delay=None, cursor=None, **settings) -> None:
        self.clock = Scheduler()
        self.log = Log()
        self.cursor = cursor or Cursor(self.log, cold=cold)
        self.empty: list = []
        self.subscription = Subscription(
            topic_name=topic,
            name="sub",
            cursor=self.cursor,
            settings=SubscriptionSettings(**settings),
            now_ms=self.clock.now_ms,
            call_later=self.clock.call_later,
            delay=delay,
            on_empty=self.empty.append,
        )
        self.topic = topic
        self._ids = count(1)

    def new(self, sub_type=SHARED, name="", *, outbox=None, priority=0, key_shared=None, epoch=-1) -> Consumer:
        consumer_id = next(self._ids)
        spec = ConsumerSpec(
            consumer_id,
            self.topic,
            "sub",
            sub_type,
            name or f"c{consumer_id}",
            priority,
            key_shared=key_shared,
            consumer_epoch=epoch,
        )
        return Consumer(outbox or FakeConnection(), spec)

    async def join(self, sub_type=SHARED, name="", permits=0, **how) -> Consumer:
        consumer = self.new(sub_type, name, **how)
        await self.subscription.add_consumer(consumer)
        consumer.outbox.consumers[consumer.consumer_id] = consumer
        if permits:
            self.flow(consumer, permits)
        return consumer

    def publish(self, *bodies: bytes) -> list[Position]:
        positions = self.log.append(*bodies)
        self.subscription.entries_available()
        self.clock.run()
        return positions

    def flow(self, consumer, permits: int) -> None:
        self.subscription.on_flow(consumer, permits)
        self.clock.run()

    def ack(self, consumer, *positions, cumulative=False, ack_set=(), request_id=None):
        command = pb.CommandAck(
            consumer_id=consumer.consumer_id,
            ack_type=pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual,
        )
        for p in positions:
            command.message_id.add(ledgerId=p[0], entryId=p[1], ack_set=ack_set)
        if request_id is not None:
            command.request_id = request_id
        durable = self.subscription.on_ack(consumer, command)
        self.clock.run()
        return durable

    def redeliver(self, consumer, *positions, epoch=None) -> None:
        ids = [pb.MessageIdData(ledgerId=p[0], entryId=p[1]) for p in positions]
        self.subscription.on_redeliver(consumer, ids or None, epoch)
        self.clock.run()

    def leave(self, consumer) -> None:
        self.subscription.remove_consumer(consumer)
        self.clock.run()

    async def settle(self) -> None:
        """Let cold reads finish."""
        for _ in range(50):
            await asyncio.sleep(0)
            self.clock.run()


def got(consumer) -> list[int]:
    """Entry ids received since the last call."""
    return [m.position.entry_id for m in consumer.outbox.take()]


__all__ = ["KeySharedPolicy"]
