"""Checks of a history of one subscription (`dispatch_histories.py`) when all is quiet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from magnetar.protocol.message_id import words_to_bits
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer import Consumer
    from tests.twins.fake_connection import FakeConnection

TICK_MS = 100
"""Delayed entries may come so much too early."""


@dataclass(eq=False)
class Client:
    """One client of the subscription."""

    consumer: Consumer
    outbox: FakeConnection
    got: dict = field(default_factory=dict)
    """Positions of the messages that the client got and did not give back, in their order."""

    permits: int = 0
    """Messages of all FLOWs."""
    taken: list = field(default_factory=list)
    """Each delivery: position, bits of the messages that are left of a batch (None: all)."""

    @property
    def name(self) -> str:
        return f"c#{self.consumer.consumer_id}"


@dataclass
class Published:
    key: str
    messages: int
    deliver_at: int
    uuid: str = ""


def bits_of(words) -> int | None:
    return words_to_bits(words) if words else None


def state_of(history) -> dict[Position, object]:
    """The acknowledgement of each entry."""
    sub = history.subscription
    if sub is None:
        return {}
    return {p: sub.cursor.is_deleted(p) or bits_of(sub.cursor.ack_set(p)) for p in history.published}


def check_place(history, cursor, position, ack_set) -> None:
    """Check the cursor behind a seek that no acknowledgement followed."""
    for p in history.published:
        assert cursor.is_deleted(p) == (p < position), f"{tuple(p)} behind a seek to {tuple(position)}"
        expected = bits_of(ack_set) if p == position else None
        if p >= position:
            assert bits_of(cursor.ack_set(p)) == expected, f"parts of {tuple(p)} behind a seek"


def check_message(history, client, message) -> None:
    position = message.position
    history.note(f"{client.name} gets {tuple(position)}")
    about = history.published.get(position)
    sub = client.consumer.subscription
    assert not sub.cursor.is_deleted(position), f"{position} is acknowledged"
    assert client.consumer in sub.consumers, "a consumer that left gets a message"
    assert bits_of(message.ack_set) == bits_of(sub.cursor.ack_set(position)), f"parts of {tuple(position)}"
    assert message.count <= history.returned[position], f"redelivery {message.count} of {tuple(position)}"
    if history.type in (SHARED, KEY_SHARED):
        assert position not in history.holder, f"{position} is held by {history.holder[position].name}"
        history.holder[position] = client
        if about is not None:
            early_ms = about.deliver_at - history.bench.ground.clock.now_ms()
            assert early_ms <= TICK_MS, f"{tuple(position)} comes {early_ms} ms too early"
    if history.type == SHARED and about is not None and about.uuid:
        check_chunk(history, client, position, about.uuid)
    if history.type == KEY_SHARED and not history.out_of_order and about is not None:
        check_key(history, client, position, about)
    if history.type in (EXCLUSIVE, FAILOVER):
        if ("ACTIVE_CONSUMER_CHANGE", True) in client.outbox.frames:
            client.got.clear()
        client.outbox.frames.clear()
        assert client.consumer is sub.dispatcher.active, "a standby gets a message"
        last = next(reversed(client.got), None)
        assert last is None or position > last, f"{tuple(position)} behind {tuple(last)}"
    client.got[position] = about.messages if about else 1
    client.taken.append((position, bits_of(message.ack_set)))


def check_key(history, client, position, about) -> None:
    """No entry of a key overtakes an earlier entry, unless the earlier entry is delayed."""
    cursor, pending = client.consumer.subscription.cursor, client.consumer.pending_acks
    for other, each in history.published.items():
        if other < position and each.key == about.key and not each.deliver_at and not about.deliver_at:
            free = cursor.is_deleted(other) or other in pending
            assert free, f"{tuple(position)} of {about.key} overtakes {tuple(other)}"


def check_chunk(history, client, position, uuid) -> None:
    """A chunk goes to the consumer that holds the chunk before, while the message is unfinished."""
    before = [p for p, each in history.published.items() if each.uuid == uuid and p < position]
    holder = history.holder.get(before[-1]) if before else None
    assert holder in (None, client), f"{tuple(position)} of a message whose chunk {holder.name} holds"


def check_logs(logs) -> None:
    """Check that no callback of the broker failed."""
    bugs = [
        each for each in logs if each["log_level"] == "error" and each["event"] not in ("read.failed", "entry.skipped")
    ]
    assert not bugs, bugs[0]


def check(history) -> None:
    assert not history.failures, history.failures[0]
    sub = history.subscription
    if sub is None or sub.dispatcher is None:
        return
    assert not history.moving
    assert not history.tasks, "a request never ends"
    dispatcher = sub.dispatcher
    for client in history.clients:
        permits = client.consumer.permits
        taken = sum(history.published[p].messages if bits is None else bits.bit_count() for p, bits in client.taken)
        assert permits.available + permits.parked == client.permits - taken, f"permits of {client.name}"
    assert {c.consumer for c in history.clients} == set(dispatcher.consumers)
    if dispatcher.held is not None:
        check_books(history, sub, dispatcher)
    if dispatcher.consumers:
        check_waiting(history, sub, dispatcher)


def check_books(history, sub, dispatcher) -> None:
    held, total = dispatcher.held, 0
    seen: set = set()
    for client in history.clients:
        consumer = client.consumer
        mine = {(a.ledger_id, a.entry_id): a.unacked for a in consumer.pending_acks}
        assert not seen & set(mine)
        seen |= set(mine)
        assert consumer.permits.unacked == sum(mine.values()), "unacknowledged messages of a consumer"
        assert set(client.got) == set(mine), set(client.got) ^ set(mine)
        total += consumer.permits.unacked
        limit = consumer.permits.max_unacked
        if consumer.permits.blocked:
            assert limit // 2 < consumer.permits.unacked, "a consumer stays blocked below half of its limit"
        else:
            assert not consumer.permits.parked
            assert not 0 < limit <= consumer.permits.unacked
        for p in mine:
            assert not sub.cursor.is_deleted(Position(*p)), f"{p} is acknowledged and held"
            assert p not in held.replay, f"{p} is held and waits"
    assert held.unacked.total == total
    pool = sub.context.unacked_total
    if pool is not None:
        assert pool.total == total
    assert held.replay.entries == sum(1 for _ in held.replay)


def check_waiting(history, sub, dispatcher) -> None:
    loop, cursor = dispatcher.loop, sub.cursor
    assert loop._cold is None, "a read never ends"
    if loop._throttle_timer is not None:
        return
    now_ms = history.bench.ground.clock.now_ms()
    held = {p for c in history.clients for p in c.got}
    unacked = [p for p in sorted(history.published) if not cursor.is_deleted(p)]
    if dispatcher.held is None:
        active = dispatcher.active
        if active is None or active.permits.available <= 0 or not active.is_writable():
            return
        assert dispatcher._failover_timer is None
        waiting = [tuple(p) for p in unacked if p >= cursor.read_position]
        assert not waiting, f"{waiting} wait for a consumer with permits"
        client = next(c for c in history.clients if c.consumer is active)
        missing = [tuple(p) for p in unacked if p not in client.got]
        assert not missing, f"{missing} overlooked"
        return
    replay = dispatcher.held.replay
    delayed = {p for p in unacked if history.published[p].deliver_at > now_ms - 200}
    read = [p for p in unacked if p < cursor.read_position]
    lost = [tuple(p) for p in read if p not in held and p not in replay and p not in delayed]
    due = sub.context.delay is not None and sub.context.delay.has_due()
    if not due:
        assert not lost, f"{lost} are overlooked"
    able = [c for c in dispatcher.consumers if c.permits.usable > 0 and c.is_writable()]
    if not able or dispatcher.held.unacked.blocked:
        return
    waiting = [p for p in unacked if p not in held and p not in delayed]
    if history.type == SHARED:
        blocked = dispatcher._waiting_chunks.blocked(dispatcher._chunks)
        free = [tuple(p) for p in waiting if p.entry_id not in blocked.get(p.ledger_id, ())]
        assert not free, f"{free} wait for consumers with permits"
    else:
        check_keys(history, sub, dispatcher, waiting)


def check_keys(history, sub, dispatcher, waiting) -> None:
    replay, refused = dispatcher.held.replay, set()
    for p in waiting:
        if p not in replay:
            continue
        key_hash = replay.hash_of(*p)
        assert key_hash, f"{p} waits without a hash"
        owner = dispatcher.selector.select(key_hash)
        can = (
            owner is not None
            and dispatcher._entry_permits(owner) > 0
            and not dispatcher.draining.is_blocked(key_hash, owner)
        )
        if can and (key_hash not in refused or history.out_of_order):
            raise AssertionError(f"{p} waits for its owner")
        refused.add(key_hash)
    ahead = dispatcher.context.settings.key_shared_look_ahead_per_consumer * len(dispatcher.consumers)
    unread = [tuple(p) for p in waiting if p >= sub.cursor.read_position]
    if replay.entries < ahead and dispatcher.held.may_read():
        assert not unread, f"{unread} are not read"
