"""The replay queue against a sorted set, and the shortcuts for many positions against calls for single positions."""

from itertools import groupby, islice
from operator import itemgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap

from magnetar.broker.dispatchers import replay_queue
from magnetar.broker.dispatchers.replay_queue import ReplayQueue
from magnetar.storage.position import Position

POSITIONS = st.builds(Position, st.integers(0, 2), st.integers(0, 40))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), POSITIONS, st.sampled_from([0, 0, 0, 5, 6])),
        st.tuples(st.just("add_all"), st.lists(POSITIONS, max_size=12)),
        st.tuples(st.just("discard"), POSITIONS),
        st.tuples(st.just("discard_run"), POSITIONS, st.integers(1, 20)),
        st.tuples(st.just("add_refused"), POSITIONS, st.lists(st.sampled_from([5, 6, 7]), min_size=1, max_size=5)),
        st.tuples(st.just("discard_all"), POSITIONS, st.integers(1, 20)),
    ),
    max_size=30,
)


OWNERS = {5: "a", 6: "b"}


@example(
    steps=[("add_refused", Position(0, 0), [5]), ("add_refused", Position(0, 0), [6])], limit=1, a=1, b=0
)  # the position has another owner then
@given(steps=STEPS, limit=st.integers(1, 50), a=st.integers(-1, 9), b=st.integers(0, 40))
def test_against_a_set(steps, limit, a, b):
    queue, expected, hashes, room = ReplayQueue(), set(), {}, {"a": a, "b": b}
    for what, given_, *more in steps:
        additions, before = queue.additions, {**dict.fromkeys(expected), **hashes}
        if what == "add":
            queue.add(*given_, *more)
            expected.add(given_)
            if more[0]:
                hashes[given_] = more[0]
        elif what == "add_all":
            queue.add_all(given_)
            expected |= set(given_)
        elif what == "add_refused":
            ledger_id, first = given_
            added = {Position(ledger_id, first + k): key_hash for k, key_hash in enumerate(more[0])}
            queue.add_refused(ledger_id, [entry_id for _, entry_id in added], list(added.values()))
            expected |= set(added)
            hashes |= added
        elif what == "discard_all":
            gone = {Position(given_.ledger_id, given_.entry_id + k) for k in range(more[0])}
            unknown = queue.discard_all(given_.ledger_id, BitMap([entry_id for _, entry_id in gone]))
            assert unknown == any(position not in hashes for position in gone)
            expected -= gone
        elif what == "discard":
            queue.discard(*given_)
            expected.discard(given_)
        else:
            queue.discard_run(*given_, *more)
            expected -= {Position(given_.ledger_id, given_.entry_id + k) for k in range(more[0])}
        hashes = {position: key_hash for position, key_hash in hashes.items() if position in expected}
        if {**dict.fromkeys(expected), **hashes}.items() - before.items():
            assert queue.additions > additions
        assert len(queue) == len(expected) and list(queue) == sorted(expected)
        assert queue.head(limit) == sorted(expected)[:limit]
        assert queue.first() == min(expected, default=None)
        for key_hash in (5, 6, 7):
            assert queue.first_of_hash(key_hash) == min((p for p, h in hashes.items() if h == key_hash), default=None)
        chosen = queue.choose(OWNERS.get, room.__getitem__, limit)
        assert chosen == (by_entry(expected, hashes, room, limit) if len(hashes) == len(expected) else None)
        assert queue.choose_with_unknown(OWNERS.get, room.__getitem__, limit) == by_entry(expected, hashes, room, limit)
        assert [(ledger_id, list(known)) for ledger_id, known in sorted(queue._known.items())] == [
            (ledger_id, [entry_id for _, entry_id in of_ledger])
            for ledger_id, of_ledger in groupby(sorted(hashes), itemgetter(0))
        ]


def by_entry(waiting, hashes, room, limit):
    left, chosen = dict(room), []
    for position in sorted(waiting):
        owner = OWNERS.get(hashes.get(position))
        if position in hashes and (owner is None or left[owner] <= 0):
            continue
        if owner is not None:
            left[owner] -= 1
        chosen.append(position)
    return chosen[:limit]


def test_positions_are_grouped_again_when_owners_moved():
    queue = ReplayQueue()
    queue.add_refused(1, [1, 2, 3], [5, 6, 5])
    assert queue.choose(OWNERS.get, {"a": 1, "b": 1}.__getitem__, 9) == [(1, 1), (1, 2)]
    queue.owners_moved()
    assert queue.choose({5: "a", 6: "a"}.get, {"a": 2}.__getitem__, 9) == [(1, 1), (1, 2)]


@given(
    hashes=st.dictionaries(POSITIONS, st.integers(5, 8), max_size=30),
    room=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    blocked=st.sets(st.integers(5, 8)),
    limit=st.integers(1, 6),
    few=st.integers(2, 8),
)
def test_a_choice_while_owners_change_overtakes_no_position_of_a_hash(hashes, room, blocked, limit, few):
    """Within a walk through the queue each owner with room gets a position, though owners change before each choice."""
    queue, owners, room = ReplayQueue(), {5: "a", 6: "b", 7: "a"}, dict(zip("ab", room, strict=True))
    for position, key_hash in hashes.items():
        queue.add(*position, key_hash)
    assert queue.choose_meanwhile(owners.get, room.get, limit) == [], "no owner has changed"
    served, left = set(), dict(hashes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_queue, "_SETTLED_IN_ONE_TURN", few)
        for _ in range(4 * len(hashes) + 2):
            queue.owners_moved()
            chosen = queue.choose_meanwhile(owners.get, room.get, limit, lambda key_hash, _: key_hash in blocked)
            assert chosen == sorted(chosen) and len(chosen) <= limit
            for position in chosen:
                key_hash = left[position]
                assert key_hash not in blocked
                assert position == min(p for p, h in left.items() if h == key_hash)
                served.add(owners[key_hash])
                del left[position]
                queue.discard(*position)
            for owner in "ab":
                assert sum(owners.get(hashes[position]) == owner for position in chosen) <= room[owner]
    may_go = {owners.get(h) for h in hashes.values() if h not in blocked} - {None}
    assert served == {owner for owner in may_go if room[owner]}


