"""Even shares of the memory for names of producers that have left."""

from __future__ import annotations

import gc

import pytest

from magnetar.broker.topics.names_room import NamesRoom

MOST = 1200


def filled(room, at_most=10 * MOST, step=10):
    """Take more until the room refuses, and return the bytes."""
    while room.used < at_most and room.has_more():
        room.count(step)
    return room.used


@pytest.mark.parametrize("place", [("other", "other/n"), ("t", "t/other"), ("t", "t/n")], ids=["tenant", "ns", "topic"])
def test_a_topic_that_fills_the_room_takes_no_share_of_others(place):
    """Beyond the room of all topics a topic with more than 1 MiB took no new names, also when another tenant's topics
    had filled the room.
    """
    room = NamesRoom(MOST, free=20)
    victim, attacker = room.of_topic("t", "t/n"), room.of_topic(*place)
    victim.count(300)
    assert MOST - 300 <= filled(attacker) <= MOST - 280
    assert filled(victim) == MOST // 2 + 10
    assert not attacker.has_more()


def test_many_topics_of_a_namespace_share_its_part():
    room = NamesRoom(MOST, free=0)
    victim = room.of_topic("t", "t/n")
    victim.count(10)
    many = [room.of_topic("other", f"other/{number % 4}") for number in range(40)]
    for _ in range(10 * MOST):
        for each in many:
            if each.has_more():
                each.count(10)
    assert room.used <= MOST + 40 * 40
    assert filled(victim) == MOST // 2 + 10


def test_all_topics_take_a_few_names_and_fewer_the_more_topics_there_are():
    room = NamesRoom(MOST, free=100)
    rooms = [room.of_topic("t", f"t/{number % 10}") for number in range(400)]
    sizes = [filled(each, step=1) for each in rooms]
    assert sizes[0] > MOST and sizes[1] > 90 and 10 < sizes[-1] < 25
    assert room.used < 400 * 100 / 3


def test_rooms_without_bytes_count_for_no_share_and_end_with_their_topics():
    room = NamesRoom(MOST, free=0)
    topics = [room.of_topic(f"t{number}", "n") for number in range(10)]
    for topic in topics:
        topic.count(100)
        topic.count(-100)
    assert filled(room.of_topic("t", "t/n")) == MOST + 10
    del topics, topic
    gc.collect()
    assert not list(room._inner)
