"""Seeks by time and unloads, and their promises.

Behind an answered seek to a time a subscription owes each message whose stamp is not earlier, whatever was acknowledged
before, and consumers get no message with an earlier stamp that had a receipt when the seek was sent: a message that comes
beside the seek may lie behind its place. Both hold over unloads, crashes and restarts. The stamps are those of the broker,
whose clock is not set in these histories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.metadata import parse_entry_metadata
from magnetar.protocol.speed import after_prefix
from magnetar.storage.position import EARLIEST, Position
from tests.simulation.admins import DirectAdmin, HttpAdmin
from tests.simulation.clients import EXCLUSIVE, FAILOVER, WALL_EPOCH_MS, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from tests.simulation.world import World

Command = pb.BaseCommand
TIMED = "persistent://public/default/timed"
_MILLISECONDS_S = 0.002
_UNDER_WAY = float("inf")


class Seeks:
    """The seeks of one subscription."""

    def __init__(self, topic: TopicHistory, subscription: SubscriptionHistory) -> None:
        self.topic, self.subscription = topic, subscription
        self.sought: tuple[int, float, int] | None = None
        """(time that the last seek named, when it was answered, epoch of the subscription); None: not known."""
        self._last: tuple[int, int] = EARLIEST
        """The last position that had a receipt when the last seek was sent."""
        self.are_over = False
        self._before: tuple[object, ...] = ()
        self._count = 0

    def begins(self) -> int:
        """A seek begins; the state of the subscription is unknown until its answer. Return the number of the seek."""
        self.subscription.moves += 1
        self.subscription.seeks += 1
        self.sought = None
        self._count += 1
        self._before = self._others()
        self._last = max(self.topic.receipts, default=EARLIEST)
        return self._count

    def _others(self) -> tuple[object, ...]:
        """Other changes of the state, which may come before or behind the seek."""
        known = self.subscription
        return known.epoch, known.moves, known.acked_up_to, tuple(known.expiries), len(known.evicted)

    def ends(self, number: int, time_ms: int | None, now_s: float) -> None:
        """The seek was answered; None: its outcome is unknown."""
        known = self.subscription
        alone = self._count == number and self._others() == self._before and _UNDER_WAY not in known.expiries
        alone = alone and known.moves == 1 and known.exists
        known.moves -= 1
        if time_ms is None or not alone:
            known.moved = True
            return
        known.moved = False
        known.sure.clear()
        known.sure_up_to.clear()
        if self.topic.keeps_all:  # else the log may have dropped the entries that were acknowledged
            known.acked.clear()
            known.evicted.clear()
            known.acked_up_to = (-1, -1)
        else:
            known.passed_s = max(known.passed_s, *known.expiries, -1.0)
        known.expiries[:] = [-1.0 for _ in known.expiries]
        known.expiries.append((time_ms - WALL_EPOCH_MS) / 1000 + _MILLISECONDS_S)
        self.sought = time_ms, now_s, known.epoch

    def check(self, name: str, place: Position, stamp_ms: int, written_s: float) -> None:
        """A consumer gets the message at this position, with this stamp."""
        known = self.subscription
        if self.sought is None or known.moved or known.moves:
            return
        time_ms, since_s, epoch = self.sought
        if epoch == known.epoch and written_s > since_s and stamp_ms < time_ms and place <= self._last:
            raise ViolationError(f"{name}: a message of {stamp_ms} comes behind a seek to {time_ms}")


class TimedProducer(SimProducer):
    """Every SEND names messages: the broker stamps no entry without messages, so that the time of its producer counts,
    which is long past where the entry was sent again.
    """

    counts = (1, 1, 1, 3, 5, 1)


class Seeker(SimConsumer):
    """The only consumer of its subscription, which seeks by time."""

    def __init__(self, world: World, name: str, seeks: Seeks, sub_type: int) -> None:
        super().__init__(world, name, seeks.topic, seeks.subscription, sub_type)
        self._seeks = seeks
        self._number = 0
        """The seek under way; 0: none."""
        self._request = 0

    def _subscribed(self, begins: bool, epoch: int) -> None:
        super()._subscribed(begins, epoch)
        self.later(self.chance.expovariate(0.5), self._seek)

    def _seek(self) -> None:
        if not self.subscription.exists or self._seeks.are_over:
            return
        time_ms = any_time(self.world, self.chance)
        self.note(f"seeks-time {time_ms - WALL_EPOCH_MS}")
        self._number = self._seeks.begins()
        self._waiting.clear()  # late answers to acknowledgements have no meaning
        self.ready = False
        command = pb.CommandSeek(consumer_id=1, message_publish_time=time_ms)
        self._ask(Command.SEEK, "seek", command, lambda: self._over_with(time_ms))
        self._request = command.request_id

    def _over_with(self, time_ms: int | None) -> None:
        number, self._number = self._number, 0
        self._seeks.ends(number, time_ms, self.written_s)
        self.note("sought" if time_ms is not None else "not-sought")
        self.drop()

    def ended(self) -> None:
        super().ended()
        if self._number:
            number, self._number = self._number, 0
            self._seeks.ends(number, None, self.world.now_s)

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if self._number and command.type == Command.CLOSE_CONSUMER:
            return  # the answer follows
        if self._number and command.type == Command.ERROR and command.error.request_id == self._request:
            self._over_with(None)
            return
        if not self._number or command.type != Command.MESSAGE:
            super().on(command, payload)

    def _on_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        super()._on_message(message, payload)
        found = parse_entry_metadata(payload) if after_prefix(payload) else None
        if found is not None and found.broker_timestamp is not None:
            place = Position(message.message_id.ledgerId, message.message_id.entryId)
            self._seeks.check(self.name, place, found.broker_timestamp, self.written_s)


def any_time(world: World, chance: object) -> int:
    """A time between the begin of the history and a moment ahead."""
    return WALL_EPOCH_MS + round(chance.uniform(0.0, world.now_s * 1.05) * 1000)  # type: ignore[attr-defined]


class Times(Part):
    """One topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("times")
        self._seeks: dict[str, Seeks] = {}

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(TIMED, plan.keeps_all, plan.deduplicates)
        world.history.topics[TIMED] = topic
        world.producers += [TimedProducer(world, f"timer{n}", topic) for n in range(2)]
        for name in ("a", "b"):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            seeks = self._seeks[name] = Seeks(topic, own)
            kind = self._chance.choice([EXCLUSIVE, FAILOVER])
            world.consumers.append(Seeker(world, f"timed-{name}", seeks, kind))

    def act(self) -> None:
        """An administrator unloads the topic, or resets a subscription to a time."""
        broker, web = self.world.broker, self.world.web
        if broker is not None and self._chance.random() < 0.5:
            self.world.note("unloads timed")
            admin = DirectAdmin(broker)
            admin.spawn(admin.look(self._topic, "unload"))
        name = self._chance.choice(sorted(self._seeks))
        if web is not None and not web.closed and self._seeks[name].subscription.exists and self._chance.random() < 0.7:
            web.spawn(self._reset(name, self._seeks[name]))

    def calm(self) -> None:
        """No more seeks, so that consumers acknowledge the backlog."""
        for seeks in self._seeks.values():
            seeks.are_over = True

    async def _reset(self, name: str, seeks: Seeks) -> None:
        time_ms, status = any_time(self.world, self._chance), 0
        path = f"/admin/v2/persistent/public/default/timed/subscription/{name}/resetcursor/{time_ms}"
        number = seeks.begins()
        try:
            status, _ = await HttpAdmin(self.world, self._chance).request("POST", path, b"")
        finally:
            seeks.ends(number, time_ms if status in (200, 204) else None, self.world.now_s)
