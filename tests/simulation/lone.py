"""Lone producers, which wait for each receipt, and questions for the last message; their promises.

The journal gives early notice of the entries of such a producer, so that receipts go out before the topic has noted their
entries. A last message that the broker names is not before a message whose receipt came before the question, and exists;
the broker names none where the topic has dropped all messages.
The last sequence id of a producer that begins again is not lower than that of its last receipt, and not higher than that
of its last SEND, where the topic has deduplication.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed
from magnetar.storage.embedded.journal import busy_poll, commit_lane
from magnetar.storage.position import EARLIEST, Position
from tests.simulation.checker import may_be_skipped
from tests.simulation.clients import SHARED, Client, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

Command = pb.BaseCommand
LONE = "persistent://public/default/lone"
_BURST = 30
_NO_MESSAGE = Position(-1, -1)


@contextlib.contextmanager
def soon_lone() -> Iterator[None]:
    """Fewer laps make a producer a lone producer whose next message is read early; runs of two entries get early notice
    as well.
    """
    with (
        mock.patch.object(commit_lane, "_LONE_FRAMES", 1),
        mock.patch.object(commit_lane, "_MANY_ENTRIES", 2),
        mock.patch.object(busy_poll, "_FIRST_RESTS", 1),
        mock.patch.object(busy_poll, "REST_S", 0.01),
    ):
        yield


class LoneProducer(SimProducer):
    """Publishes bursts of messages, each behind the receipt of the message before."""

    def __init__(self, world: World, name: str, topic: TopicHistory) -> None:
        super().__init__(world, name, topic)
        self._left = 0
        self._receipted = -1
        """The highest sequence id with a receipt."""

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PRODUCER_SUCCESS and self.topic.deduplicates and not self.world.damage.done:
            last = command.producer_success.last_sequence_id
            if not self._receipted <= last < max(self._next, 0):
                raise ViolationError(
                    f"{self.name}: the last sequence id is {last}, between {self._receipted} and {self._next - 1}"
                )
        super().on(command, payload)

    def _on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        entry = self.pending[0] if self.pending else None
        super()._on_receipt(receipt)
        if entry is not None:
            self._receipted = entry.sequence_id + max(entry.count, 1) - 1
        self._publish_next()

    def _publish(self) -> None:
        if self._publishing and self.ready:
            self._left = self.chance.randrange(_BURST)
            if not self.pending:
                self._publish_next()
            self.later(self.chance.expovariate(1), self._publish)

    def _publish_next(self) -> None:
        if self._left > 0 and self._publishing and self.ready and not self.pending:
            self._left -= 1
            entry = self._new()
            self.pending.append(entry)
            self._send(entry)


class LastReader(Client):
    """Asks for the last message again and again."""

    def __init__(self, world: World, name: str, topic: TopicHistory) -> None:
        super().__init__(world, name, topic)
        self.named: set[Position] = set()
        self._asked: dict[int, Position] = {}
        """The question -> the last position with a receipt when it was sent."""
        self._number = 1

    def connected(self) -> None:
        self._asked.clear()
        self.send(requests.reader(1, 1, self.topic.name, self.name, {}))

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.SUCCESS:
            self.ready = True
            self._ask_last()
        elif command.type == Command.GET_LAST_MESSAGE_ID_RESPONSE:
            self._answered(command.getLastMessageIdResponse)
        elif command.type in (Command.ERROR, Command.CLOSE_CONSUMER):
            self.drop()

    def _ask_last(self) -> None:
        self._number += 1
        self._asked[self._number] = max(self.topic.receipts, default=EARLIEST)
        self.send(requests.get_last_message_id(self._number, 1))
        self.later(self.chance.choice([0.001, 0.02, 0.3]), self._ask_last)

    def _answered(self, answer: pb.CommandGetLastMessageIdResponse) -> None:
        ident = answer.last_message_id
        place, least = Position(signed(ident.ledgerId), signed(ident.entryId)), self._asked.pop(answer.request_id)
        if self.world.damage.done:
            return
        if place == _NO_MESSAGE and self.may_be_gone(least):
            return
        if place < least:
            raise ViolationError(f"{self.name}: the last message is {place}, before {least}")
        if place.entry_id < 0:
            return
        self.named.add(place)
        entry = self.topic.receipts.get(place)
        if entry is not None and entry.count != 0 and ident.batch_index != (entry.count - 1 if entry.count > 1 else -1):
            raise ViolationError(f"{self.name}: {place} has {entry.count} messages, the last is {ident.batch_index}")

    def may_be_gone(self, place: Position) -> bool:
        """Whether the topic may have dropped the message: no subscription owes the message any more."""
        known, clock = self.topic, self.world.clock
        return not (known.keeps_all or known.keeps_s) and not any(
            each.exists
            and not (each.moved or each.moves or each.may_be_acked(place) or may_be_skipped(known, each, place, clock))
            for each in known.subscriptions.values()
        )


class Lone(Part):
    """One topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("lone")

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(LONE, plan.keeps_all, plan.deduplicates)
        world.history.topics[LONE] = topic
        world.producers += [LoneProducer(world, f"lone{n}", topic) for n in range(self._chance.choice([1, 2]))]
        own = topic.subscriptions.setdefault("a", SubscriptionHistory("a"))
        world.consumers.append(SimConsumer(world, "lone-a", topic, own, SHARED))
        self._last = LastReader(world, "lone-last", topic)
        self._last.start()

    def act(self) -> None:
        """A producer begins again, or the process ends in a write."""
        if self._chance.random() < 0.5:
            mine = [each for each in self.world.producers if isinstance(each, LoneProducer)]
            self._chance.choice(mine).drop()
        else:
            self.world.faults.crash_soon(60)

    def check(self, broker: Broker) -> None:
        """No append is without its books between two callbacks, unless it is under way."""
        loaded = broker.topics.loaded.get(LONE)
        if loaded is None or not loaded.is_open or self.world.damage.done:
            return
        last = max(self._topic.receipts, default=EARLIEST)
        later = all(slot.ledger_id > last.ledger_id for slot in loaded.ledger.ledgers)
        is_empty = loaded.ledger.last_confirmed == EARLIEST and later  # loaded anew behind a drop of all messages
        if loaded.ledger.last_confirmed < last and not (is_empty and self._last.may_be_gone(last)):
            raise ViolationError(f"{LONE}: the last entry is {loaded.ledger.last_confirmed}, before {last}")

    def calm(self) -> None:
        self._last.stop()

    def compare(self) -> None:
        if not self.world.plan.keeps_all or self.world.damage.done:
            return
        for reader in self.world.readers_of(LONE):
            if missing := self._last.named - {Position(*place) for place, _, _ in reader.found}:
                raise ViolationError(f"{LONE}: {sorted(missing)} were named as last messages and are not read")
