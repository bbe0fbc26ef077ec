"""Delayed messages whose delivery administrators cancel, over HTTP; their promises.

Behind an answered cancellation no consumer of a Shared or Key_Shared subscription gets the message, whatever process
serves it, whether the subscription existed at that time, and wherever its cursor is set back to. A refused cancellation
has no effect: each subscription still owes the message. An existing subscription of any type owes a cancelled message no
more, as if a consumer had acknowledged it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.position import Position
from tests.simulation.admins import DirectAdmin, HttpAdmin
from tests.simulation.clients import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from magnetar.protocol import pulsar_api_pb2 as pb
    from tests.simulation.world import World

CANCELLED = "persistent://public/default/cancelled"
_PATH = "/admin/v2/persistent/public/default/cancelled/delayedMessages/ledger/{}/entry/{}"
_DONE = (200, 204)
_REFUSED = 409
_NEWEST = 40
"""Administrators choose among so many of the newest receipts."""


class DelayingProducer(SimProducer):
    """Most messages wait for some time."""

    def metadata(self, metadata: pb.MessageMetadata) -> None:
        if self.chance.random() < 0.7:
            metadata.deliver_at_time = self.world.now_ms + self.chance.choice([2000, 5000, 12_000, 40_000])


class Cancellations:
    """The requests to cancel messages of one topic, by their answers."""

    def __init__(self, topic: TopicHistory) -> None:
        self.topic = topic
        self.sure: dict[Position, float] = {}
        """Position -> when the first cancellation was answered."""
        self._open: dict[Position, int] = {}
        """Requests for the position that are under way, or whose outcome is unknown."""

    def begins(self, place: Position) -> None:
        self._open[place] = self._open.get(place, 0) + 1
        self.topic.cancelled.add(place)

    def ends(self, place: Position, existing: dict[str, tuple[int, int]], *, done: bool | None, now_s: float) -> None:
        """The request was answered; ``done`` None: its outcome is unknown. ``existing``: the state of each subscription
        when the request began.
        """
        if done is None:
            return
        self._open[place] -= 1
        if done:
            self.sure.setdefault(place, now_s)
            for subscription in self.topic.subscriptions.values():
                state = state_of(subscription)
                if state is not None and existing.get(subscription.name) == state and not subscription.moved:
                    subscription.sure.setdefault(place, now_s)
        elif not self._open[place] and place not in self.sure:
            self.topic.cancelled.discard(place)

    def check(self, name: str, place: Position, written_s: float) -> None:
        """A consumer of messages with delays gets the message at this position."""
        if self.sure.get(place, written_s) < written_s:
            raise ViolationError(f"{name}: {place} comes behind its cancellation")


def state_of(subscription: SubscriptionHistory) -> tuple[int, int] | None:
    """(epoch, moves) of a subscription that exists; a cancellation beside other changes says nothing about it."""
    return (subscription.epoch, subscription.moves) if subscription.exists else None


class CancelledConsumer(SimConsumer):
    """A consumer that gets no cancelled message."""

    def __init__(
        self,
        world: World,
        name: str,
        subscription: SubscriptionHistory,
        kind: int,
        book: Cancellations,
    ) -> None:
        super().__init__(world, name, book.topic, subscription, kind)
        self._book = book

    def _on_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        super()._on_message(message, payload)
        if self.sub_type in (SHARED, KEY_SHARED):
            place = Position(message.message_id.ledgerId, message.message_id.entryId)
            self._book.check(self.name, place, self.written_s)


class Cancels(Part):
    """One topic with subscriptions of several types."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("cancels")
        self._calm = False

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        self._topic = topic = TopicHistory(CANCELLED, plan.keeps_all, plan.deduplicates)
        world.history.topics[CANCELLED] = topic
        self._book = Cancellations(topic)
        world.producers += [DelayingProducer(world, f"delayer{n}", topic) for n in range(self._chance.choice([1, 2]))]
        for name, kinds in (("a", [SHARED]), ("b", [KEY_SHARED, SHARED]), ("c", [EXCLUSIVE, FAILOVER])):
            own, kind = topic.subscriptions.setdefault(name, SubscriptionHistory(name)), self._chance.choice(kinds)
            for n in range(1 if kind == EXCLUSIVE else self._chance.choice([1, 2])):
                world.consumers.append(CancelledConsumer(world, f"cancelled-{name}{n}", own, kind, self._book))

    # --- administrators

    def act(self) -> None:
        """Cancel some messages; now and then unload the topic, or delete or set back a subscription."""
        kind = self._chance.choice(["cancel", "cancel", "cancel", "cancel", "unload", "delete", "reset"])
        broker, topic = self.world.broker, self._topic
        if kind == "cancel":
            for _ in range(self._chance.randint(2, 6)):
                delay_s = self._chance.choice([0.0, 0.5]) * self._chance.random()
                self.world.timers.after(delay_s, self._cancel)
        elif broker is not None:
            admin, faults = DirectAdmin(broker), self.world.faults
            own = self._chance.choice(list(topic.subscriptions.values()))
            if kind == "unload":
                admin.spawn(admin.look(topic, "unload"))
            elif kind == "delete":
                admin.spawn(faults._delete(admin, topic, own))
            else:
                admin.spawn(faults._move("reset", admin, topic, own))

    def _cancel(self) -> None:
        web, now_ms = self.world.web, self.world.now_ms
        newest = sorted(self._topic.receipts)[-_NEWEST:]
        waiting = [place for place in newest if self._topic.receipts[place].deliver_at_ms > now_ms]
        places = waiting if waiting and self._chance.random() < 0.9 else newest
        if places and not self._calm and web is not None and not web.closed:
            web.spawn(self._cancels(self._chance.choice(places)))

    async def _cancels(self, place: Position) -> None:
        existing = {own.name: state for own in self._topic.subscriptions.values() if (state := state_of(own))}
        self._book.begins(place)
        done: bool | None = None
        try:
            path = _PATH.format(*place)
            status, _ = await HttpAdmin(self.world, self._chance).request("DELETE", path, b"")
            done = True if status in _DONE else False if status == _REFUSED else None
        finally:
            self._book.ends(place, existing, done=done, now_s=self.world.now_s)

    def calm(self) -> None:
        self._calm = True
