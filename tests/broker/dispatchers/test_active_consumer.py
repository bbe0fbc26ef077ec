"""The choice of the active consumer of a Failover subscription."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.dispatchers.active_consumer import ActiveChoice
from magnetar.broker.dispatchers.hash_ring import ring_distance
from tests.calls import Calls


class Member:
    def __init__(self, priority_level, name):
        self.priority_level, self.name = priority_level, name


def chosen(topic, partition, members, *, consistent_hashing=False):
    choice = ActiveChoice(topic, partition)
    for member in members:
        choice.add(member)
    return choice.active(consistent_hashing=consistent_hashing)


def test_failover_by_ring_is_that_of_apache_pulsar():
    """Three topics and their active consumer of alpha, beta, gamma, as recorded from Apache Pulsar 4.2.4."""
    for short, active in {"t1": "gamma", "t2": "alpha", "t3": "beta"}.items():
        topic = f"persistent://public/default/failover_choice-3a07435fab7f-{short}"
        for names in (["alpha", "beta", "gamma"], ["gamma", "beta", "alpha"]):
            assert chosen(topic, -1, [Member(0, name) for name in names]).name == active


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abcd")), min_size=1, max_size=6), st.integers(0, 9))
def test_partitions_spread_over_the_best(consumers, partition):
    found = chosen("t", partition, [Member(*each) for each in consumers])
    best = sorted(c for c in consumers if c[0] == min(p for p, _ in consumers))
    assert (found.priority_level, found.name) == best[partition % len(best)]


@given(
    st.lists(
        st.one_of(st.tuples(st.integers(0, 2), st.sampled_from("abcd")), st.integers(0, 9)), min_size=1, max_size=40
    ),
    st.sampled_from([-1, 0, 3]),
    st.booleans(),
)
def test_joins_and_leaves_give_the_choice_among_those_present(steps, partition, consistent_hashing):
    """Each step is a consumer that joins, or the index of a member that leaves."""
    choice, members = ActiveChoice("t", partition), []
    for step in steps:
        if isinstance(step, tuple):
            members.append(Member(*step))
            choice.add(members[-1])
        elif members:
            choice.remove(members.pop(step % len(members)))
        if not members:
            continue
        order = sorted(members, key=lambda m: (m.priority_level, m.name))  # stable: equals in order of arrival
        assert list(choice.consumers) == order
        best = [m for m in order if m.priority_level == order[0].priority_level]
        if partition >= 0 and not consistent_hashing:
            expected = best[partition % len(best)]
        else:
            expected = min(reversed(best), key=lambda m: ring_distance(m.name, "t"))
        assert choice.active(consistent_hashing=consistent_hashing) is expected


@pytest.mark.parametrize("partition", [-1, 0])
def test_a_join_and_a_leave_cost_no_walk_through_all_consumers(partition):
    """Each join and leave sorted all consumers: the end of a connection with 2,000 of them took two seconds."""
    choice = ActiveChoice("t", partition)
    members = [Member(0, f"c{number:04}") for number in range(2000)]
    for member in members:
        choice.add(member)
        choice.active(consistent_hashing=False)
    with Calls() as calls:
        for member in members[:1000]:
            choice.remove(member)
            choice.active(consistent_hashing=False)
    assert calls.count < 100 * 1000
