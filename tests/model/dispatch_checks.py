"""Checks of a history of one subscription (`dispatch_histories.py`) when all is quiet."""

from __future__ import annotations

from magnetar.broker.consumers.consumer import SHARED
from magnetar.storage.position import Position


def check(history) -> None:
    assert not history.failures, history.failures[0]
    sub = history.subscription
    if sub is None or sub.dispatcher is None:
        return
    assert not history.moving
    assert not history.tasks, "a request never ends"
    dispatcher = sub.dispatcher
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
        if not consumer.permits.blocked:
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
