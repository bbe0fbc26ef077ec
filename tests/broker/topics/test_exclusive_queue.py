"""Producers that wait for exclusive access and give up: their places use up epochs, and keep no producer."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.topics import exclusive_queue
from magnetar.broker.topics.exclusive_queue import ExclusiveQueue, epoch_after
from magnetar.broker.topics.producers import TopicProducers
from magnetar.protocol import pulsar_api_pb2 as pb

WANTED = st.one_of(st.none(), st.integers(0, 9))


@given(st.lists(st.tuples(WANTED, st.booleans()), max_size=30), WANTED, st.integers(0, 5))
def test_places_together_use_up_the_epochs_of_each_place(producers, epoch, most):
    queue, exclusive_queue._MOST_GIVEN_UP = ExclusiveQueue(), most
    try:
        places = []
        for wanted, _ in producers:
            places.append(queue.append(SimpleNamespace(requested_topic_epoch=wanted), None))
        for place, (_, gives_up) in zip(places, producers, strict=True):
            if gives_up:
                queue.give_up(place)
        assert len(queue) == len(producers)
        found, expected = epoch, epoch
        while (place := queue.pop()) is not None:
            found = place.epoch_behind(found)
        for wanted, _ in producers:
            expected = epoch_after(expected, wanted)
        assert found == expected
    finally:
        exclusive_queue._MOST_GIVEN_UP = 64


class Standby(SimpleNamespace):
    """A producer that waits for exclusive access."""

    def __init__(self, name):
        connection = SimpleNamespace(loop=asyncio.get_running_loop(), address="/1.2.3.4:5", closed=False)
        super().__init__(
            name=name, connection=connection, access_mode=pb.WaitForExclusive, requested_topic_epoch=None, topic_epoch=0
        )


async def test_standbys_that_come_and_go_leave_no_producer_behind():
    async def save(_epoch):
        pass

    producers, seen = TopicProducers(None, save), []
    leader = Standby("leader")
    await producers.admit(leader, print, lambda: None)
    for number in range(500):
        standby = Standby(f"standby {number}")
        waiting = asyncio.ensure_future(producers.admit(standby, lambda: None, lambda: None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        seen.append(weakref.ref(standby))
        del standby, waiting
    gc.collect()
    assert not any(ref() is not None for ref in seen)
    assert producers.waiting_count == 500
    assert len(producers._waiting._places) < 200
    last = Standby("last")
    waiting = asyncio.ensure_future(producers.admit(last, lambda: None, lambda: None))
    await asyncio.sleep(0)
    producers.remove(leader)
    await waiting
    assert (producers.exclusive, last.topic_epoch) == (last, 501)
