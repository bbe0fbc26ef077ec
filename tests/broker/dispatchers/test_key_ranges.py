"""Selectors of Key_Shared, compared with Apache Pulsar 4.2.4 and with naive twins."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.dispatchers import hash_ring
from magnetar.broker.dispatchers.hash_ring import RingSelector, ring_distance
from magnetar.broker.dispatchers.key_ranges import Assignment, SplitSelector, StickySelector, merge
from magnetar.broker.errors import ConsumerAssignError
from magnetar.protocol.key_hash import murmur3_32

FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS = json.loads((FOLDER / "key_shared_ranges.json").read_text())
HALVES = json.loads((FOLDER / "key_shared_halves.json").read_text())


class Member:
    def __init__(self, name="c", ranges=()):
        self.name = name
        self.sticky_ranges = ranges

    def __repr__(self):
        return self.name


def test_the_ring_is_that_of_apache_pulsar():
    ring, members = RingSelector(100), []
    for step in VECTORS["steps"]:
        if step["step"].startswith("add"):
            members.append(Member(step["step"].split()[1]))
            ring.add(members[-1])
        else:
            ring.remove(members.pop(0))
        assert [m.name for m in members] == [name for name, _ in step["consumers"]]
        for member, (_, ranges) in zip(members, step["consumers"], strict=True):
            assert [[a.start, a.end] for a in ring.ranges() if a.owner is member] == ranges


def test_halves_are_those_of_apache_pulsar():
    selector, members = SplitSelector(), {}
    for step in HALVES["steps"]:
        verb, name = step["step"].split()
        if verb == "add":
            members[name] = Member(name)
            selector.add(members[name])
        else:
            selector.remove(members.pop(name))
        ranges = sorted([a.owner.name, [[a.start, a.end]]] for a in selector.ranges())
        assert ranges == step["consumers"], step["step"]


@pytest.mark.parametrize(("make", "whole"), [(lambda: RingSelector(7), (1, 65535)), (SplitSelector, (0, 65536))])
@given(ops=st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=25))
def test_ranges_cover_all_hashes_and_agree_with_select(make, whole, ops):
    selector, members = make(), []
    for leave, name in ops:
        if leave and members:
            selector.remove(members.pop(0))
        else:
            members.append(Member(name))
            selector.add(members[-1])
        ranges = selector.ranges()
        if not members:
            assert ranges == []
            assert selector.select(5) is None
            continue
        assert (ranges[0].start, ranges[-1].end) == whole
        assert all(a.end + 1 == b.start for a, b in pairwise(ranges))
        assert {id(a.owner) for a in ranges} <= {id(m) for m in members}
        for a in ranges:
            assert selector.select(a.start) is a.owner
            assert selector.select(min(a.end, 65535)) is a.owner


def test_the_ring_moves_as_few_hashes_as_possible():
    ring = RingSelector(100)
    members = [Member(n) for n in "abcd"]
    for member in members[:3]:
        ring.add(member)
    before = {h: ring.select(h) for h in range(1, 65536, 17)}
    ring.add(members[3])
    assert all(ring.select(h) in (owner, members[3]) for h, owner in before.items())
    ring.remove(members[3])
    assert {h: ring.select(h) for h in before} == before


def lost_ranges(before: list[Assignment], after: list[Assignment]) -> list[Assignment]:
    """The ranges that each owner of ``before`` has lost in ``after``, both in order: the result expected of `add`."""
    lost: list[Assignment] = []
    j = 0
    for start, end, owner in before:
        while j < len(after) and after[j].end < start:
            j += 1
        at, k = start, j
        while at <= end:
            if k < len(after) and after[k].start <= at:
                upto = min(after[k].end, end)
                if after[k].owner is not owner:
                    lost.append(Assignment(at, upto, owner))
                k += 1
            else:
                upto = min(after[k].start - 1, end) if k < len(after) else end
                lost.append(Assignment(at, upto, owner))
            at = upto + 1
    return merge(lost)


OWNERS = [Member(n) for n in "xyz"]


@st.composite
def assignments(draw):
    cuts = sorted(draw(st.sets(st.integers(1, 40), max_size=8)))
    found, start = [], 1
    for cut in [*cuts, 40]:
        owner = draw(st.sampled_from([*OWNERS, None]))
        if cut >= start and owner is not None:
            found.append(Assignment(start, cut, owner))
        start = max(start, cut + 1)
    return found


@given(assignments(), assignments())
def test_lost_ranges_is_the_difference(before, after):
    def owner(ranges, key_hash):
        return next((a.owner for a in ranges if a.start <= key_hash <= a.end), None)

    expected = {
        (h, owner(before, h)) for h in range(1, 41) if owner(before, h) and owner(before, h) is not owner(after, h)
    }
    assert {(h, a.owner) for a in lost_ranges(before, after) for h in range(a.start, a.end + 1)} == expected


@pytest.mark.parametrize("make", [lambda: RingSelector(7), lambda: RingSelector(300), SplitSelector])
@given(ops=st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=25))
def test_a_joiner_takes_the_difference_and_a_leaver_nothing(make, ops):
    selector, members = make(), []
    for leave, name in ops:
        before = selector.ranges()
        if leave and members:
            gone = members.pop(0)
            selector.remove(gone)
            assert lost_ranges([a for a in before if a.owner is not gone], selector.ranges()) == []
        else:
            members.append(Member(name))
            taken = selector.add(members[-1])
            assert taken == lost_ranges(before, selector.ranges())
        for member in members:
            assert selector.ranges_of(member) == [a[:2] for a in selector.ranges() if a.owner is member]


def test_declared_ranges_are_taken_from_no_other():
    selector = StickySelector()
    a, b = Member("a", ((200, 70000), (0, 100))), Member("b", ((101, 150),))
    assert selector.add(a) == selector.add(b) == []
    assert selector.ranges_of(a) == [each[:2] for each in selector.ranges() if each.owner is a]


@pytest.mark.parametrize(
    "ranges", [(), ((170, 160),), ((170, 171), (171, 180)), ((150, 160),), ((-1, 0),), ((90, 300),)]
)
def test_sticky_ranges_that_cannot_be_had(ranges):
    selector = StickySelector()
    selector.add(Member("n0", ((0, 100), (200, 65535))))
    selector.add(Member("n1", ((101, 150),)))
    with pytest.raises(ConsumerAssignError):
        selector.add(Member("n2", ranges))


def test_a_refusal_names_the_two_declared_ranges_that_overlap():
    with pytest.raises(ConsumerAssignError, match=r"conflict: \[0,10\] overlaps with \[10,20\]$"):
        StickySelector().add(Member("n", ((10, 20), (0, 10))))


def test_the_own_ranges_are_judged_before_those_of_others():
    selector = StickySelector()
    selector.add(Member("other", ((0, 5),)))
    with pytest.raises(ConsumerAssignError, match="own ranges conflict"):
        selector.check(Member("n", ((0, 10), (3, 4))))


def test_adjacent_ranges_of_a_member_are_shown_as_one():
    selector = StickySelector()
    member = Member("n", ((20, 30), (0, 10), (11, 19), (40, 50)))
    selector.add(member)
    assert selector.ranges_of(member) == [(0, 30), (40, 50)]


def test_sticky_selection():
    selector = StickySelector()
    a, b = Member("a", ((0, 100), (200, 70000))), Member("b", ((101, 150),))
    selector.add(a)
    selector.add(b)
    assert [selector.select(h) for h in (1, 100, 101, 150, 151, 199, 200, 65535)] == [a, a, b, b, None, None, a, a]
    selector.remove(a)
    assert [selector.select(h) for h in (1, 101, 65535)] == [None, b, None]


def test_many_declared_ranges_are_compared_with_their_neighbours():
    """Two consumers of 30,000 ranges each took a comparison of every pair."""
    selector = StickySelector()
    even = Member("even", [(i, i) for i in range(0, 65536, 2)])
    odd = Member("odd", [(i, i) for i in range(1, 65536, 2)])
    selector.add(even)
    selector.add(odd)
    assert selector.select(4) is even
    assert selector.select(5) is odd
    with pytest.raises(ConsumerAssignError, match="conflict with consumer odd"):
        selector.check(Member("late", [(7, 7)]))


@given(st.lists(st.text(max_size=9), min_size=1, max_size=8, unique=True), st.text(max_size=20))
def test_the_nearest_name_is_that_of_all_points_on_one_ring(names, key):
    ring = {}
    for index, name in enumerate(names):
        for i in range(100):
            ring[murmur3_32(f"{name}{i}".encode())] = index
    points = sorted(ring)
    following = [p for p in points if p >= murmur3_32(key.encode())]
    nearest = min(reversed(range(len(names))), key=lambda index: ring_distance(names[index], key))
    assert nearest == ring[following[0] if following else points[0]]


def test_a_name_is_hashed_once_however_often_consumers_come_and_go():
    names = [f"{i}{'x' * 1000}" for i in range(300)]
    first = [ring_distance(name, "t") for name in names]
    began = hash_ring._failover_points.cache_info().misses
    assert [[ring_distance(name, "t") for name in names] for _ in range(50)] == [first] * 50
    assert hash_ring._failover_points.cache_info().misses == began
