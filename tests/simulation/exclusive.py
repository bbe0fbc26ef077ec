"""Producers that compete for exclusive access to a topic, and their promises.

A topic epoch belongs to one session of one producer, and a later grant has a greater epoch. In the topic no entry of an
epoch lies behind an entry of a later epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.simulation.clients import SHARED, SimConsumer, SimProducer
from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from tests.simulation.history import Position
    from tests.simulation.world import World

Command = pb.BaseCommand
OWNED = "persistent://public/default/owned"
FENCED = 25


class OwnerHistory:
    """The epochs that the broker granted."""

    def __init__(self) -> None:
        self.granted: dict[int, tuple[str, float]] = {}
        """Epoch -> the session that got it, and when a client had the answer."""
        self.epochs: dict[tuple[str, int], int] = {}
        """(producer, sequence id) -> epoch in which the entry was sent."""

    def grant(self, epoch: int, session: str, asked_s: float, now_s: float) -> None:
        owner, _ = self.granted.setdefault(epoch, (session, now_s))
        if owner != session:
            raise ViolationError(f"{OWNED}: epoch {epoch} of {session} belongs to {owner}")
        for other, (other_session, got_s) in self.granted.items():
            if other > epoch and got_s < asked_s and other_session != session:
                raise ViolationError(f"{OWNED}: {session} gets epoch {epoch} behind {other}")

    def check_order(self, found: list[tuple[Position, Sent]]) -> None:
        last = -1
        for place, entry in found:
            epoch = self.epochs[entry.producer, entry.sequence_id]
            if epoch < last:
                raise ViolationError(f"{OWNED}: {place} of epoch {epoch} behind epoch {last}")
            last = epoch


class SimOwner(SimProducer):
    """Asks for exclusive access. A session keeps its epoch over lost connections; behind a fence the next session begins."""

    def __init__(self, world: World, name: str, topic: TopicHistory, owners: OwnerHistory) -> None:
        super().__init__(world, name, topic)
        self._owners = owners
        self._mode = pb.Exclusive
        self._epoch: int | None = None
        self._sessions = 0
        self._asked_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Begin a session: entries without receipt are given up."""
        self._sessions += 1
        self._epoch = None
        self.pending.clear()
        self._mode = self.chance.choice([pb.Exclusive, pb.WaitForExclusive, pb.ExclusiveWithFencing])

    def connected(self) -> None:
        if self._mode == pb.WaitForExclusive and self._epoch is not None:
            self._begin()  # a producer that waits keeps an old epoch, as in Apache Pulsar
        command = pb.CommandProducer(topic=self.topic.name, producer_id=1, request_id=1, producer_name=self.name)
        command.user_provided_producer_name = True
        command.producer_access_mode = self._mode
        if self._epoch is not None:
            command.topic_epoch = self._epoch
        self._asked_s = self.world.now_s
        self.command(Command.PRODUCER, producer=command)

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PRODUCER_SUCCESS:
            if not command.producer_success.producer_ready:
                self.note("waits")
                self.ready = True  # the connection is in use
                return
            self._epoch = command.producer_success.topic_epoch
            self.note(f"owns {self._epoch}")
            self._owners.grant(self._epoch, f"{self.name}-{self._sessions}", self._asked_s, self.world.now_s)
            self.later(self.chance.expovariate(0.5), self._leave)
        elif (command.type == Command.ERROR and command.error.error == FENCED) or (
            command.type == Command.SEND_ERROR and command.send_error.error == FENCED
        ):
            self.note("fenced")
            self._begin()
        super().on(command, payload)

    def _publish(self) -> None:
        if self._epoch is not None:
            super()._publish()
        if not self._publishing and not self.pending:
            self.stop()

    def _leave(self) -> None:
        """Give the access up to others."""
        if not self.pending or self.chance.random() < 0.3:
            self._begin()
            self.drop()

    def _new(self) -> Sent:
        entry = super()._new()
        assert self._epoch is not None
        self._owners.epochs[entry.producer, entry.sequence_id] = self._epoch
        return entry

    def finish(self) -> None:
        super().finish()
        self._leave_when_done()

    def _leave_when_done(self) -> None:
        if self.pending:
            self.world.timers.after(0.5, self._leave_when_done)
        else:
            self.stop()


class Owners(Part):
    """Producers of one topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.history = OwnerHistory()

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(OWNED, plan.keeps_all, plan.deduplicates)
        world.history.topics[OWNED] = topic
        world.producers += [SimOwner(world, f"owner{n}", topic, self.history) for n in range(3)]
        own = topic.subscriptions.setdefault("a", SubscriptionHistory("a"))
        world.consumers.append(SimConsumer(world, "owned-a", topic, own, SHARED))

    def compare(self) -> None:
        self.history.check_order(sorted(self._topic.receipts.items()))
        for reader in self.world.readers_of(OWNED):
            self.history.check_order([(place, entry) for place, entry, _ in reader.found])
