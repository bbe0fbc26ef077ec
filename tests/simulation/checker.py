"""The promises, checked against a running broker and at the end of a history."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.storage.position import Position
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.network.connection import Connection
    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.topic import Topic
    from tests.simulation.clients import SimReader
    from tests.simulation.damage import Damage
    from tests.simulation.history import Sent
    from tests.simulation.timers import WallClock

LONGEST_HOLD_S = 30.0
"""Virtual seconds for which a reason may hold the reading of a connection, also on a slow disk."""


class Holds:
    """How long each reason has held the reading of a connection: a client of a held connection gets no answer to its
    PING, and keep-alive does not end a connection that is not read.
    """

    def __init__(self) -> None:
        self._since: dict[Connection, dict[str, float]] = {}

    def check(self, broker: Broker, now_s: float) -> None:
        """Check that no hold lasts. Call it again and again: a hold counts that each call has seen."""
        before, self._since = self._since, {}
        for connection in broker.resources.connections:
            known = before.get(connection, {})
            since = self._since[connection] = {each: known.get(each, now_s) for each in connection._read_holds}
            for reason, begin_s in since.items():
                if now_s - begin_s > LONGEST_HOLD_S:
                    raise ViolationError(
                        f"{connection.client_version} was not read for {now_s - begin_s:.1f} s: {reason}"
                    )


def check_running(broker: Broker, history: dict[str, TopicHistory], damage: Damage) -> None:
    """Check the invariants that hold between any two callbacks of the loop. Reads memory only."""
    _check_memory(broker)
    for name, known in history.items():
        topic = broker.topics.loaded.get(name)
        if topic is None or not topic.is_open:
            continue
        _check_durability(topic, known)
        _check_trimmed(topic, known, damage, damage.world.clock)
        for subscription in topic.subscriptions.by_name.values():
            _check_backlog(topic, subscription)
            _check_holders(subscription)


def _check_memory(broker: Broker) -> None:
    budget, cache = broker.resources.publish_budget, broker.stored.stores.cache
    if budget.in_flight_bytes < 0:
        raise ViolationError(f"the account of publishes in flight is {budget.in_flight_bytes} bytes")
    if cache._held_bytes > cache.max_bytes + (1 << 20):
        raise ViolationError(f"the entry cache holds {cache._held_bytes} bytes of {cache.max_bytes}")


def _check_durability(topic: Topic, known: TopicHistory) -> None:
    """Check that every durable subscription still exists and is durable."""
    for subscription in known.subscriptions.values():
        if not subscription.exists:
            continue
        found = topic.subscriptions.by_name.get(subscription.name)
        if found is None:
            raise ViolationError(f"{known.name}: subscription {subscription.name} is lost")
        if not found.durable or topic.ledger.cursors.get(subscription.name) is not found.cursor:
            raise ViolationError(f"{known.name}: subscription {subscription.name} is no longer durable")


def earliest_stamp_s(entry: Sent, clock: WallClock) -> float:
    """The earliest stamp that the entry may have: by the clock of its producer, or that of the broker since its SEND."""
    return entry.sent_s + min(0, clock.ahead_since(entry.sent_s)[0])


def may_be_skipped(known: TopicHistory, subscription: SubscriptionHistory, place: Position, clock: WallClock) -> bool:
    """Whether the broker may have dropped the message itself: for a cancellation, a quota, or by age, where a younger
    message goes along with an old message behind.
    """
    if (
        place in known.cancelled
        or place in subscription.evicted
        or subscription.may_be_expired(earliest_stamp_s(known.receipts[place], clock))
    ):
        return True
    return bool(subscription.expiries) and place <= known.unstamped_up_to(
        lambda entry: subscription.may_be_expired(entry.sent_s)
    )


def _check_trimmed(topic: Topic, known: TopicHistory, damage: Damage, clock: WallClock) -> None:
    """Check that no entry that a subscription still owes to its consumers is acknowledged or dropped."""
    ledger = topic.ledger
    for subscription in known.subscriptions.values():
        found = topic.subscriptions.by_name.get(subscription.name)
        if not subscription.exists or subscription.moved or subscription.moves or found is None:
            continue
        mark_delete, is_deleted = found.cursor.mark_delete, found.cursor.is_deleted
        acked, acked_up_to = subscription.acked, subscription.acked_up_to
        owes, is_valid = subscription.owes, ledger.is_valid
        for place, entry in known.receipts.items():
            if place in acked or place <= acked_up_to or entry.position != place or not owes(entry):
                continue
            if is_valid(place) and not is_deleted(place):
                continue
            if not is_valid(place) and earliest_stamp_s(entry, clock) <= subscription.passed_s:
                continue
            if damage.hit(known, entry) or may_be_skipped(known, subscription, place, clock):
                continue
            if place <= mark_delete or is_deleted(place):
                raise ViolationError(f"{known.name} {subscription.name}: {place} is acknowledged, by no consumer")
            raise ViolationError(f"{known.name} {subscription.name}: {place} was dropped before it was acknowledged")
    if known.keeps_all or known.keeps_s:
        for place, entry in known.receipts.items():
            if not known.keeps_all and damage.world.now_s - entry.sent_s >= known.keeps_s:
                continue
            if not ledger.is_valid(place) and not damage.hit(known, entry):
                raise ViolationError(f"{known.name}: {place} has a receipt and is not there")


def _check_backlog(topic: Topic, subscription: Subscription) -> None:
    cursor = subscription.cursor
    here = {slot.ledger_id for slot in topic.ledger.ledgers}
    if not subscription.durable and any(ledger_id not in here for ledger_id in cursor._acks.deleted):
        return  # a non-durable cursor holds no ledgers: it follows a drop of ledgers when their list is saved
    up_to = cursor.mark_delete
    left = sum(
        not cursor.is_deleted(Position(slot.ledger_id, entry_id))
        for slot in topic.ledger.ledgers
        if slot.ledger_id >= up_to.ledger_id
        for entry_id in range(up_to.entry_id + 1 if slot.ledger_id == up_to.ledger_id else 0, slot.entries)
    )
    if cursor.backlog_entries != left:
        raise ViolationError(
            f"{topic.name} {subscription.name}: a backlog of {cursor.backlog_entries}, {left} are left"
        )


def _check_holders(subscription: Subscription) -> None:
    """Check that no two consumers hold a message, and that no consumer holds an acknowledged message."""
    held: dict[tuple[int, int], object] = {}
    for consumer in subscription.consumers:
        for pending in consumer.pending_acks or ():
            place = (pending.ledger_id, pending.entry_id)
            if held.setdefault(place, consumer) is not consumer:
                raise ViolationError(f"{subscription.name}: {place} is held by two consumers")
            if subscription.cursor.is_deleted(Position(*place)):
                raise ViolationError(f"{subscription.name}: {place} is held and acknowledged")


def check_readable(known: TopicHistory, reader: SimReader, damage: Damage) -> None:
    """The whole topic, read from its start: receipts at their positions, order, a dense index."""
    places = [place for place, _, _ in reader.found]
    if places != sorted(set(places)):
        raise ViolationError(f"{known.name}: a reader got positions out of order or twice")
    if known.gone.intersection(places):
        raise ViolationError(f"{known.name}: {min(known.gone.intersection(places))} is read behind a deletion")
    if known.keeps_all:
        missing = [
            place for place in sorted(set(known.receipts) - set(places)) if not damage.hit(known, known.receipts[place])
        ]
        if missing:
            raise ViolationError(f"{known.name}: {missing} have receipts and are not read")
    _check_index(known, reader.found, damage)
    if known.keeps_all:
        _check_order(known, [entry for _, entry, _ in reader.found], damage)


def _check_index(known: TopicHistory, found: list[tuple[tuple[int, int], Sent, int | None]], damage: Damage) -> None:
    """Check that indexes have no gaps, and that none occurs twice, dropped entries included. A damaged entry at the end
    of its ledger may leave its indexes to the next entry.
    """
    lost = set()
    if damage.costs():
        here = {place for place, _, _ in found}
        seen = {place: known.by_body[known.seen[place]] for place in known.index}  # also those without a receipt
        lost = {place for place, entry in seen.items() if place not in here and damage.lies_on(known, entry)}
    last = -1 if known.keeps_all else None
    before = (-1, -1)
    for place, entry, index in found:
        if not known.keeps_all and place != (before[0], before[1] + 1):
            last = None  # entries before this position were acknowledged and dropped while the reader read
        if damage.costs() and place != (before[0], before[1] + 1):
            last = None  # an entry without receipt may be among the damaged entries
        before = place
        if index is None:
            continue
        if last is not None and index != last + entry.count:
            raise ViolationError(f"{known.name} {place}: index {index} of {entry.count} messages behind {last}")
        last = index
    owner: dict[int, tuple[int, int]] = {}
    here_now = {place for place, _, _ in found}
    for place, index in known.index.items():
        if place in lost or (known.former and place not in here_now):
            continue
        if owner.setdefault(index, place) != place:
            raise ViolationError(f"{known.name}: index {index} at {owner[index]} and at {place}")


def _check_order(known: TopicHistory, found: list[Sent], damage: Damage) -> None:
    """Check the entries of each producer: in the order of their SENDs; with deduplication each once. The first copy of
    an entry that was sent twice may be damaged.
    """
    highest: dict[str, int] = {}
    stored: set[int] = set()
    for entry in found:
        again = id(entry) in stored
        stored.add(id(entry))
        if again and known.deduplicates:
            raise ViolationError(f"{known.name}: {entry.producer} {entry.sequence_id} is stored twice")
        if not again:
            if entry.sequence_id < highest.get(entry.producer, -1) and not damage.hit(known, entry):
                raise ViolationError(
                    f"{known.name}: {entry.producer} {entry.sequence_id} behind {highest[entry.producer]}"
                )
            highest[entry.producer] = entry.sequence_id


def owed(known: TopicHistory, subscription: SubscriptionHistory, damage: Damage) -> list[Position]:
    """The entries with a receipt that the subscription owes and that no consumer has acknowledged, damaged or not."""
    if not subscription.exists or subscription.moved or subscription.moves:
        return []
    clock = damage.world.clock
    return [
        place
        for place, entry in known.receipts.items()
        if entry.position == place
        and subscription.owes(entry)
        and not subscription.may_be_acked(place)
        and not may_be_skipped(known, subscription, place, clock)
    ]


def check_drained(
    known: TopicHistory, subscription: SubscriptionHistory, taken: set[tuple[int, int]], damage: Damage
) -> None:
    """Check a drained subscription: every owed entry was acknowledged or came; ``taken`` are the entries of the last
    consumers.
    """
    for place in owed(known, subscription, damage):
        if place not in taken and not damage.hit(known, known.receipts[place]):
            raise ViolationError(f"{known.name} {subscription.name}: {place} was never delivered")


def check_stopped(loop: asyncio.AbstractEventLoop, broker: Broker, stuck: set[Connection]) -> None:
    """Check that an orderly stop left nothing behind, except connections in ``stuck``, whose clients do not read."""
    current = asyncio.current_task(loop)
    left = [task.get_name() for task in asyncio.all_tasks(loop) if task is not current]
    if left:
        raise ViolationError(f"tasks are left: {sorted(left)}")
    if broker.resources.publish_budget.in_flight_bytes:
        raise ViolationError(
            f"{broker.resources.publish_budget.in_flight_bytes} bytes of publishes are still accounted for"
        )
    if set(broker.resources.connections) - stuck:
        raise ViolationError("connections are left")
