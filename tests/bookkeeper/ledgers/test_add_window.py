"""The writer's decider against a naive twin that remembers every acknowledgement of every entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.ledgers.add_window import AddWindow
from magnetar.bookkeeper.ledgers.quorum import write_set

SHAPES = [(1, 1, 1), (3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 2, 1), (5, 3, 2), (2, 2, 1)]


class Naive:
    def __init__(self, shape):
        self.size, self.write, self.ack = shape
        self.pushed = self.confirmed = -1
        self.acks = [None] * self.size
        self.trusted = [False] * self.size

    def complete(self, trusted_only):
        last = self.confirmed
        while last < self.pushed:
            places = write_set(last + 1, self.size, self.write)
            count = sum(
                self.acks[p] is not None and last + 1 in self.acks[p] and (self.trusted[p] or not trusted_only)
                for p in places
            )
            if count < self.ack:
                break
            last += 1
        return last


steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 5)),
        st.tuples(st.just("ack"), st.integers(0, 4), st.integers(0, 6), st.integers(0, 4)),
        st.tuples(st.just("next"), st.integers(0, 4)),
        st.tuples(st.just("trust"), st.integers(0, 4)),
        st.tuples(st.just("join"), st.integers(0, 4)),
        st.tuples(st.just("leave"), st.integers(0, 4)),
        st.tuples(st.just("confirm")),
    ),
    max_size=60,
)


@given(st.sampled_from(SHAPES), steps)
def test_the_window_agrees_with_a_naive_twin(shape, moves):
    window, naive = AddWindow(*shape), Naive(shape)
    for place in range(shape[0]):
        window.join(place)
        naive.acks[place] = set()
    for kind, *arguments in moves:
        place = arguments[0] % shape[0] if arguments else 0
        replica = window.replicas[place]
        if kind == "push":
            window.pushed += arguments[0]
            naive.pushed += arguments[0]
        elif kind in ("ack", "next") and replica is not None:
            first, last = naive.confirmed + 1, naive.confirmed + 1
            if kind == "ack":
                first = max(naive.confirmed + arguments[1] - 1, 0)
                last = first + arguments[2]
            window.added(replica, first, last)
            naive.acks[place] |= set(range(first, min(last, naive.pushed) + 1))
        elif kind == "trust" and replica is not None:
            replica.trusted = naive.trusted[place] = True
        elif kind == "join":
            window.join(place)
            naive.acks[place], naive.trusted[place] = set(), False
        elif kind == "leave":
            window.leave(place)
            naive.acks[place], naive.trusted[place] = None, False
        elif kind == "confirm":
            window.confirmed = naive.confirmed = naive.complete(trusted_only=True)
        assert window.complete(trusted_only=True) == naive.complete(trusted_only=True)
        assert window.complete(trusted_only=False) == naive.complete(trusted_only=False)


def test_a_bookie_that_takes_a_place_begins_with_nothing():
    window = AddWindow(3, 3, 2)
    replicas = [window.join(place) for place in range(3)]
    window.pushed = 0
    window.added(replicas[0], 0, 0)
    window.join(0)
    window.added(replicas[1], 0, 0)
    assert window.complete(trusted_only=False) == -1


def test_acknowledgements_count_only_over_trusted_connections():
    window = AddWindow(3, 3, 2)
    replicas = [window.join(place) for place in range(3)]
    window.pushed = 4
    for replica in replicas:
        window.added(replica, 0, 4)
        assert replica.delivered
    assert (window.complete(trusted_only=True), window.complete(trusted_only=False)) == (-1, 4)
    replicas[0].trusted = True
    assert window.complete(trusted_only=True) == -1
    replicas[2].trusted = True
    assert window.complete(trusted_only=True) == 4
