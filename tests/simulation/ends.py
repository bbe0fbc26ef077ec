"""Topics that administrators terminate, and their promises.

A termination that was answered stays, and its answer is the same each time. No message lies behind the end: receipts name
earlier positions, and readers find no later message. A terminated topic accepts no producer, and only a request ends a
topic. A reader that has read all messages gets the end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.position import Position
from tests.simulation.admins import HttpAdmin
from tests.simulation.clients import FAILOVER, SHARED, SimConsumer, SimProducer, SimReader
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

Command = pb.BaseCommand
ENDED = "public/default/ended"
TOPICS = 3
_SETTLES_S = 60.0


class End:
    """The end of one topic, by the answers to the requests."""

    def __init__(self, topic: TopicHistory) -> None:
        self.topic = topic
        self.asked = False
        self.place: Position | None = None
        self.since_s = float("inf")
        """When the first request was answered."""

    def answered(self, place: Position, now_s: float) -> None:
        if self.place not in (None, place):
            raise ViolationError(f"{self.topic.name}: the end is {place}, before {self.place}")
        self.place, self.since_s = place, min(self.since_s, now_s)
        self.check(max(self.topic.receipts, default=Position(-1, -1)))

    def check(self, last: tuple[int, int]) -> None:
        """A message of the topic has this position."""
        if self.place is not None and last > self.place:
            raise ViolationError(f"{self.topic.name}: {last} lies behind the end at {self.place}")


class LastingProducer(SimProducer):
    """Publishes until its topic is terminated; then messages without receipt are given up."""

    def __init__(self, world: World, name: str, end: End) -> None:
        super().__init__(world, name, end.topic)
        self._end = end
        self._asked_s = 0.0

    def connected(self) -> None:
        self._asked_s = self.world.now_s
        super().connected()

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PRODUCER_SUCCESS and self._asked_s > self._end.since_s:
            raise ViolationError(f"{self.name}: the topic accepts a producer behind its end")
        codes = (command.error.error, command.send_error.error)
        if command.type in (Command.ERROR, Command.SEND_ERROR) and pb.TopicTerminatedError in codes:
            if not self._end.asked:
                raise ViolationError(f"{self.name}: the topic has ended without a request")
            self.note("ends")
            self.pending.clear()
            self.stop()
            return
        super().on(command, payload)

    def _on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        super()._on_receipt(receipt)
        self._end.check(max(self.topic.receipts, default=Position(-1, -1)))


class EndReader(SimReader):
    """Reads and acknowledges all messages; ``reached``: the broker reported the end."""

    reached = False

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        self.reached = self.reached or command.type == Command.REACHED_END_OF_TOPIC
        super().on(command, payload)
        if command.type == Command.MESSAGE:
            ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative)
            ack.message_id.add().CopyFrom(command.message.message_id)
            self.command(Command.ACK, ack=ack)


class Ends(Part):
    """Some topics."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("ends")
        self._ends: dict[str, End] = {}
        self._last: list[EndReader] = []
        self._settles_until_s = 0.0

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        for number in range(TOPICS):
            name = f"persistent://{ENDED}{number}"
            topic = world.history.topics[name] = TopicHistory(name, plan.keeps_all, plan.deduplicates)
            end = self._ends[name] = End(topic)
            world.producers += [
                LastingProducer(world, f"lasting{number}-{n}", end) for n in range(self._chance.choice([1, 2]))
            ]
            own = topic.subscriptions.setdefault("a", SubscriptionHistory("a"))
            kind = self._chance.choice([SHARED, FAILOVER])
            world.consumers.append(SimConsumer(world, f"ended{number}-a", topic, own, kind))

    def act(self) -> None:
        self._spawn(self._chance.choice(list(self._ends.values())))

    def _spawn(self, end: End) -> None:
        if self.world.web is not None and not self.world.web.closed:
            self.world.web.spawn(self._terminate(end))

    async def _terminate(self, end: End) -> None:
        end.asked = True
        path = f"/admin/v2/persistent/{end.topic.name.partition('://')[2]}/terminate"
        status, body = await HttpAdmin(self.world, self._chance).request("POST", path, b"")
        if status == 200:
            found = json.loads(body)
            end.answered(Position(found["ledgerId"], found["entryId"]), self.world.now_s)
            self.world.note(f"ended {end.topic.name[-6:]} at {end.place}")

    def check(self, broker: Broker) -> None:
        for name, end in self._ends.items():
            topic = broker.topics.loaded.get(name)
            if end.place is not None and topic is not None and topic.is_open and not topic.ledger.terminated:
                raise ViolationError(f"{name}: the end at {end.place} is lost")

    # --- the end of the history

    def calm(self) -> None:
        """Repeat the requests without an answer, so that their producers end."""
        self._settles_until_s = self.world.now_s + _SETTLES_S
        self._settle()

    def _settle(self) -> None:
        for end in self._ends.values():
            if end.asked and end.place is None:
                self._spawn(end)
        if self.world.now_s < self._settles_until_s:
            self.world.timers.after(2, self._settle)

    def take(self) -> None:
        for number, (name, end) in enumerate(self._ends.items()):
            if end.topic.receipts or end.asked:
                reader = EndReader(self.world, f"end-reader{number}", self.world.history.topics[name])
                self._last.append(reader)
                reader.start()

    def is_quiet(self) -> bool:
        return all(reader.ready for reader in self._last)

    def compare(self) -> None:
        for reader in self._last:
            end = self._ends[reader.topic.name]
            for place, _, _ in reader.found:
                end.check(place)
            if reader.reached != (end.place is not None):
                raise ViolationError(
                    f"{reader.topic.name}: the end at {end.place}, reported to a reader: {reader.reached}"
                )
            reader.stop()
