"""A Shared subscription over a real managed ledger against a naive model: nothing lost, counts and limits kept.

Rules: publish (single and batched), join, leave, flow, ack (whole and part), give back, stuck and working connections.
Checked after every step: held messages of each consumer, unacked counts, redelivery counts, permits, the backlog.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.subscriptions.subscription_stats import subscription_stats
from magnetar.storage.managed.config import ManagedLedgerConfig
from magnetar.storage.managed.factory import ManagedLedgerFactory
from tests.broker.dispatch_fakes import Bench, entry
from tests.broker.subscriptions.test_non_persistent_subscription import run_of
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

LIMIT = 12  # unacked messages of one consumer

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.sampled_from([1, 1, 1, 3]), min_size=1, max_size=8)),
        st.tuples(st.just("join"), st.integers(0, 1)),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("flow"), st.tuples(st.integers(0, 5), st.integers(1, 12))),
        st.tuples(st.just("ack"), st.lists(st.integers(0, 60), min_size=1, max_size=20)),
        st.tuples(st.just("part"), st.integers(0, 60)),
        st.tuples(st.just("redeliver"), st.tuples(st.integers(0, 5), st.lists(st.integers(0, 60), max_size=3))),
        st.tuples(st.just("stuck"), st.integers(0, 5)),
        st.tuples(st.just("works"), st.integers(0, 5)),
        st.tuples(st.just("stranger"), st.integers(0, 60)),
    ),
    min_size=12,
    max_size=60,
)


@dataclass
class Entry:
    """One entry of the model."""

    messages: int
    left: int
    count: int = 0
    holder: object = None
    held: int = 0
    acked: bool = False
    sent: int = 0
    handed_back: int = 0


@dataclass
class Model:
    entries: dict = field(default_factory=dict)

    def sent(self, consumer, message) -> None:
        e = self.entries[message.position]
        assert not e.acked
        assert e.holder is None
        assert message.count == e.count
        assert e.sent == e.handed_back, "a duplicate without a redelivery"
        assert bool(message.ack_set) == (e.left != e.messages)
        e.holder, e.held, e.sent = consumer, e.left, e.sent + 1

    def let_go(self, e: Entry, *, counts: bool) -> None:
        e.holder = None
        e.handed_back += 1
        e.count += counts

    def of(self, consumer) -> list:
        return [(p, e) for p, e in sorted(self.entries.items()) if e.holder is consumer]


class System:
    """The bench over a real ledger, and the model beside it."""

    @classmethod
    async def start(cls):
        self = cls()
        loop = asyncio.get_running_loop()
        factory = ManagedLedgerFactory(MemoryLedgerStore(), MemoryMetadataStore(), _Clock(), loop)
        config = ManagedLedgerConfig(max_entries_per_ledger=10, min_rollover_ms=0)
        self.ledger = await factory.open("public/default/persistent/model", config)
        cursor = await self.ledger.open_cursor("sub", "earliest")
        bench = Bench(cursor=cursor, max_unacked_per_consumer=LIMIT, max_read_entries=9)
        self.factory, self.bench, self.model, self.consumers, self.flowed = factory, bench, Model(), [], {}
        # The listener only schedules a dispatch for `settle`: the model has the entries only when their whole run is
        # stored.
        self.ledger.add_listener(bench.subscription.wake)
        return self

    async def settle(self) -> None:
        await self.bench.settle()

    async def publish(self, sizes) -> None:
        run = run_of(*[entry(batch=n if n > 1 else 0) for n in sizes])
        done = asyncio.get_running_loop().create_future()
        self.ledger.append(run, done.set_result)
        result = await done
        assert result.error is None
        places = [(ledger, first + k) for ledger, first, i, j in result.pieces for k in range(j - i)]
        for place, n in zip(places, sizes, strict=True):
            self.model.entries[place] = Entry(n, n)

    async def join(self, priority) -> None:
        consumer = self.bench.new(priority=priority)
        consumer.outbox.on_message = lambda m: self.model.sent(consumer, m)
        await self.bench.subscription.add_consumer(consumer)
        self.consumers.append(consumer)
        self.flowed[consumer] = 0

    def flow(self, consumer, permits) -> None:
        self.flowed[consumer] += permits
        self.bench.flow(consumer, permits)

    def ack(self, picks) -> None:
        """Acknowledge the picked entries, each by the consumer that holds it."""
        held = [(p, e) for p, e in sorted(self.model.entries.items()) if e.holder is not None]
        chosen = {held[i % len(held)][0] for i in picks} if held else set()
        for consumer in self.consumers:
            mine = [p for p in sorted(chosen) if self.model.entries[p].holder is consumer]
            for p in mine:
                e = self.model.entries[p]
                e.acked, e.holder, e.left = True, None, 0
            if mine:
                self.bench.ack(consumer, *mine)

    def part(self, pick) -> None:
        batches = [(p, e) for p, e in sorted(self.model.entries.items()) if e.holder and e.left > 1]
        if batches:
            p, e = batches[pick % len(batches)]
            e.left -= 1
            e.held = e.left
            e.count = 0
            self.bench.ack(e.holder, p, ack_set=[(1 << e.left) - 1])

    def stranger(self, pick) -> None:
        """An ack of an entry by a consumer that does not hold it (or that no consumer holds)."""
        if self.model.entries and self.consumers:
            p = sorted(self.model.entries)[pick % len(self.model.entries)]
            e = self.model.entries[p]
            e.acked, e.holder, e.left = True, None, 0
            self.bench.ack(self.consumers[pick % len(self.consumers)], p)

    def redeliver(self, consumer, picks) -> None:
        mine = self.model.of(consumer)
        chosen = [mine[i % len(mine)] for i in picks] if mine and picks else mine
        for _, e in {id(e): (p, e) for p, e in chosen}.values():
            self.model.let_go(e, counts=True)
        if mine or not picks:
            self.bench.redeliver(consumer, *[p for p, _ in chosen] if picks else [])

    def leave(self, consumer) -> None:
        self.consumers.remove(consumer)
        for _, e in self.model.of(consumer):
            self.model.let_go(e, counts=False)
        self.bench.leave(consumer)

    def check(self) -> None:
        stats = subscription_stats(self.bench.subscription)
        entries = self.model.entries.values()
        assert stats.msg_backlog == sum(not e.acked for e in entries)
        assert stats.unacked_messages == sum(e.held for e in entries if e.holder is not None)
        for consumer in self.consumers:
            mine = self.model.of(consumer)
            assert [(a.ledger_id, a.entry_id) for a in consumer.pending_acks] == [p for p, _ in mine]
            assert consumer.permits.unacked == sum(e.held for _, e in mine)
            assert consumer.permits.blocked or consumer.permits.unacked < LIMIT
            assert consumer.permits.available + consumer.permits.parked <= self.flowed[consumer]
        waiting = sum(1 for e in entries if not e.acked and e.holder is None)
        able = [c for c in self.consumers if c.permits.usable > 0 and c.outbox.writable]
        assert not (waiting and able), "messages wait although a consumer could take them"


class _Clock:
    def now_ms(self) -> int:
        return 1_000

    def now_s(self) -> float:
        return 1.0


@settings(max_examples=120, deadline=None)
@given(STEPS)
async def test_shared_like_the_model(steps):
    system = await System.start()
    for priority in (0, 0, 1):
        await system.join(priority)
        system.flow(system.consumers[-1], 10)
    await system.publish([1] * 10 + [3] * 4)
    for what, value in steps:
        index = value[0] if what in ("flow", "redeliver") else value
        consumer = system.consumers[index % len(system.consumers)] if isinstance(index, int) else None
        match what:
            case "publish":
                await system.publish(value)
            case "join":
                await system.join(value)
            case "leave":
                if len(system.consumers) > 1:
                    system.leave(consumer)
            case "flow":
                system.flow(consumer, value[1])
            case "ack":
                system.ack(value)
            case "part":
                system.part(value)
            case "stranger":
                system.stranger(value)
            case "redeliver":
                system.redeliver(consumer, value[1])
            case "stuck":
                consumer.outbox.writable = False
            case "works":
                consumer.outbox.become_writable()
        await system.settle()
        system.check()
    for consumer in system.consumers:
        consumer.outbox.become_writable()
        system.flow(consumer, 1000)
    for _ in range(200):
        await system.settle()
        if all(e.acked for e in system.model.entries.values()):
            break
        system.ack(range(60))
    assert all(e.acked for e in system.model.entries.values()), "lost"
    await system.bench.subscription.close()
    await system.factory.close()
