"""Permits, limits, round robin and the plans of Shared and Key_Shared, against naive twins."""

from __future__ import annotations

from itertools import pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.consumers.draining_hashes import DrainingHashes
from magnetar.broker.consumers.permits import Permits, UnackedLimit
from magnetar.broker.dispatchers.consumer_selection import RoundRobin
from magnetar.broker.dispatchers.key_shared_plan import plan_by_key
from magnetar.broker.dispatchers.round_robin_plan import plan_round_robin
from magnetar.protocol.message_id import is_empty, remaining, words_to_bits

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("flow"), st.integers(1, 10)),
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("ack"), st.integers(1, 5)),
        st.tuples(st.just("back"), st.integers(1, 5)),
        st.tuples(st.just("limit"), st.integers(0, 10)),
    ),
    max_size=50,
)


@given(STEPS, st.integers(0, 10))
def test_permits_are_conserved_and_blocks_release_at_half(steps, limit):
    permits, flowed, sent, unacked = Permits(limit), 0, 0, 0
    for what, number in steps:
        n = min(number, unacked) if what in ("ack", "back") else number
        was_blocked = permits.blocked
        if what == "flow":
            usable = permits.flow(n)
            flowed += n
            assert usable == (not permits.blocked)
        elif what == "send" and permits.usable > 0:
            permits.sent(n, n)
            sent += n
            unacked += n
        elif what == "ack":
            released = permits.acked(n)
            unacked -= n
            assert released == (was_blocked and unacked <= permits.max_unacked // 2)
        elif what == "back":
            permits.given_back(n)
            unacked -= n
            assert permits.blocked == (was_blocked and 0 < permits.max_unacked <= unacked)
        elif what == "limit":
            permits.set_max_unacked(n)
        assert permits.available + permits.parked == flowed - sent
        assert permits.unacked == unacked
        assert permits.blocked or not permits.parked
        if permits.max_unacked > 0 and what in ("send", "limit"):
            assert permits.blocked or unacked < permits.max_unacked
        if not permits.max_unacked and what == "limit":
            assert not permits.blocked
        assert permits.usable == (0 if permits.blocked else permits.available)


def test_the_limit_of_a_subscription():
    limit = UnackedLimit(10)
    limit.add(9)
    assert not limit.blocked
    limit.add(1)
    assert limit.blocked
    assert not limit.remove(5)  # half of it is not below half
    assert limit.remove(1)
    limit.add(20)
    assert limit.set_limit(0)
    assert not limit.blocked


def test_a_subscription_without_unacked_messages_is_never_blocked():
    limit = UnackedLimit(1)
    limit.add(3)
    assert not limit.remove(2)
    assert limit.remove(1)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3))
def test_ack_sets(words):
    bits = words_to_bits(words)
    assert remaining(words) == bits.bit_count()
    assert is_empty(words) == (bits == 0)


class Seat:
    def __init__(self, name, priority, permits, limit=0, *, writable=True):
        self.name, self.priority_level, self.writable = name, priority, writable
        self.permits = Permits(limit)
        self.permits.flow(permits)

    def is_writable(self):
        return self.writable

    def __repr__(self):
        return self.name


SEATS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 40), st.sampled_from([0, 0, 7]), st.booleans()), min_size=1, max_size=5
)


