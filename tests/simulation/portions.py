"""Batches that consumers acknowledge message by message, and properties of subscriptions; their promises.

A message of a batch whose acknowledgement was answered never comes again, and none counts as acknowledged that no consumer
acknowledged. Consumers hold as many messages as their entries have left. The properties of a subscription are those of
the last answered request.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.message_id import bits_to_words, remaining, words_to_bits
from magnetar.storage.position import Position
from tests.simulation.admins import HttpAdmin
from tests.simulation.clients import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part, Register

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.subscriptions.subscription import Subscription
    from tests.simulation.world import World

Command = pb.BaseCommand
PARTED = "persistent://public/default/parted"


class Portions:
    """The messages of batches that consumers of one subscription acknowledged; bit k stands for message k."""

    def __init__(self, subscription: SubscriptionHistory) -> None:
        self.subscription = subscription
        self.tried: dict[tuple[int, int], int] = {}
        self._sure: dict[tuple[int, int], list[tuple[int, float]]] = {}
        """Bits with the time when their acknowledgement was answered, since the last deletion of the subscription."""
        self._epoch = 0

    def tries(self, position: tuple[int, int], bits: int) -> int:
        """A consumer acknowledges these messages; return all messages that consumers acknowledged so far."""
        self.tried[position] = self.tried.get(position, 0) | bits
        return self.tried[position]

    def answered(self, position: tuple[int, int], bits: int, now_s: float) -> int:
        """The acknowledgement was answered; return all messages whose acknowledgement was answered."""
        self._begin_epoch()
        self._sure.setdefault(position, []).append((bits, now_s))
        return self._surely(position, now_s + 1)

    def _begin_epoch(self) -> None:
        if self._epoch != self.subscription.epoch:
            self._epoch = self.subscription.epoch
            self._sure.clear()

    def _surely(self, position: tuple[int, int], before_s: float) -> int:
        found = 0
        for bits, since_s in self._sure.get(position, ()):
            found |= bits if since_s < before_s else 0
        return found

    def delivered(self, position: tuple[int, int], left: int, count: int, written_s: float) -> str:
        """The broker delivered these messages of an entry: the broken promise, or ""."""
        self._begin_epoch()
        gone = ((1 << count) - 1) & ~left
        if gone & ~self.tried.get(position, 0) and not self.subscription.may_be_acked(Position(*position)):
            return f"{position} comes without messages {gone:b} that no consumer acknowledged"
        subscription = self.subscription
        if subscription.moved or subscription.moves:
            return ""
        if again := self._surely(position, written_s) & left:
            return f"{position}: messages {again:b} come again after their acknowledgement was answered"
        return ""


class PortionConsumer(SimConsumer):
    """Acknowledges some messages of a batch at a time."""

    def __init__(
        self, world: World, name: str, topic: TopicHistory, subscription: SubscriptionHistory, kind: int, book: Portions
    ) -> None:
        super().__init__(world, name, topic, subscription, kind)
        self._book = book
        self._left: dict[tuple[int, int], int] = {}
        """The messages of the batches that the broker delivered last."""

    def _on_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        super()._on_message(message, payload)
        position = (message.message_id.ledgerId, message.message_id.entryId)
        count = self.topic.by_body[self.taken[position]].count
        left = words_to_bits(message.ack_set) if message.ack_set else (1 << count) - 1
        broken = self._book.delivered(position, left, count, self.written_s)
        if broken and not self.world.damage.may_set_back(self.topic, self.subscription):
            raise ViolationError(f"{self.name}: {broken}")
        self._left[position] = left if count > 1 else 0

    def _decide(self, position: tuple[int, int]) -> None:
        left = self._left.get(position, 0)
        if not left or not self.ready or self.chance.random() < 0.2:
            super()._decide(position)
            return
        chosen = left & self.chance.randrange(1 << left.bit_length())
        if chosen in (0, left):
            super()._decide(position)
            return
        self._ack_messages(position, chosen, left)
        self.later(self.chance.expovariate(4), lambda: self._decide(position))

    def _ack_messages(self, position: tuple[int, int], chosen: int, left: int) -> None:
        count = self.topic.by_body[self.taken[position]].count
        whole = (1 << count) - 1
        command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
        ident = command.message_id.add(ledgerId=position[0], entryId=position[1], batch_size=count)
        ident.ack_set.extend(bits_to_words(whole & ~chosen))
        self.note(f"acks-messages {chosen:b} {position[0]}:{position[1]}")
        self._left[position] = left & ~chosen
        subscription = self.subscription
        if self._book.tries(position, chosen) == whole:
            subscription.acked.add(Position(*position))
        state = subscription.state

        def sure() -> None:
            self.note(f"acked-messages {chosen:b} {position[0]}:{position[1]}")
            if subscription.state != state or subscription.moved:
                return
            if self._book.answered(position, chosen, self.world.now_s) == whole:
                subscription.sure.setdefault(Position(*position), self.world.now_s)

        self._acknowledge(command, sure, unanswered=0.4)


class Parted(Part):
    """One topic with batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("parted")
        self._books: dict[str, Portions] = {}
        self._properties: dict[str, tuple[int, Register]] = {}
        """Subscription -> its epoch, and its properties in that epoch."""

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(PARTED, plan.keeps_all, plan.deduplicates)
        world.history.topics[PARTED] = topic
        world.producers += [SimProducer(world, f"parter{n}", topic) for n in range(2)]
        for name in ("a", "b", "c"):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            self._books[name] = Portions(own)
            kind = self._chance.choice([EXCLUSIVE, SHARED, SHARED, FAILOVER, KEY_SHARED])
            world.consumers += [
                PortionConsumer(world, f"parted-{name}{n}", topic, own, kind, self._books[name])
                for n in range(self._chance.choice([1, 2]))
            ]

    # --- administrators

    def act(self) -> None:
        name = self._chance.choice(sorted(self._books))
        subscription, web = self._topic.subscriptions[name], self.world.web
        if subscription.exists and web is not None and not web.closed:
            web.spawn(self._set_properties(name, subscription))

    async def _set_properties(self, name: str, subscription: SubscriptionHistory) -> None:
        value = str(self._chance.randrange(1 << 30))
        epoch, register = self._properties.get(name, (-1, None))
        if register is None or (epoch != subscription.epoch and subscription.absent):
            register = Register(f"{PARTED} {name}", None)
        elif epoch != subscription.epoch:
            register.possible.add(None)  # the outcome of a deletion is unknown
        self._properties[name] = subscription.epoch, register
        await register.change(value, self._asks(name, {"number": value}))

    async def _asks(self, name: str, properties: dict[str, str]) -> bool | None:
        path = f"/admin/v2/persistent/public/default/parted/subscription/{name}/properties"
        status, _ = await HttpAdmin(self.world, self._chance).request("PUT", path, json.dumps(properties).encode())
        return None if not status else status in (200, 204)

    def process_ended(self) -> None:
        for _, register in self._properties.values():
            register.process_ended()

    # --- checks

    def check(self, broker: Broker) -> None:
        topic = broker.topics.loaded.get(PARTED)
        if topic is None or not topic.is_open:
            return
        for name, known in self._topic.subscriptions.items():
            found: Any = topic.subscriptions.by_name.get(name)
            if found is None:
                continue
            _check_held(found)
            epoch, register = self._properties.get(name, (-1, None))
            if register is not None and epoch == known.epoch and known.exists:
                register.check(found.cursor.cursor_properties.get("number"))


def _check_held(subscription: Subscription) -> None:
    """Check that a consumer's account of messages is that of its entries, and theirs that of the cursor."""
    for consumer in subscription.consumers:
        if consumer.pending_acks is None or subscription.cursor is None:
            continue
        total = 0
        for pending in consumer.pending_acks:
            total += pending.unacked
            left = subscription.cursor.ack_set(Position(pending.ledger_id, pending.entry_id))
            if left is not None and remaining(left) != pending.unacked:
                raise ViolationError(
                    f"{consumer.name} holds {pending}, the cursor has {remaining(left)} of its messages"
                )
        if consumer.permits.unacked != total:
            raise ViolationError(f"{consumer.name} has {consumer.permits.unacked} messages, its entries have {total}")
