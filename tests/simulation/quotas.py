"""Backlog quotas, and their promises: entries are evicted, and producers refused, only at the limit and as the policy says.

A model of its own computes the largest backlog that a subscription may have from SENDs and receipts; an eviction takes no
greater share of the entries than brings the largest backlog down to nine tenths of the quota. The precise quota by age
finds its last old entry by bisection, as Apache Pulsar 4.2 does: a younger entry goes along with an old entry behind,
which has the stamp of its producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.broker.compaction.topic_compaction import COMPACTION_CURSOR
from magnetar.storage.position import EARLIEST
from tests.simulation.history import ViolationError
from tests.simulation.parts import Part

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.topics.topic import Topic
    from magnetar.storage.position import Position
    from tests.simulation.clients import Client
    from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory
    from tests.simulation.world import World

HOLDS, REFUSES, EVICTS = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
EVICTED = "backlog_quota.evicted"
REFUSALS = {7: HOLDS, 8: REFUSES}
"""Code of an ERROR -> the policy that explains it."""
_STAMPS_BYTES = 64
"""At least the bytes that the broker adds to an entry."""
_EVICT_TO = 0.9
_MILLISECONDS_S = 0.002
_COMPACTS_EVERY_S, _COMPACTS_S = 4.0, 400.0
_IN_FLIGHT = 3
_SAVED_WITHIN_S = 20.0
"""An eviction is in the log when it is on the disk, which may have stood still."""


class Quotas(Part):
    """Watches the topics of the world."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        settings = world.plan.settings
        self._policy = settings["backlog_quota_default_retention_policy"]
        self._most_bytes = settings["backlog_quota_default_limit_bytes"]
        self._most_s = settings["backlog_quota_default_limit_second"]
        self._is_precise = settings["precise_time_based_backlog_quota_check"]
        self._marks: dict[tuple[str, str], tuple[object, int, Position]] = {}
        """(topic, subscription) -> its cursor, number of seeks, and mark-delete position at the last check."""
        self._seen: dict[str, tuple[float, Topic, Position]] = {}
        """Topic -> time of the last check, the loaded topic, and the smallest mark-delete position of all cursors."""
        self._changes: dict[str, list[object]] = {}
        """Topic -> the changes of its subscriptions before the last check that may set a mark-delete position back."""
        self._past: dict[str, list[tuple[float, Position]]] = {}
        """Topic -> smallest mark-delete position at each check since the last such change or load."""
        self._told: tuple[list[Any], int] = ([], 0)
        """The log of the present process, and how many of its entries earlier checks have read."""

    def check(self, broker: Broker) -> None:
        self._check_evictions()
        for name, known in self.world.history.topics.items():
            topic = broker.topics.loaded.get(name)
            if topic is None or not topic.is_open:
                continue
            marks = [EARLIEST]
            for found in topic.subscriptions.durable():
                cursor = found.cursor
                subscription = known.subscriptions.get(found.name)
                seeks = 0 if subscription is None else subscription.seeks
                *before, mark_delete = self._marks.get((name, found.name), (None, 0, EARLIEST))
                self._marks[name, found.name] = cursor, seeks, cursor.mark_delete
                marks.append(cursor.mark_delete)
                if subscription is not None and self._policy == EVICTS:
                    behind = mark_delete if before == [cursor, seeks] else EARLIEST
                    self._find_evicted(known, subscription, topic, behind, self.world.now_s)
            if (
                self._changes.get(name) != _changes(known)
                or self._seen.get(name, (0.0, None, EARLIEST))[1] is not topic
            ):
                self._past[name] = [(self.world.now_s, EARLIEST)]
            self._changes[name] = _changes(known)
            self._past.setdefault(name, []).append((self.world.now_s, min(marks[1:], default=EARLIEST)))
            slowest = topic.backlog.slowest()
            self._seen[name] = self.world.now_s, topic, EARLIEST if slowest is None else slowest.mark_delete

    def restored(self, broker: Broker, topics: dict[str, TopicHistory], taken_s: float) -> None:
        """Find the evictions in an image: checks before the image see no topic that is not loaded."""
        for name, known in topics.items() if self._policy == EVICTS else ():
            topic = broker.topics.loaded.get(name)
            for found in () if topic is None else topic.subscriptions.durable():
                subscription = known.subscriptions.get(found.name)
                if subscription is not None:
                    self._find_evicted(known, subscription, topic, EARLIEST, taken_s)

    def _find_evicted(
        self, known: TopicHistory, subscription: SubscriptionHistory, topic: Topic, before: Position, now_s: float
    ) -> None:
        """Find the entries that a quota explains; the checker objects to others. The log may have dropped evicted entries
        before a power loss that sets the cursor back. Of an ACK that a crash loses, the eviction may have taken a part.
        """
        by_size = 0 <= self._most_bytes <= self._backlog_bytes(known, before)
        old_up_to = EARLIEST
        if self._is_precise:
            old_up_to = known.unstamped_up_to(lambda each: self._is_old(each, self._most_s * _EVICT_TO, now_s))
        mark_delete = topic.subscriptions.by_name[subscription.name].cursor.mark_delete
        for place, entry in known.receipts.items():
            if place > mark_delete and topic.ledger.is_valid(place):
                continue
            if by_size or place <= old_up_to or self._is_old(entry, self._most_s * _EVICT_TO, now_s):
                subscription.evicted.add(place)

    def _check_evictions(self) -> None:
        """Check the evictions by size since the last check, by their lines in the log."""
        logs, world = self.world.logs, self.world
        told = self._told[1] if self._told[0] is logs and self._told[1] <= len(logs) else 0
        self._told = logs, len(logs)
        for line in logs[told:]:
            if line["event"] != EVICTED or (known := world.history.topics.get(line["topic"])) is None:
                continue
            most = self._most_evicted(known)
            world.note(f"evicts {line['entries']} of at most {most:.1f}")
            if line["entries"] > most:
                raise ViolationError(
                    f"{known.name}: a quota evicts {line['entries']} entries, at most {most:.1f} have to go"
                )

    def _most_evicted(self, known: TopicHistory) -> float:
        """The most entries that an eviction by size may have taken that is in the log since the last check, which may
        have waited for the disk: the share grows with the backlog, in entries and in bytes.
        """
        _, topic, _ = self._seen.get(known.name, (0.0, None, EARLIEST))
        since_s = self.world.now_s - _SAVED_WITHIN_S
        mark = min((each for at_s, each in self._past.get(known.name, ()) if at_s >= since_s), default=EARLIEST)
        broker = self.world.broker
        same = broker is not None and broker.topics.loaded.get(known.name) is topic
        if not same or self._changes.get(known.name) != _changes(known):
            mark = EARLIEST
        entries = sum(e.copies for e in known.by_body.values() if e.position is None or e.position[0] >= mark.ledger_id)
        size = max(1, self._backlog_bytes(known, mark))
        return entries * max(0.0, 1 - self._most_bytes * _EVICT_TO / size)

    def _is_old(self, entry: Sent, seconds: float, now_s: float) -> bool:
        return self._most_s > 0 and now_s - entry.sent_s + _MILLISECONDS_S >= seconds

    def _backlog_bytes(self, known: TopicHistory, behind: Position) -> int:
        """The most bytes that the broker may count behind a mark-delete position: in its ledger and later ledgers."""
        return sum(
            entry.copies * (len(entry.body) + _STAMPS_BYTES)
            for entry in known.by_body.values()
            if entry.position is None or entry.position[0] >= behind.ledger_id
        )

    def refused(self, client: Client, code: int) -> None:
        if code not in REFUSALS:
            return
        known = client.topic
        self.world.note(f"over-quota {client.name}")
        if REFUSALS[code] != self._policy:
            raise ViolationError(f"{known.name}: refused as for {REFUSALS[code]}")
        seen_s, topic, mark = self._seen.get(known.name, (0.0, None, EARLIEST))
        broker = self.world.broker
        same = broker is not None and broker.topics.loaded.get(known.name) is topic and seen_s < client.written_s
        if not same or any(each.moved or each.moves for each in known.subscriptions.values()):
            mark = EARLIEST
        by_size = 0 <= self._most_bytes <= self._backlog_bytes(known, mark)
        if not by_size and not any(
            self._is_old(entry, self._most_s, self.world.now_s) for entry in known.by_body.values()
        ):
            raise ViolationError(f"{known.name}: a producer is refused below the quota")

    def calm(self) -> None:
        """Consumers acknowledge all messages from now on, so that no quota holds producers for ever."""
        for consumer in self.world.consumers:
            consumer.acknowledges = 1.0
            consumer.drop()
        if self._policy in (HOLDS, REFUSES):
            for producer in self.world.producers:  # on a slow disk the next check comes before the receipts of many
                producer.in_flight = _IN_FLIGHT
                producer.drop()
            self._compact_until(self.world.now_s + _COMPACTS_S)

    def _compact_until(self, end_s: float) -> None:
        """Compact the topics that have been compacted: the backlog of the compaction counts against a quota as well."""
        broker, world = self.world.broker, self.world
        for topic in () if broker is None else broker.topics.loaded.values():
            if topic.persistent and topic.is_open and COMPACTION_CURSOR in topic.ledger.cursors:
                topic.compaction.start()
        if world.now_s < end_s:
            world.timers.after(_COMPACTS_EVERY_S, lambda: self._compact_until(end_s))


def _changes(known: TopicHistory) -> list[object]:
    """Deletions and creations of the subscriptions, and moves of their cursors."""
    return [(each.name, each.requested, each.moved, each.state) for each in known.subscriptions.values()]
