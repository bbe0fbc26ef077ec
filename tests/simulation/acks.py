"""Acknowledgements without a request id, and their promises.

A PONG is the evidence that the broker has received each ACK that its client sent before the PING. Such an ACK survives an
orderly stop, and a second later any end of the process and of the machine. While the disk has faults, that second does not
begin.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.message_id import bits_to_words
from magnetar.storage import events
from magnetar.storage.position import Position
from tests.simulation.admins import DirectAdmin
from tests.simulation.clients import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part
from tests.simulation.portions import PortionConsumer, Portions

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

Command = pb.BaseCommand
ACKED = "persistent://public/default/acked"
_SECOND_S = 1.0
_PERSISTENT_FAULT_S = 5.0
"""The broker notices within this time that a full disk has space again."""


class Received:
    """The acknowledgements that the present process has received and need not have saved yet."""

    def __init__(self, world: World) -> None:
        self.world = world
        plan = world.plan
        self._after_s = _SECOND_S + 0.2 + 2 * plan.frame_pace_s + 60 * plan.pace_s
        """A second, and the time of two saves: an ACK beside a save waits for its end, and for the next save."""
        self._open: dict[int, Callable[[], None]] = {}
        self._count = 0
        self._failures = 0
        self._failed_s = 0.0
        self._logs_read = 0

    def add(self, sure: Callable[[], None], since_s: float) -> None:
        """The process has received an acknowledgement; ``sure`` notes that the acknowledgement survives."""
        self._count += 1
        number = self._count
        self._open[number] = sure
        self._look_again(number, since_s)

    def _look_again(self, number: int, since_s: float) -> None:
        world = self.world
        since_s = max(since_s, self._faulty_until_s())
        world.timers.after(since_s + self._after_s - world.now_s, lambda: self._confirm(number, since_s))

    def _confirm(self, number: int, since_s: float) -> None:
        world = self.world
        self._forget_unsaved()
        if number not in self._open or world.broker is None or world._over.is_set():
            return
        if world.broker.stored.stores.health.failed is not None:  # the process is about to end
            return
        if self._faulty_until_s() > since_s:
            self._look_again(number, since_s)
        else:
            self._open.pop(number)()

    def _faulty_until_s(self) -> float:
        """When the last fault of the disk was over."""
        world = self.world
        disk, threads = world.disk, world.threads
        if disk.capacity_bytes is not None or disk.failures != self._failures:
            self._failures, self._failed_s = disk.failures, world.now_s
        full_until_s = max(world.faults.full_until_s, self._failed_s)
        return max(
            full_until_s + _PERSISTENT_FAULT_S * bool(full_until_s), threads.stalled_until_s, threads.held_until_s
        )

    def _forget_unsaved(self) -> None:
        """Where a fault of the disk has the end of a topic fail, the broker reports that, and the topic begins anew."""
        logs = self.world.logs
        new, self._logs_read = logs[self._logs_read :], len(logs)
        if any(entry["event"] == events.MANAGED_LEDGER_NOT_SAVED for entry in new):
            if not self.world.disk.failures:
                raise ViolationError("a topic ends without a save, and the disk has no fault")
            self._open.clear()

    def stopped(self) -> None:
        """The process has stopped in order, and has saved everything that it received."""
        self._forget_unsaved()
        for sure in self._open.values():
            sure()
        self._open.clear()

    def process_ended(self) -> None:
        self._open.clear()
        self._failures = self.world.disk.failures
        self._logs_read = 0


class Pinging(SimConsumer):
    """Sends a PING behind most acknowledgements."""

    received: Received

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sent: list[Callable[[], None]] = []
        """The acknowledgements since the last PING."""
        self._pings: deque[list[Callable[[], None]]] = deque()
        """The acknowledgements before each PING that has no answer."""
        self._process: Broker | None = None

    def connected(self) -> None:
        self._process = self.world.broker
        super().connected()

    def ended(self) -> None:
        super().ended()
        self._sent.clear()
        self._pings.clear()

    def ping(self) -> None:
        self._pings.append(self._sent)
        self._sent = []
        super().ping()

    def ponged(self) -> None:
        received = self._pings.popleft()
        if self.world.broker is self._process:
            for sure in received:
                self.received.add(sure, self.written_s)

    def _acknowledge(self, command: pb.CommandAck, sure: Callable[[], None], *, unanswered: float) -> None:
        if self.chance.random() < 0.1:
            super()._acknowledge(command, sure, unanswered=unanswered)
            return
        self.command(Command.ACK, ack=command)
        self._sent.append(sure)
        if self.chance.random() < 0.5:
            self.ping()
        else:
            self.later(self.chance.random() * 0.3, self._ping_if_sent)

    def _ping_if_sent(self) -> None:
        if self._sent:
            self.ping()


class PingingConsumer(Pinging, PortionConsumer):
    """Acknowledges batches message by message."""

    def _ack_messages(self, position: tuple[int, int], chosen: int, left: int) -> None:
        if self.sub_type in (EXCLUSIVE, FAILOVER) and self.chance.random() < 0.5:
            self._ack_up_to_message(position, chosen)
        else:
            super()._ack_messages(position, chosen, left)

    def _ack_up_to_message(self, position: tuple[int, int], chosen: int) -> None:
        """Acknowledge everything up to the last of the chosen messages of a batch."""
        count = self.topic.by_body[self.taken[position]].count
        whole, bits = (1 << count) - 1, (1 << chosen.bit_length()) - 1
        before = Position(position[0], position[1] - 1)
        command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative)
        ident = command.message_id.add(ledgerId=position[0], entryId=position[1], batch_size=count)
        ident.ack_set.extend(bits_to_words(whole & ~bits))
        self.note(f"ack-up-to-message {bits:b} {position[0]}:{position[1]}")
        self._left[position] &= ~bits
        subscription = self.subscription
        subscription.acked_up_to = max(subscription.acked_up_to, before)
        if self._book.tries(position, bits) == whole:
            subscription.acked.add(Position(*position))
        state = subscription.state

        def sure() -> None:
            self.note(f"acked-up-to-message {bits:b} {position[0]}:{position[1]}")
            if subscription.state != state or subscription.moved:
                return
            if not subscription.sure_up_to or before > subscription.sure_up_to[-1][0]:
                subscription.sure_up_to.append((before, self.world.now_s))
            if self._book.answered(position, bits, self.world.now_s) == whole:
                subscription.sure.setdefault(Position(*position), self.world.now_s)

        self._acknowledge(command, sure, unanswered=0.5)


def check_acked(broker: Broker, known: TopicHistory, world: World) -> None:
    """Check that the cursors of a topic have each acknowledgement that survives."""
    loaded = broker.topics.loaded.get(known.name)
    if loaded is None or not loaded.is_open or world.damage.done:
        return
    for name, subscription in known.subscriptions.items():
        found = loaded.subscriptions.by_name.get(name)
        if found is None or not subscription.exists:
            continue
        for place in known.receipts:
            if subscription.was_surely_acked(place, world.now_s) and not found.cursor.is_deleted(place):
                raise ViolationError(f"{known.name} {name}: the acknowledgement of {place} is lost")


class Acks(Part):
    """One topic with a subscription of each type."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("acks")
        self._received = Received(world)

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(ACKED, plan.keeps_all, plan.deduplicates)
        world.history.topics[ACKED] = topic
        world.producers += [SimProducer(world, f"acked{n}", topic) for n in range(2)]
        for name, kind in (("a", EXCLUSIVE), ("b", SHARED), ("c", FAILOVER), ("d", KEY_SHARED)):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            book = Portions(own)
            for n in range(1 if kind == EXCLUSIVE else 2):
                consumer = PingingConsumer(world, f"acked-{name}{n}", topic, own, kind, book)
                consumer.received = self._received
                world.consumers.append(consumer)

    def act(self) -> None:
        """End the process in order, unload the topic, or begin a compaction of its log."""
        kind = self._chance.choice(["restart", "unload", "compact", "trim"])
        if kind == "restart":
            self.world.faults.end("restart")
        elif self.world.broker is not None:
            admin = DirectAdmin(self.world.broker)
            admin.spawn(admin.look(self._topic, kind))

    def check(self, broker: Broker) -> None:
        """An acknowledgement that survives is in the cursor, at any time."""
        check_acked(broker, self._topic, self.world)

    def stopped(self) -> None:
        self._received.stopped()

    def process_ended(self) -> None:
        self._received.process_ended()
