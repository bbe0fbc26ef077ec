"""PendingAcks and ReplayQueue against plain dicts and sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from magnetar.broker.consumers.pending_acks import PendingAck, PendingAcks
from magnetar.broker.dispatchers.redelivery_tracker import RedeliveryTracker
from magnetar.broker.dispatchers.replay_queue import ReplayQueue
from magnetar.storage.position import Position

LEDGERS, ENTRIES = st.integers(1, 2), st.integers(0, 12)
PLACE = st.tuples(LEDGERS, ENTRIES)

PENDING_STEPS = st.one_of(
    st.tuples(st.just("add"), PLACE, st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("run"), PLACE, st.integers(1, 5)),
    st.tuples(st.just("remove"), PLACE),
    st.tuples(st.just("many"), LEDGERS, st.sets(ENTRIES)),
    st.tuples(st.just("reduce"), PLACE, st.integers(1, 3)),
    st.tuples(st.just("drop"), PLACE),
)


@given(st.lists(PENDING_STEPS, max_size=40))
def test_pending_acks_like_a_dict(steps):
    acks, model = PendingAcks(), {}
    for what, place, *rest in steps:
        if what == "add":
            acks.add(*place, *rest)
            model[place] = tuple(rest)
        elif what == "run":
            places = [(place[0], place[1] + k) for k in range(rest[0])]
            if not any(p in model for p in places):
                acks.add_run(*place, rest[0])
                model.update(dict.fromkeys(places, (1, 0)))
        elif what == "remove":
            held = model.pop(place, None)
            assert acks.remove(*place) == (None if held is None else PendingAck(*place, *held))
        elif what == "many":
            expected = {e for e in rest[0] if model.get((place, e)) == (1, 0)}
            assert set(acks.remove_plain(place, BitMap(rest[0]))) == expected
            for e in expected:
                del model[place, e]
        elif what == "reduce":
            held = model.get(place)
            fewer = held is not None and rest[0] < held[0]
            assert acks.reduce(*place, rest[0]) == (held[0] - rest[0] if fewer else 0)
            if fewer:
                model[place] = (rest[0], held[1])
        else:
            gone = sorted(p for p in model if p <= place)
            dropped = acks.drop_up_to(Position(*place))
            assert [(each.ledger_id, e) for each in dropped for e in each.entry_ids] == gone
            assert [h for each in dropped for h in each.key_hashes.values()] == [h for p in gone if (h := model[p][1])]
            assert sum(each.messages for each in dropped) == sum(model.pop(p)[0] for p in gone)
        assert [(a[:2], a[2:]) for a in acks] == sorted(model.items())
        assert len(acks) == len(model)
        assert (place in acks) == (place in model) if what != "many" else True
    held = acks.take_all()
    assert [(ledger.ledger_id, e) for ledger in held for e in ledger.entry_ids] == sorted(model)
    for ledger in held:
        mine = {place[1]: it for place, it in sorted(model.items()) if place[0] == ledger.ledger_id}
        assert list(ledger.key_hashes.items()) == [(e, key_hash) for e, (_, key_hash) in mine.items() if key_hash]
        assert ledger.messages == sum(messages for messages, _ in mine.values())
    assert not len(acks)


REPLAY_STEPS = st.one_of(
    st.tuples(st.just("add"), PLACE, st.integers(0, 3)),
    st.tuples(st.just("held"), PLACE, st.dictionaries(ENTRIES, st.integers(0, 3))),
    st.tuples(st.just("discard"), PLACE),
    st.tuples(st.just("drop"), PLACE),
)


@given(st.lists(REPLAY_STEPS, max_size=50))
def test_replay_queue_like_a_sorted_dict(steps):
    queue, model = ReplayQueue(), {}
    for what, place, *rest in steps:
        if what == "add":
            assert queue.add(*place, *rest) == (place not in model)
            model[place] = rest[0] or model.get(place, 0)
        elif what == "held":
            known = {e: key_hash for e, key_hash in rest[0].items() if key_hash}
            queue.add_held(place[0], BitMap(rest[0]), {**known, 99: 1})
            model.update({(place[0], e): h or model.get((place[0], e), 0) for e, h in rest[0].items()})
        elif what == "discard":
            assert queue.discard(*place) == (model.pop(place, None) is not None)
        else:
            queue.drop_up_to(Position(*place))
            model = {p: h for p, h in model.items() if p > place}
        assert [tuple(p) for p in queue] == sorted(model)
        assert queue.head(3) == sorted(model)[:3]
        assert queue.first() == min(model, default=None)
        for key_hash in (1, 2, 3):
            first = min((p for p, h in model.items() if h == key_hash), default=None)
            assert queue.first_of_hash(key_hash) == first
        assert all(queue.hash_of(*p) == h for p, h in model.items())
        assert (len(queue), bool(queue)) == (len(model), bool(model))


@given(st.lists(st.tuples(st.sampled_from(["add", "many", "remove", "all", "drop"]), PLACE), max_size=40))
def test_redelivery_counts_like_a_dict(steps):
    tracker, model = RedeliveryTracker(), {}
    for what, place in steps:
        if what == "add":
            model[place] = model.get(place, 0) + 1
            tracker.increment_all(place[0], BitMap([place[1]]))
            assert tracker.get(*place) == model[place]
        elif what == "many" and place[1]:
            tracker.increment_all(place[0], BitMap(range(place[1])))
            model.update({(place[0], e): model.get((place[0], e), 0) + 1 for e in range(place[1])})
        elif what == "many":
            continue
        elif what == "remove":
            tracker.remove(*place)
            model.pop(place, None)
        elif what == "all":
            tracker.remove_all(place[0], BitMap(range(place[1])))
            model = {p: c for p, c in model.items() if p[0] != place[0] or p[1] >= place[1]}
        else:
            tracker.drop_up_to(Position(*place))
            model = {p: c for p, c in model.items() if p > place}
        for ledger_id in (1, 2):
            expected = [model.get((ledger_id, e), 0) for e in range(13)]
            assert tracker.counts(ledger_id, 0, 13) == (expected if any(expected) else None)
        assert bool(tracker) == bool(model)
        assert tracker.get(*place) == model.get(place, 0)