@given(SEATS, st.lists(st.sampled_from([1, 1, 1, 4]), min_size=1, max_size=60), st.integers(1, 20))
def test_round_robin_plan_is_the_loop_of_apache_pulsar(seats, sizes, most):
    def table():
        robin = RoundRobin()
        for i, (priority, permits, limit, writable) in enumerate(seats):
            robin.add(Seat(f"s{i}", priority, permits, limit, writable=writable))
        return robin

    plain = all(s == 1 for s in sizes)
    shares, given_out = plan_round_robin(table(), len(sizes), None if plain else sizes, most)
    robin, expected, start = table(), [], 0
    left = sum(sizes)
    average = max(left // len(sizes), 1)

    def room(seat):
        return seat.permits.max_unacked - seat.permits.unacked if seat.permits.max_unacked else 10**9

    while start < len(sizes):
        seat = robin.next(lambda s: s.writable and s.permits.usable > 0, [])
        if seat is None:
            break
        messages = min(left, seat.permits.usable, room(seat))
        end = min(start + max(1, min(most, -(-messages // average))), len(sizes))
        total = sum(sizes[start:end])
        seat.permits.sent(total, total)
        left -= total
        expected += [seat.name] * (end - start)
        start = end
    assert [s.consumer.name for s in shares for _ in range(s.start, s.end)] == expected
    assert given_out == len(expected)
    assert not plain or all(a.consumer is not b.consumer for a, b in pairwise(shares))


def test_round_robin_goes_on_behind_one_that_left():
    robin = RoundRobin()
    a, b, c, low = (Seat(n, p, 1) for n, p in (("a", 0), ("b", 0), ("c", 0), ("low", 1)))
    for seat in (low, a, b, c):
        robin.add(seat)
    assert [robin.next(lambda _: True, []) for _ in range(4)] == [a, b, c, a]
    robin.remove(a)
    assert [robin.next(lambda _: True, []) for _ in range(3)] == [
        c,
        b,
        c,
    ]  # the turn stays where it was in the list
    assert robin.next(lambda s: s is low, []) is low
    robin.remove(low)
    assert robin.next(lambda _: False, []) is None


def candidates_of_apache_pulsar(levels, turn):
    """The indexes in the order in which Apache Pulsar tries them, walked one by one."""
    level, size = levels[turn], len(levels)
    yield from takewhile(lambda i: levels[i] < level, range(turn))
    same = list(takewhile(lambda i: levels[i] == level, range(turn, size)))
    yield from same
    yield from takewhile(lambda i: levels[i] == level, range(levels.index(level), turn))
    yield from range(turn + len(same), size)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9), st.integers(0, 9), st.booleans()
)
def test_the_choices_of_a_read_are_those_of_a_walk_through_all_consumers(seats, turn, by_level):
    robin = RoundRobin(by_level=by_level)
    for number, (priority, permits) in enumerate(seats):
        robin.add(Seat(f"s{number}", priority, permits))
    robin.turn = turn
    left = {seat: seat.permits.available for seat in robin.consumers}
    levels = [seat.priority_level for seat in robin.consumers]
    passed = []
    for _ in range(sum(left.values()) + 2):
        at = robin.turn if robin.turn < len(levels) else 0
        if levels[at] <= levels[0] and left[robin.consumers[at]] > 0:
            walk = iter((at,))
        else:
            walk = candidates_of_apache_pulsar(levels, at)
        expected = next((robin.consumers[i] for i in walk if left[robin.consumers[i]] > 0), None)
        found = robin.next(lambda seat: left[seat] > 0, passed)
        assert found is expected
        if found is not None:
            assert robin.turn == robin.consumers.index(found) + 1
            left[found] -= 1


@pytest.mark.parametrize("by_level", [True, False])
@pytest.mark.parametrize("levels", [lambda _: 0, lambda i: i, lambda i: -i, lambda i: i % 2])
def test_the_choices_of_a_read_look_at_each_consumer_without_permits_once(by_level, levels):
    """Each entry of a non-persistent topic walked through all consumers: 500 entries and 4,000 took half a second."""
    robin = RoundRobin(by_level=by_level)
    for number in range(1000):
        robin.add(Seat(f"s{number}", levels(number), 1000 if number == 500 else 0))
    looks = 0

    def usable(seat):
        nonlocal looks
        looks += 1
        return seat.permits.available > 0

    passed = []
    for _ in range(500):
        robin.next(usable, passed)
    assert looks < 3000


class Blocks:
    def __init__(self, draining, waiting):
        self.draining, self.waiting = draining, waiting

    def drains(self, key_hash, consumer):
        return self.draining.get(key_hash, consumer) != consumer

    def waits_behind(self, key_hash, position):
        return key_hash in self.waiting and self.waiting[key_hash] < position


@given(
    st.lists(st.integers(1, 6), max_size=30),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 6)),
    st.dictionaries(st.integers(1, 6), st.sampled_from("ab")),
    st.dictionaries(st.integers(1, 6), st.tuples(st.just(1), st.integers(0, 30))),
    st.booleans(),
)
def test_plan_by_key_never_breaks_the_order_of_a_hash(hashes, permits, draining, waiting, ordered):
    def select(key_hash):
        return {0: "a", 1: "b"}.get(key_hash % 3)

    entries = [((1, i), h) for i, h in enumerate(hashes)]
    plan = plan_by_key(entries, select, lambda c: permits.get(c, 0), Blocks(draining, waiting) if ordered else None)
    assert sorted([i for _, i in plan.given] + plan.refused) == list(range(len(hashes)))
    for consumer in "ab":
        assert sum(1 for c, _ in plan.given if c == consumer) <= permits.get(consumer, 0)
    for consumer, i in plan.given:
        assert select(hashes[i]) == consumer
        if ordered:
            assert not [k for k in plan.refused if k < i and hashes[k] == hashes[i]]
            assert draining.get(hashes[i], consumer) == consumer
            assert not (hashes[i] in waiting and waiting[hashes[i]] < (1, i))


def test_draining_hashes_count_and_release():
    draining: DrainingHashes[str] = DrainingHashes()
    old, new = "old", "new"
    draining.drain(5, old, 2)
    assert draining.blocks(5, new)
    assert draining.is_blocked(5, new)
    assert not draining.released(5, new)
    assert not draining.released(5, old)
    assert list(draining.of(old)) == [(5, 1, 1)]
    assert draining.released(5, old)
    assert draining.cleared_total(old) == 1
    assert not draining
    draining.drain(6, old, 1)
    draining.drain(7, old, 1)
    assert not draining.blocks(6, old)
    assert len(draining) == 1
    assert draining.consumer_left(old)
    assert not draining.consumer_left(old)


def test_permits_beyond_an_int32_turn_negative():
    """Verified against Apache Pulsar 4.2.4."""
    permits = Permits()
    assert permits.flow(2**31 - 1)
    assert permits.usable == 2**31 - 1
    permits.flow(2**31 - 1)
    assert permits.usable == -2
    held = Permits(max_unacked=2)
    held.sent(0, 2)
    for _ in range(2):
        assert not held.flow(2**31 - 1)
    assert held.acked(2)
    assert held.usable == -2
