"""Messages that a session gave its client, and redeliveries."""

import time
import tracemalloc
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.websocket import outstanding
from magnetar.broker.websocket.outstanding import Outstanding, Redeliveries

PLACE = (0, 1, 2)


def batch(*indexes, place=PLACE, size=3):
    return [SimpleNamespace(part=place[0], entry=place[1:], batch_index=index, batch_size=size) for index in indexes]


def test_a_batch_is_acknowledged_with_the_last_of_its_messages():
    found = Outstanding()
    found.arrived(batch(0, 1, 2))
    assert [found.acknowledge(PLACE, index, is_batch=True) for index in (1, 1, 0, 2)] == [False, False, False, True]
    assert len(found) == 0


def test_a_batch_that_is_not_known_is_not_acknowledged():
    assert not Outstanding().acknowledge(PLACE, 0, is_batch=True)
    assert Outstanding().acknowledge(PLACE, -1, is_batch=False)


def test_a_batch_index_that_the_batch_does_not_have_costs_no_memory():
    found = Outstanding()
    found.arrived(batch(0, 1))
    tracemalloc.start()
    try:
        assert not found.acknowledge(PLACE, 2**31 - 1, is_batch=True)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert [found.acknowledge(PLACE, index, is_batch=True) for index in (1, 0)] == [False, True]


def test_a_batch_that_comes_again_is_whole_again():
    found = Outstanding()
    found.arrived(batch(0, 1))
    found.acknowledge(PLACE, 0, is_batch=True)
    found.arrived(batch(0, 1))
    assert not found.acknowledge(PLACE, 1, is_batch=True)
    assert found.acknowledge(PLACE, 0, is_batch=True)


def test_messages_with_the_client_are_counted_once():
    found = Outstanding()
    messages = batch(0, 1)
    found.arrived(messages)
    for message in messages:
        found.given(message)
    assert (found.given_of(PLACE), found.given_of(PLACE)) == (2, 0)
    found.given(messages[0])
    assert (found.forget(0), found.forget(0)) == (1, 0)


def test_memory_has_a_bound(monkeypatch):
    monkeypatch.setattr(outstanding, "MOST_KEPT", 10)
    found, later = Outstanding(), Redeliveries(1)
    for i in range(100):
        found.arrived(batch(0, place=(0, 1, i)))
        later.add((0, 1, i), 0)
    assert len(found) == len(later) == 10


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
def test_redeliveries_are_due_in_order_and_once(steps):
    later, now = Redeliveries(2), 0
    waiting = {}
    for entry, step in steps:
        now += step
        due = {place for place, at in waiting.items() if at <= now}
        assert set(later.take(now)) == due
        waiting = {place: at for place, at in waiting.items() if place not in due}
        place = (0, 0, entry)
        later.add(place, now)
        waiting.setdefault(place, now + 2)
        assert later.next_s == min(waiting.values())


def test_the_places_of_many_partitions_are_forgotten_without_a_walk_over_all_of_them():
    found, due = Outstanding(), Redeliveries(1.0)
    for number in range(outstanding.MOST_KEPT):
        place = (number % 2000, 1, number)
        found.arrived(batch(0, place=place))
        due.add(place, 0.0)
    before = time.process_time()
    for part in range(2000):
        found.forget(part)
        due.forget(part)
    assert time.process_time() - before < 2, "100 million steps take ten times as long"
    assert (len(found), len(due)) == (0, 0)


def test_a_place_that_went_another_way_is_not_forgotten_twice():
    found, due = Outstanding(), Redeliveries(1.0)
    for entry in range(3):
        found.arrived(batch(0, place=(0, 1, entry)))
        due.add((0, 1, entry), 0.0)
    assert found.acknowledge((0, 1, 0), -1, is_batch=False)
    due.discard((0, 1, 0))
    assert list(due.take(1.0)) == [(0, 1, 1), (0, 1, 2)]
    due.restart((0, 1, 2), 5.0)
    assert found.forget(0) == 0
    due.forget(0)
    assert (len(found), len(due), due.next_s) == (0, 0, None)
