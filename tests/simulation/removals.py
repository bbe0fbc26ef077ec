"""Messages that go by a policy: message TTL, retention by time and by size, truncation; the promises beside a wall clock
that is set, ends of the process and slow readers.

No message goes that no policy lets go. A message with a receipt is in the log while retention keeps it, or while a
durable subscription owes it; a subscription owes a message until its TTL. A truncation takes the messages that were
sent before its end, and
none of them comes again behind its answer. A reader that goes on behind its last message leaves out no message that is
not allowed to go, and with deduplication no message is stored twice though the log has dropped the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.metadata import parse_entry_metadata
from magnetar.protocol.speed import after_prefix
from magnetar.storage.position import EARLIEST, Position
from tests.simulation.admins import DirectAdmin, HttpAdmin
from tests.simulation.checker import earliest_stamp_s, may_be_skipped
from tests.simulation.clients import EXCLUSIVE, FAILOVER, SHARED, Client, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.broker.broker import Broker
    from tests.simulation.world import World

Command = pb.BaseCommand
REMOVED = "persistent://public/default/removed"
_MINUTE_S = 60
_MEGABYTE = 1 << 20
_STAMPS_BYTES = 64
"""At least the bytes that the broker adds to an entry."""
_MILLISECONDS_S = 0.002
_QUIET_S = 5.0
_NEVER_S = float("-inf")


class SteadyReader(Client):
    """Reads on from the first message, or from the first behind its last message when its connection has ended."""

    def __init__(self, world: World, name: str, topic: TopicHistory, removals: Removals) -> None:
        super().__init__(world, name, topic)
        self.found: set[Position] = set()
        self.last = self._start = EARLIEST
        self._removals = removals
        self._slow = self.chance.random() < 0.7

    def connected(self) -> None:
        self._start = self.last
        self.note(f"reads-on {self.last[0]}:{self.last[1]}")
        self.send(requests.reader(1, 1, self.topic.name, self.name, {}, after=self.last))

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.SUCCESS:
            self.ready = True
            self._flow(2 if self._slow else 1000)
        elif command.type == Command.MESSAGE:
            self._on_message(Position(command.message.message_id.ledgerId, command.message.message_id.entryId), payload)
            if self._slow:
                self.later(self.chance.expovariate(2), lambda: self._flow(5))
            else:
                self._flow(5)
        elif command.type in (Command.ERROR, Command.CLOSE_CONSUMER):
            self.drop()

    def _flow(self, permits: int) -> None:
        self.command(Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=permits))

    def _on_message(self, position: Position, payload: bytes) -> None:
        prefix = after_prefix(payload)
        metadata = parse_entry_metadata(payload) if prefix else None
        self.topic.got(position, payload[prefix:], None if metadata is None else metadata.index)
        if position == self._start:
            return  # a reader begins with the message from which it goes on, which official clients drop
        if position <= self.last:
            raise ViolationError(f"{self.name}: {position} behind {self.last}")
        self._removals.check_gone(
            self.topic, (place for place in self.topic.receipts if self.last < place < position), self.name
        )
        self.last = position
        self.found.add(position)


class Removals(Part):
    """Watches the topics of the world, and truncates them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        settings = world.plan.settings
        self._chance = world.chance_for("removals")
        self._keeps_s = settings["default_retention_time_in_minutes"] * _MINUTE_S
        self._keeps_bytes = settings["default_retention_size_in_mb"] * _MEGABYTE
        self._ttl_s = settings["ttl_duration_default_in_seconds"]
        self._readers: list[SteadyReader] = []
        self._read = (-1, 0.0)
        """How many messages the last readers have, and since when."""
        self._expired: dict[SubscriptionHistory, tuple[int, float]] = {}
        """Subscription -> the place of TTL among its expiries, and the time of the last check."""
        self._under_way: dict[str, int] = {}
        """Topic -> its truncations under way."""
        self._truncated_s: dict[str, float] = {}
        """Topic -> the end of its last truncation."""

    def populate(self) -> None:
        plan, world, chance = self.world.plan, self.world, self._chance
        topic = world.history.topics[REMOVED] = TopicHistory(REMOVED, keeps_all=False, deduplicates=plan.deduplicates)
        world.producers += [SimProducer(world, f"removed{n}", topic) for n in range(chance.choice([1, 2]))]
        topic.subscriptions["a"] = SubscriptionHistory("a")  # perhaps without a consumer
        for name in chance.choice(["", "a", "ab"]):
            own = topic.subscriptions.setdefault(name, SubscriptionHistory(name))
            consumer = SimConsumer(world, f"removed-{name}", topic, own, chance.choice([EXCLUSIVE, SHARED, FAILOVER]))
            consumer.acknowledges = chance.choice([0.1, 0.5, 0.98])
            world.consumers.append(consumer)
        for known in world.history.topics.values():
            self._readers += [
                SteadyReader(world, f"{known.name[-3:]}-steady{n}", known, self) for n in range(chance.choice([1, 2]))
            ]
        for reader in self._readers:
            reader.start()

    # --- administrators

    def act(self) -> None:
        known = self._chance.choice(list(self.world.history.topics.values()))
        kind = self._chance.choice(["truncate", "truncate", "trim", "unload"])
        assert self.world.broker is not None
        admin: Any = DirectAdmin(self.world.broker)
        if self._chance.random() < 0.5:
            if self.world.web is None or self.world.web.closed:
                return
            admin = HttpAdmin(self.world, self._chance)
        admin.spawn(self._truncate(admin, known) if kind == "truncate" else admin.look(known, kind))

    async def _truncate(self, admin: Any, known: TopicHistory) -> None:
        """Truncate the topic. With the answer each subscription has acknowledged the messages with earlier receipts."""
        self.world.note(f"truncates {known.name}")
        last = max(known.receipts, default=EARLIEST)
        before = {each.name: each.state for each in known.subscriptions.values() if each.exists and not each.moved}
        self._under_way[known.name] = self._under_way.get(known.name, 0) + 1
        done = False
        try:
            done = await admin.truncate(known)
        finally:
            self._under_way[known.name] -= 1
            self._truncated_s[known.name] = self.world.now_s
            self._expects(known)
            if done:
                self.world.note(f"truncated {known.name} up to {last[0]}:{last[1]}")
                for subscription in known.subscriptions.values():
                    if before.get(subscription.name) == subscription.state and not subscription.moved:
                        self._surely_acked(subscription, last)

    def _surely_acked(self, subscription: SubscriptionHistory, last: Position) -> None:
        sure = subscription.sure_up_to
        if last > EARLIEST and (not sure or last > sure[-1][0]):
            sure.append((last, self.world.now_s))

    # --- the model

    def _may_be_truncated(self, known: TopicHistory, sent_s: float) -> bool:
        return bool(self._under_way.get(known.name)) or sent_s <= self._truncated_s.get(known.name, _NEVER_S)

    def _expects(self, known: TopicHistory) -> None:
        """Note the messages that TTL and truncations may have taken from the subscriptions until now."""
        now_s = self.world.now_s
        truncated = {place for place, entry in known.receipts.items() if self._may_be_truncated(known, entry.sent_s)}
        for subscription in known.subscriptions.values():
            subscription.evicted |= truncated
            if self._ttl_s:
                number, since_s = self._expired.setdefault(subscription, (len(subscription.expiries), 0.0))
                subscription.expiries += [_NEVER_S] * (number == len(subscription.expiries))
                latest_s = now_s + self.world.clock.ahead_since(since_s)[1] - self._ttl_s
                subscription.expiries[number] = max(subscription.expiries[number], latest_s)
                self._expired[subscription] = number, now_s

    def check_gone(self, known: TopicHistory, places: Iterable[Position], misses: str) -> None:
        """Check that these messages may have gone, which a reader or the log misses."""
        missing = list(places)
        if missing:
            self._expects(known)
        for place in missing:
            if why := self._is_kept(known, place):
                raise ViolationError(f"{known.name}: {misses} misses {place}, {why}")

    def _is_kept(self, known: TopicHistory, place: Position) -> str:
        """The reason for which the message has to be there; empty where it may have gone."""
        entry, clock = known.receipts[place], self.world.clock
        if self._may_be_truncated(known, entry.sent_s) or self.world.damage.hit(known, entry):
            return ""
        for subscription in known.subscriptions.values():
            if (
                subscription.owes(entry)
                and entry.position == place
                and not (subscription.moved or subscription.moves or subscription.may_be_acked(place))
                and not may_be_skipped(known, subscription, place, clock)
            ):
                return f"which {subscription.name} owes"
        if self._is_expired(known, place) or self._is_over_quota(known, place):
            return ""
        return "which retention keeps"

    def _is_expired(self, known: TopicHistory, place: Position) -> bool:
        """Whether retention by time may have let the ledger go: it was closed behind its last message."""
        if self._keeps_s < 0:
            return False
        last = max(
            (entry for each, entry in known.receipts.items() if each.ledger_id == place.ledger_id),
            key=lambda entry: entry.sent_s,
        )
        ahead_s = self.world.clock.ahead_since(last.sent_s)[1]
        age_s = self.world.now_s + ahead_s - earliest_stamp_s(last, self.world.clock)
        return age_s + _MILLISECONDS_S > self._keeps_s

    def _is_over_quota(self, known: TopicHistory, place: Position) -> bool:
        """Whether retention by size may have let the ledger go: by the most bytes behind."""
        if self._keeps_bytes < 0:
            return False
        behind = sum(
            entry.copies * (len(entry.body) + _STAMPS_BYTES)
            for entry in known.by_body.values()
            if entry.position is None or entry.copies > 1 or entry.position.ledger_id > place.ledger_id
        )
        return behind >= self._keeps_bytes

    # --- checks

    def check(self, broker: Broker) -> None:
        for name, known in self.world.history.topics.items():
            self._expects(known)
            topic = broker.topics.loaded.get(name)
            if topic is not None and topic.is_open:
                is_valid = topic.ledger.is_valid
                self.check_gone(known, [place for place in known.receipts if not is_valid(place)], "the log")
            self._check_once(known)

    def _check_once(self, known: TopicHistory) -> None:
        """Check that deduplication stored no message twice that a client has seen."""
        if not known.deduplicates or self.world.damage.done or len(set(known.seen.values())) == len(known.seen):
            return
        first: dict[bytes, Position] = {}
        for place, body in known.seen.items():
            if first.setdefault(body, place) != place:
                raise ViolationError(f"{known.name}: {first[body]} is stored twice, also at {place}")

    def process_ended(self) -> None:
        self._under_way.clear()

    # --- the end

    def take(self) -> None:
        """The readers go on at once to the end of the log."""
        for reader in self._readers:
            reader._slow = False
            reader.drop()

    def is_quiet(self) -> bool:
        read = sum(len(reader.found) for reader in self._readers)
        if read != self._read[0] or not all(reader.ready for reader in self._readers):
            self._read = read, self.world.now_s
        return self.world.now_s - self._read[1] > _QUIET_S

    def compare(self) -> None:
        for reader in self._readers:
            known = reader.topic
            self.check_gone(known, sorted(set(known.receipts) - reader.found), reader.name)
            reader.stop()
        for known in self.world.history.topics.values():
            for all_of in self.world.readers_of(known.name):
                here = {place for place, _, _ in all_of.found}
                self.check_gone(known, [place for place in sorted(known.receipts) if place not in here], "a reader")
