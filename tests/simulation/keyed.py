"""Consumers of Key_Shared that come and go, and their promises.

A consumer gets an entry of a key only when each earlier entry of the key was acknowledged, or came to this consumer over
the same connection. With STICKY a consumer gets the keys of its own hash ranges alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.key_hash import murmur3_32
from magnetar.storage.position import Position
from tests.simulation.checker import may_be_skipped
from tests.simulation.clients import KEY_SHARED, SimConsumer, SimProducer
from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from tests.simulation.world import World

Command = pb.BaseCommand
KEYED = "persistent://public/default/keyed"
HASHES = 65536
_PIECES = 8


class KeyedProducer(SimProducer):
    """A delayed message may be overtaken, so none of these is delayed."""

    def metadata(self, metadata: pb.MessageMetadata) -> None:
        metadata.ClearField("deliver_at_time")


class KeyConsumer(SimConsumer):
    """Joins, and leaves after a while; with STICKY each time with other ranges."""

    def __init__(
        self,
        world: World,
        name: str,
        topic: TopicHistory,
        subscription: SubscriptionHistory,
        tried: dict[Position, float],
        *,
        sticky: bool,
    ) -> None:
        super().__init__(world, name, topic, subscription, KEY_SHARED)
        self._tried = tried
        """When a consumer of the subscription sent its first acknowledgement of the entry."""
        self._sticky = sticky
        self._got: set[Position] = set()
        self._range = (0, HASHES - 1)
        self.stays = False
        """Whether the consumer serves all hashes until the end."""

    def subscribes(self, command: pb.CommandSubscribe) -> None:
        meta = command.keySharedMeta
        meta.keySharedMode = pb.STICKY if self._sticky else pb.AUTO_SPLIT
        if self._sticky and self.stays:
            self._range = (0, HASHES - 1)
        elif self._sticky:
            size = HASHES // _PIECES
            first, pieces = self.chance.randrange(_PIECES), self.chance.choice([1, 2, 4])
            self._range = first * size, min(first + pieces, _PIECES) * size - 1
        if self._sticky:
            meta.hashRanges.add(start=self._range[0], end=self._range[1])

    def _subscribed(self, begins: bool, epoch: int) -> None:
        self._got.clear()
        super()._subscribed(begins, epoch)
        if not self.stays:
            self.later(self.chance.expovariate(0.6), self._leave)

    def _leave(self) -> None:
        self.note("leaves")
        if self.chance.random() < 0.5:
            self.command(Command.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=0))
        self.drop()

    def _on_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        super()._on_message(message, payload)
        position = Position(message.message_id.ledgerId, message.message_id.entryId)
        entry = self.topic.by_body[self.taken[position]]
        key_hash = murmur3_32(entry.key.encode()) % HASHES or 1
        if self._sticky and not self._range[0] <= key_hash <= self._range[1]:
            raise ViolationError(f"{self.name}: {position} has the hash {key_hash}, the range is {self._range}")
        self._got.add(position)
        if self._overtaken(position, entry) and self._evictions_are_known():
            overtaken = self._overtaken(position, entry)
            if overtaken:
                raise ViolationError(f"{self.name}: {position} of key {entry.key} overtakes {overtaken}")

    def _evictions_are_known(self) -> bool:
        """Have the models note the entries that the broker dropped since their last check; False without a broker."""
        broker = self.world.broker
        for part in self.world.parts if broker is not None else ():
            part.check(broker)  # type: ignore[arg-type]
        return broker is not None

    def _overtaken(self, position: Position, entry: Sent) -> list[Position]:
        """Earlier entries of the key that another consumer holds, or that wait for a consumer."""
        subscription, damage = self.subscription, self.world.damage
        if subscription.moved or subscription.moves:
            return []
        return [
            place
            for place, other in self.topic.receipts.items()
            if place < position
            and other.key == entry.key
            and place not in self._got
            and self._tried.get(place, self.written_s + 1) > self.written_s
            and place > subscription.acked_up_to
            and other.position == place
            and subscription.owes(other)
            and not may_be_skipped(self.topic, subscription, place, self.world.clock)
            and not damage.lies_on(self.topic, other)
        ]

    def _ack(self, position: tuple[int, int], *, cumulative: bool) -> None:
        self._tried.setdefault(Position(*position), self.world.now_s)
        super()._ack(position, cumulative=cumulative)


class Keyed(Part):
    """One topic; subscription a splits the hashes automatically, b has consumers with ranges."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("keyed")
        self._consumers: list[KeyConsumer] = []

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        topic = TopicHistory(KEYED, plan.keeps_all, plan.deduplicates)
        world.history.topics[KEYED] = topic
        world.producers += [KeyedProducer(world, f"keyer{n}", topic) for n in range(2)]
        for name, sticky in (("a", False), ("b", True)):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            tried: dict[Position, float] = {}
            self._consumers += [
                KeyConsumer(world, f"keyed-{name}{n}", topic, own, tried, sticky=sticky)
                for n in range(self._chance.choice([2, 3]))
            ]
        world.consumers += self._consumers

    def act(self) -> None:
        """Some consumers leave at once."""
        for consumer in self._chance.sample(self._consumers, 2):
            consumer.drop()

    def calm(self) -> None:
        """One consumer of each subscription stays, so that no backlog holds a producer for ever."""
        for consumer in self._consumers:
            consumer.stays = consumer.name.endswith("0")
            if consumer.stays:
                consumer.drop()
            else:
                consumer.stop()