def test_an_owner_with_much_room_costs_no_more_than_the_limit(monkeypatch):
    """Each read of a hundred entries looked at 50,000 positions of an owner with as many permits: 3.7 ms."""
    queue, looked = ReplayQueue(), []
    queue.add_held(1, BitMap(range(1000)), dict.fromkeys(range(1000), 5))
    assert queue.settle(OWNERS.get)

    def counted(positions, most):
        looked.append(most)
        return islice(positions, most)

    monkeypatch.setattr(replay_queue, "islice", counted)
    assert queue.choose(OWNERS.get, {"a": 900}.__getitem__, 3) == [(1, 0), (1, 1), (1, 2)]
    assert max(looked) == 3


def test_held_entries_are_additions():
    queue = ReplayQueue()
    queue.add_held(1, BitMap([1, 2]), {1: 5})
    assert queue.additions


ENTRIES = st.sets(st.integers(0, 40), max_size=12)
LATE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("held"), st.integers(0, 2), ENTRIES),
        st.tuples(st.just("refused"), st.integers(0, 2), ENTRIES.filter(bool)),
        st.tuples(st.just("gone"), st.integers(0, 2), ENTRIES),
        st.tuples(st.sampled_from(["add", "discard", "drop_up_to"]), POSITIONS),
        st.tuples(st.sampled_from(["settle", "choose", "search", "owners_moved"])),
        st.tuples(st.just("may_go"), st.sets(st.integers(1, 6))),
    ),
    max_size=30,
)


def hash_at(position):
    return 1 + (position[0] + 7 * position[1]) % 6


@given(steps=LATE_STEPS, blocked=st.sets(st.integers(1, 6)), few=st.integers(1, 9))
def test_hashes_that_the_queue_notes_later(steps, blocked, few):
    """Whatever happens before the queue has noted the hashes of held entries, a choice then has the order of keys."""
    queue, expected, owners, blocked = ReplayQueue(), set(), {h: "ab"[h % 2] for h in range(1, 6)}, set(blocked)

    def waits(key_hash, _owner):
        return key_hash in blocked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_queue, "_SETTLED_IN_ONE_TURN", few)
        patch.setattr(replay_queue, "_FEW_HASHES", 2)
        for what, *more in steps:
            if what in ("held", "refused", "gone"):
                ledger_id, entries = more
                positions = {(ledger_id, entry_id): hash_at((ledger_id, entry_id)) for entry_id in sorted(entries)}
            if what == "held":
                queue.add_held(ledger_id, BitMap(entries), {p[1]: h for p, h in positions.items()} | {99: 1})
                expected |= set(positions)
            elif what == "refused":
                queue.add_refused(ledger_id, sorted(entries), list(positions.values()))
                expected |= set(positions)
            elif what == "gone":
                unknown = queue.discard_all(ledger_id, BitMap(entries))
                assert unknown >= bool(set(positions) - expected)
                expected -= set(positions)
            elif what == "add":
                queue.add(*more[0], hash_at(more[0]))
                expected.add(tuple(more[0]))
            elif what == "discard":
                assert queue.discard(*more[0]) == (more[0] in expected)
                expected.discard(tuple(more[0]))
            elif what == "drop_up_to":
                queue.drop_up_to(more[0])
                expected = {p for p in expected if p > more[0]}
            elif what == "settle":
                queue.settle(owners.get, waits)
            elif what == "search":
                assert queue.first_of_hash(3) == min((p for p in expected if hash_at(p) == 3), default=None)
                assert queue.knows_hashes
            elif what == "owners_moved":
                owners = {key_hash: "ab"[owner == "a"] for key_hash, owner in owners.items()}
                queue.owners_moved()
            elif what == "may_go":
                freed = blocked & more[0]
                blocked -= freed
                queue.all_may_go(sorted(freed))
            else:
                assert queue.choose(owners.get, {"a": 2, "b": 9}.get, 6, waits) is not None
            assert list(queue) == sorted(expected)
        turns = 0
        while not queue.settle(owners.get, waits):
            turns += 1
    assert turns <= 2 * sum(len(more[-1]) + 1 for _, *more in steps if more) + 1
    may_go = [p for p in sorted(expected) if hash_at(p) in owners and hash_at(p) not in blocked]
    of_a = [p for p in may_go if owners[hash_at(p)] == "a"][:2]
    of_b = [p for p in may_go if owners[hash_at(p)] == "b"][:9]
    assert queue.choose(owners.get, {"a": 2, "b": 9}.get, 6, waits) == sorted(of_a + of_b)[:6]
    for key_hash in range(1, 7):
        assert queue.first_of_hash(key_hash) == min((p for p in expected if hash_at(p) == key_hash), default=None)
