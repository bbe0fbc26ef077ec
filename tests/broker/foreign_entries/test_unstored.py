import asyncio

from magnetar.broker.foreign_entries import unstored as module
from magnetar.broker.foreign_entries.transformer import SLICE_S
from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason
from magnetar.protocol.metadata import split_entry
from tests.broker.dispatch_fakes import entry, slab_of
from tests.broker.foreign_entries.converting_for_tests import World, foreign, rounds

FAILURE = ConversionFailure(FailureReason.EXCEPTION, "far", "no")


class Published:
    def __init__(self, *remotes, **config):
        self.world = World(*remotes, **config)
        self.out = []
        self.unstored = self.world.topic.unstored(
            lambda slab: self.out.extend(bytes(split_entry(slab.body(k))[1]) for k in range(slab.count))
        )

    def send(self, *entries):
        self.unstored.send(slab_of(0, 0, list(entries)))


async def test_ordinary_entries_are_published_at_once():
    there = Published()
    there.send(entry(b"0"), entry(b"1"))
    assert there.out == [b"0", b"1"]


async def test_later_messages_wait_for_their_turn():
    there = Published("far")
    there.send(entry(b"0"), foreign(b"1", "far"), foreign(b"2"))
    there.send(entry(b"3"))
    await rounds()
    assert there.out == []
    await there.world.pool.answer(Converted(entry(b"one"), 1))
    assert there.out == [b"0", b"one", b"2", b"3"]
    there.send(entry(b"4"))
    assert there.out[-1] == b"4"


async def test_long_bursts_let_others_have_their_turn():
    """A burst of 6,000 entries with 4,096 headers each held the loop for a second."""
    there = Published()
    ticks = iter(range(10**9))
    there.world.service.tools.clock = lambda: next(ticks) * SLICE_S
    for burst in range(2):
        there.send(*[foreign(b"%d" % n) for n in range(20 * burst, 20 * burst + 20)])
    await rounds(4)
    assert len(there.out) < 8
    await rounds(100)
    assert there.out == [b"%d" % n for n in range(40)]


async def test_failures_are_dropped_or_sent_as_they_came():
    there = Published("far")
    there.send(foreign(b"bad", "far"), entry(b"1"))
    await rounds()
    await there.world.pool.answer(FAILURE)
    assert there.out == [b"1"]
    assert there.world.counters("far").skipped == 1
    there = Published("far", failure_policy="raw")
    there.send(foreign(b"bad", "far"), entry(b"1"))
    await rounds()
    await there.world.pool.answer(FAILURE)
    assert there.out == [b"bad", b"1"]


async def test_the_queue_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 300)
    there = Published("far")
    for _ in range(10):
        there.send(foreign(b"x", "far"))
    assert there.unstored.dropped > 5
    await asyncio.wait_for(there.unstored.close(), 30)
    assert there.out == []


async def test_an_error_of_one_burst_leaves_the_next_bursts_their_turn():
    there = Published("far")
    publish, errors = there.unstored._publish, iter([ZeroDivisionError])

    def fails_first(slab):
        for error in errors:
            raise error
        publish(slab)

    there.unstored._publish = fails_first
    there.send(foreign(b"0", "far"))
    there.send(entry(b"1"))
    await rounds()
    await there.world.pool.answer(Converted(entry(b"zero"), 1))
    await rounds()
    there.send(entry(b"2"))
    assert there.out == [b"1", b"2"]
