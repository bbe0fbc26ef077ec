"""Random histories of one subscription of a persistent topic: consumers, acknowledgements, SEEK, unloads, cold reads.

A history drives a real topic on the in-memory stores, whose reads wait and fail at random. Checked with every message:
the entry is neither acknowledged nor held, and its key stays in order. Checked when all is quiet: no entry is
overlooked, no entry waits while a consumer could take it, and the books of permits and unacknowledged messages hold.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

from structlog.testing import capture_logs

from magnetar.broker.consumers.consumer import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Consumer,
    ConsumerSpec,
    KeySharedPolicy,
)
from magnetar.broker.errors import BrokerError
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.topics.append_door import InternalProducer, _run
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.converters.entry import Entry
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import StorageError
from magnetar.storage.position import EARLIEST, Position
from tests.broker.dispatch_fakes import entry
from tests.broker.topic_for_tests import NAME
from tests.model.dispatch_checks import Client, Published, check, check_logs, check_message, check_place, state_of
from tests.model.unsteady import UnsteadyConverter, UnsteadyLedgers, unsteady_bench
from tests.storage.managed_for_tests import append
from tests.twins.fake_connection import FakeConnection, Message

_TYPES = (SHARED, SHARED, KEY_SHARED, KEY_SHARED, KEY_SHARED, KEY_SHARED, EXCLUSIVE, FAILOVER)
_KEYS = tuple(f"k{i}" for i in range(7))


class History:
    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.type = dice.choice(_TYPES)
        ledgers = UnsteadyLedgers(dice)
        self.ledgers = ledgers
        self.cold = dice.choice((0.0, 0.0, 0.3, 1.0))
        self.failing = dice.choice((0.0, 0.1, 0.5))
        self.bench = unsteady_bench(dice, ledgers)
        self.durable = dice.random() < 0.85
        self.converter = UnsteadyConverter(dice) if dice.random() < 0.3 else None
        self.damaging = dice.random() < 0.2
        self.throttled = dice.random() < 0.25
        self.sticky = self.type == KEY_SHARED and dice.random() < 0.2
        self.out_of_order = self.type == KEY_SHARED and dice.random() < 0.15
        self.with_chunks = self.type == SHARED and dice.random() < 0.4
        self.with_delays = dice.random() < 0.5
        self.calm = dice.random() < 0.3
        """Whether all becomes quiet behind nearly each step, so that no later step hides a forgotten turn."""
        self.published: dict[Position, Published] = {}
        self.clients: list[Client] = []
        self.holder: dict[Position, Client] = {}
        self.returned: Counter[Position] = Counter()
        """How often consumers requested the redelivery of each entry."""
        self.moves = 0
        """Acknowledgements, skips and seeks so far."""
        self.tasks: set[asyncio.Task] = set()
        self.ids = 0
        self.chunks: list[tuple[str, int, int]] = []
        self.trail: list[str] = []
        self.moving = 0
        self.failures: list[str] = []

    # --- clients ---------------------------------------------------------------------------------------------------

    @property
    def topic(self):
        return self.bench.topic

    @property
    def subscription(self):
        return self.topic.subscriptions.by_name.get("s")

    def note(self, text: str) -> None:
        self.trail.append(text)

    def spawn(self, coroutine) -> None:
        async def quiet():
            try:
                with suppress(BrokerError, StorageError):
                    await coroutine
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error} (behind line {len(self.trail)})")

        task = asyncio.get_running_loop().create_task(quiet())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def join(self) -> None:
        self.ids += 1
        outbox = FakeConnection()
        outbox.alive = self.dice.random() < 0.7
        policy = KeySharedPolicy(allow_out_of_order=self.out_of_order) if self.type == KEY_SHARED else None
        if self.sticky:
            start = self.dice.randrange(4) << 14
            policy = KeySharedPolicy(True, ((start, start + (1 << 14) - 1),), self.out_of_order)
        spec = ConsumerSpec(
            self.ids,
            NAME,
            "s",
            self.type,
            f"c{self.dice.randrange(4)}",
            self.dice.choice((0, 0, 0, 1)),
            key_shared=policy,
        )
        client = Client(Consumer(outbox, spec), outbox)
        outbox.on_message = lambda m: self.noted(client, m)

        async def subscribe() -> None:
            topic = self.topic
            request = SubscribeRequest("s", self.durable, self.durable, None if self.durable else EARLIEST)
            await topic.subscriptions.subscribe(client.consumer, request)
            if self.converter is not None:
                client.consumer.subscription.context.transform = self.converter
            outbox.consumers[spec.consumer_id] = client.consumer
            self.clients.append(client)
            self.note(f"joined {client.name}")

        self.note(f"join c#{self.ids}")
        self.spawn(subscribe())

    def noted(self, client: Client, message: Message) -> None:
        """Check a message; the broker logs an exception of its caller and goes on, so the next check raises it."""
        try:
            check_message(self, client, message)
        except AssertionError as error:
            self.failures.append(f"{error} (behind line {len(self.trail)})")
            self.note(f"WRONG {error}")

    def let_go(self, client: Client, position: Position) -> None:
        client.got.pop(position, None)
        if self.holder.get(position) is client:
            del self.holder[position]

    def gone(self, client: Client) -> None:
        if client in self.clients:
            self.clients.remove(client)
        for position in list(client.got):
            self.let_go(client, position)

    def notice_closes(self) -> None:
        for client in list(self.clients):
            if client.consumer.consumer_id not in client.outbox.consumers:
                self.note(f"{client.name} was closed")
                self.gone(client)
            elif not client.outbox.alive and client.consumer not in client.consumer.subscription.consumers:
                self.note(f"{client.name} made way")
                self.gone(client)
        for client in self.clients:
            if self.type in (EXCLUSIVE, FAILOVER):
                continue
            held = client.consumer.pending_acks
            for position in [p for p in client.got if p not in held]:
                self.let_go(client, position)

    # --- steps -----------------------------------------------------------------------------------------------------

    async def publish(self) -> None:
        dice = self.dice
        now_ms = self.bench.ground.clock.now_ms()
        if self.with_chunks and dice.random() < 0.5:
            await self.publish_chunk()
            return
        if self.with_delays and dice.random() < 0.4:
            about = Published(dice.choice(_KEYS), 1, now_ms + dice.choice((50, 500, 5000)))
            await self.one(entry(b"x", key=about.key, deliver_at_time=about.deliver_at), about)
            return
        abouts = [Published(dice.choice(_KEYS), dice.choice((1, 1, 1, 3)), 0) for _ in range(dice.randint(1, 8))]
        bodies = [entry(b"x", key=a.key, batch=a.messages if a.messages > 1 else 0) for a in abouts]
        positions = await append(self.topic.ledger, bodies, [a.messages for a in abouts])
        self.published.update(zip(positions, abouts, strict=True))
        self.note(f"published {[tuple(p) for p in positions]} {[a.key for a in abouts]}")

    async def one(self, body: bytes, about: Published) -> None:
        done = asyncio.get_running_loop().create_future()
        run = _run(body, Entry(body).metadata)
        producer = InternalProducer("p")

        def appended(result) -> None:
            if result.error is None:
                ledger_id, entry_id, _, _ = result.pieces[0]
                self.published[Position(ledger_id, entry_id)] = about
                self.topic.publishing.stored(producer, run, 1, result.pieces)
                self.note(f"published {(ledger_id, entry_id)} {about}")
            done.set_result(None)

        self.topic.publishing.append(run, appended)
        await done

    async def publish_chunk(self) -> None:
        dice = self.dice
        if not self.chunks or dice.random() < 0.4:
            self.chunks.append((f"u{dice.randrange(1 << 30)}", 0, dice.randint(2, 5)))
        k = dice.randrange(len(self.chunks))
        uuid, number, total = self.chunks[k]
        body = entry(b"x", key="k0", uuid=uuid, chunk_id=number, num_chunks_from_msg=total, total_chunk_msg_size=total)
        await self.one(body, Published("k0", 1, 0, uuid))
        if number + 1 == total or dice.random() < 0.1:
            del self.chunks[k]
        else:
            self.chunks[k] = (uuid, number + 1, total)

    def flow(self, client: Client) -> None:
        permits = self.dice.choice((1, 2, 5, 20))
        self.note(f"{client.name} flow {permits}")
        client.permits += permits
        client.consumer.subscription.on_flow(client.consumer, permits)

    def ack(self, client: Client, *, everything: bool = False) -> None:
        sub, dice = client.consumer.subscription, self.dice
        if not client.got:
            return
        kind = pb.CommandAck.Individual
        got = list(client.got)
        count = len(got) if everything else dice.randint(1, len(got))
        chosen = dice.sample(got, count)
        partial = False
        if self.type in (EXCLUSIVE, FAILOVER) and dice.random() < 0.6:
            kind, chosen = pb.CommandAck.Cumulative, [max(chosen)]
        elif not everything and dice.random() < 0.2:
            chosen = [p for p in chosen if client.got[p] > 1][:1] or chosen
            partial = client.got[chosen[0]] > 1
        part = dice.choice((0b110, 0b101, 0b011))
        command = pb.CommandAck(consumer_id=client.consumer.consumer_id, ack_type=kind)
        for p in chosen:
            command.message_id.add(ledgerId=p[0], entryId=p[1], ack_set=[part] if partial else [])
        if dice.random() < 0.3:
            command.request_id = 7
        self.note(f"{client.name} acks {[tuple(p) for p in chosen]} kind {kind} partly {partial}")
        self.moves += 1
        durable = sub.on_ack(client.consumer, command)
        for p in chosen:
            if not partial and kind == pb.CommandAck.Individual and self.type in (SHARED, KEY_SHARED):
                self.let_go(client, p)
        if durable is not None:
            self.spawn(durable)

    def ack_of_stranger(self) -> None:
        """An acknowledgement of any entry by any consumer."""
        if not self.published or not self.clients:
            return
        client = self.dice.choice(self.clients)
        p = self.dice.choice(list(self.published))
        command = pb.CommandAck(consumer_id=client.consumer.consumer_id, ack_type=pb.CommandAck.Individual)
        command.message_id.add(ledgerId=p[0], entryId=p[1])
        self.note(f"{client.name} acks as a stranger {tuple(p)}")
        self.moves += 1
        client.consumer.subscription.on_ack(client.consumer, command)

    def nack(self, client: Client) -> None:
        sub = client.consumer.subscription
        chosen = self.dice.sample(list(client.got), self.dice.randint(0, len(client.got)))
        if self.dice.random() < 0.3:
            chosen = []
        self.note(f"{client.name} gives back {[tuple(p) for p in chosen] or 'all'}")
        for p in chosen or list(client.got):
            self.returned[p] += 1
            self.let_go(client, p)
        if self.type in (EXCLUSIVE, FAILOVER):
            client.got.clear()
        ids = [pb.MessageIdData(ledgerId=p[0], entryId=p[1]) for p in chosen]
        sub.on_redeliver(client.consumer, ids or None, None)

    def leave(self, client: Client) -> None:
        self.note(f"{client.name} leaves")
        client.outbox.consumers.clear()
        self.gone(client)
        client.consumer.subscription.remove_consumer(client.consumer)

    def seek(self) -> None:
        if self.subscription is None or not self.published:
            return
        position = self.dice.choice(list(self.published))
        into = self.published[position].messages > 1 and self.dice.random() < 0.7
        ack_set = [0b110] if into else None
        self.note(f"seek {tuple(position)} {ack_set}")
        self.moves += 1
        moves = self.moves

        async def seek(sub) -> None:
            self.moving += 1
            try:
                await sub.seek(position, ack_set)
                self.note("sought")
            finally:
                self.moving -= 1
            if moves == self.moves and not self.damaging and self.converter is None:
                check_place(self, sub.cursor, position, ack_set)

        self.spawn(seek(self.subscription))

    def skip(self) -> None:
        sub = self.subscription
        if sub is None:
            return
        self.moves += 1
        if self.dice.random() < 0.5:
            count = self.dice.choice((1, 3, 1000))
            self.note(f"skip {count}")
            self.spawn(self.topic.subscriptions.skip(sub, count))
        elif self.published:
            position = self.dice.choice(list(self.published))
            self.note(f"expire before {tuple(position)}")
            self.spawn(self.topic.subscriptions.move_to(sub, position, expired=True))

    async def policies(self) -> None:
        dice = self.dice
        await self.bench.set_namespace(
            max_unacked_messages_per_consumer=dice.choice((None, 0, 2, 10)),
            max_unacked_messages_per_subscription=dice.choice((None, 0, 4, 30)),
            subscription_dispatch_rate=self.rates() if self.throttled else {},
        )
        self.note("policies")

    def rates(self) -> dict[str, DispatchRate]:
        dice = self.dice
        rate = DispatchRate(
            dispatch_throttling_rate_in_msg=dice.choice((0, 1, 3)),
            dispatch_throttling_rate_in_byte=dice.choice((0, 0, 200)),
            rate_period_in_second=1,
        )
        return {self.bench.settings.cluster_name: rate}

    async def unload(self) -> None:
        self.note("unload")
        while self.tasks:  # the registry of topics waits for requests that are under way
            await self.round()
        before = state_of(self) if self.durable else None
        await self.bench.reopen()
        if before is not None:
            assert state_of(self) == before, "the unload changed acknowledgements"
        self.notice_closes()

    def stuck(self) -> None:
        if self.clients:
            client = self.dice.choice(self.clients)
            self.note(f"{client.name} writable {not client.outbox.writable}")
            if client.outbox.writable:
                client.outbox.writable = False
            else:
                client.outbox.become_writable()

    # --- rounds ----------------------------------------------------------------------------------------------------

    async def round(self, seconds: float = 0.0) -> None:
        self.bench.pass_time(seconds)
        await asyncio.sleep(0)
        self.notice_closes()

    async def settle(self) -> None:
        for _ in range(150):
            await self.round(0.005)

    async def step(self) -> None:
        dice = self.dice
        roll = dice.random()
        client = dice.choice(self.clients) if self.clients else None
        if roll < 0.18:
            await self.publish()
        elif (roll < 0.26 and len(self.clients) < 5) or client is None:
            self.join()
        elif roll < 0.46:
            self.flow(client)
        elif roll < 0.62:
            self.ack(client)
        elif roll < 0.72:
            self.nack(client)
        elif roll < 0.77:
            self.leave(client)
        elif roll < 0.82:
            self.stuck()
        elif roll < 0.85:
            self.ack_of_stranger()
        elif roll < 0.87:
            self.seek()
        elif roll < 0.89:
            self.skip()
        elif roll < 0.91:
            await self.policies()
        elif roll < 0.92:
            await self.unload()
        elif roll < 0.925 and self.damaging and self.published:
            self.ledgers.corrupt.add(dice.choice(list(self.published)))
            self.note("damage")
        elif roll < 0.96:
            await self.round(dice.choice((0.05, 0.2, 1.0, 20.0)))
        else:
            self.ledgers.cold = dice.choice((0.0, self.cold))
            self.ledgers.failing = dice.choice((0.0, self.failing))
        for _ in range(dice.choice((0, 0, 1, 1, 2, 5))):
            await self.round()

    def complained(self, _loop, context) -> None:
        """Note an exception of a callback."""
        self.failures.append(f"{context['message']}: {context.get('exception')!r} (behind line {len(self.trail)})")

    async def play(self, steps: int = 80) -> None:
        asyncio.get_running_loop().set_exception_handler(self.complained)
        await self.bench.open()
        self.join()
        await self.settle()
        self.ledgers.cold, self.ledgers.failing = self.cold, self.failing
        for number in range(steps):
            await self.step()
            if number % 10 == 9 or (self.calm and self.dice.random() < 0.5):
                failing = self.ledgers.failing
                await self.quiet()
                self.ledgers.failing = failing
        await self.finish()

    async def quiet(self) -> None:
        """Let all work end, with reads that do not fail, and check."""
        self.ledgers.failing = 0.0
        await self.settle()
        await self.round(61.0)
        await self.settle()
        if self.converter is not None:
            for _ in range(80):
                await self.round(0.4)
                for _ in range(15):
                    await self.round()
        for _ in range(3):  # entries that were parked at last
            try:
                check(self)
            except AssertionError:
                await self.round(0.5 if self.converter is not None else 0.0)
                await self.settle()
        check(self)

    async def finish(self) -> None:
        """With permits for all, every entry is delivered and can be acknowledged."""
        await self.bench.set_namespace(
            max_unacked_messages_per_consumer=None, max_unacked_messages_per_subscription=None
        )
        self.ledgers.failing = 0.0
        self.note("finish")
        for _ in range(60):
            await self.quiet()
            if not self.clients:
                self.join()
                await self.settle()
            for client in list(self.clients):
                client.outbox.become_writable()
                client.permits += 30
                client.consumer.subscription.on_flow(client.consumer, 30)
            await self.settle()
            for client in list(self.clients):
                self.ack(client, everything=True)
            await self.settle()
            if not self.subscription.cursor.backlog_entries:
                break
        left = [tuple(p) for p in self.published if not self.subscription.cursor.is_deleted(p)]
        if self.sticky:
            left = []
        assert not left, f"never delivered: {left}"
        check(self)
        await self.bench.close()


async def play(seed: int, steps: int = 80) -> None:
    """Play a history; an AssertionError has its end."""
    history = History(seed)
    try:
        with capture_logs() as logs:
            await history.play(steps)
        check_logs(logs)
    except AssertionError as error:
        trail = "\n".join(history.trail[-60:])
        raise AssertionError(f"seed {seed}: {error}\n{trail}") from error
