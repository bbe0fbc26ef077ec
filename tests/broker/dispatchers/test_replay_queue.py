"""The replay queue against a sorted set, and the shortcuts for many positions against calls for single positions."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.dispatchers.replay_queue import ReplayQueue
from magnetar.storage.position import Position

POSITIONS = st.builds(Position, st.integers(0, 2), st.integers(0, 40))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), POSITIONS, st.sampled_from([0, 0, 0, 5, 6])),
        st.tuples(st.just("add_all"), st.lists(POSITIONS, max_size=12)),
        st.tuples(st.just("discard"), POSITIONS),
        st.tuples(st.just("discard_run"), POSITIONS, st.integers(1, 20)),
    ),
    max_size=30,
)


@given(steps=STEPS, limit=st.integers(1, 50))
def test_against_a_set(steps, limit):
    queue, expected, hashes = ReplayQueue(), set(), {}
    for what, given_, *more in steps:
        if what == "add":
            queue.add(*given_, *more)
            expected.add(given_)
            if more[0]:
                hashes[given_] = more[0]
        elif what == "add_all":
            queue.add_all(given_)
            expected |= set(given_)
        elif what == "discard":
            queue.discard(*given_)
            expected.discard(given_)
        else:
            queue.discard_run(*given_, *more)
            expected -= {Position(given_.ledger_id, given_.entry_id + k) for k in range(more[0])}
        hashes = {position: key_hash for position, key_hash in hashes.items() if position in expected}
        assert len(queue) == len(expected) and list(queue) == sorted(expected)
        assert queue.head(limit) == sorted(expected)[:limit]
        assert queue.first() == min(expected, default=None)
        for key_hash in (5, 6):
            assert queue.first_of_hash(key_hash) == min((p for p, h in hashes.items() if h == key_hash), default=None)
