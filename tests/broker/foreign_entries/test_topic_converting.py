import pytest

from magnetar.broker.foreign_entries.failures import Failed
from magnetar.broker.foreign_entries.flights import Flight
from magnetar.broker.foreign_entries.frames import DECLINED
from magnetar.broker.foreign_entries.outcomes import Unavailable
from magnetar.converters.breaker import BreakerSettings
from magnetar.converters.entry import Entry
from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason
from magnetar.storage.position import Position
from tests.broker.dispatch_fakes import slab_of
from tests.broker.foreign_entries.converting_for_tests import World, foreign

DEFECT = ConversionFailure(FailureReason.EXCEPTION, "far", "no", defect=True)
BAD_DATA = ConversionFailure(FailureReason.EXCEPTION, "far", "no")


def begin(world, slab, index=0):
    [(_, chosen)] = [each for each in world.service.tools.candidates.of(slab.slice(0, slab.count)) if each[0] == index]
    return world.topic.begin(slab, index, chosen)


async def test_small_entries_are_converted_at_once_and_kept():
    world = World()
    slab = slab_of(3, 0, [foreign(b"payload")])
    first = begin(world, slab)
    assert Entry(first.entry).payload == b"payload"
    assert begin(world, slab_of(3, 0, [foreign(b"payload")])) is first
    counters = world.counters()
    assert (counters.accepted, counters.messages, counters.cache_hits, counters.latency.count) == (1, 1, 1, 1)
    assert counters.bytes_out == len(first.entry)
    assert world.pool.jobs == []


@pytest.mark.parametrize("how", ["large", "many messages", "foreign code"])
async def test_everything_else_goes_to_a_worker(how):
    world = World("far", inline_max_bytes=1000)
    entry = {
        "large": foreign(bytes(1001)),
        "many messages": foreign(b"x", messages=257),
        "foreign code": foreign(b"x", "far"),
    }[how]
    assert isinstance(begin(world, slab_of(3, 0, [entry])), Flight)
    assert world.pool.jobs[0][2] == entry


async def test_entries_that_grow_too_much_on_the_loop_go_to_a_worker():
    world = World(inline_max_bytes=1000)
    world.service.tools.chain.convert = lambda entry, chosen: ConversionFailure(
        FailureReason.OVERSIZE, "bytes", "large"
    )
    assert isinstance(begin(world, slab_of(3, 0, [foreign()])), Flight)
    assert world.counters().failures == {}


async def test_one_flight_for_all_subscriptions_of_the_entry():
    world = World("far")
    slab = slab_of(3, 0, [foreign(b"x", "far")])
    flight = begin(world, slab)
    assert begin(world, slab) is flight
    assert len(world.pool.jobs) == 1
    result = Converted(b"new", 1)
    await world.pool.answer(result)
    assert begin(world, slab) is result
    assert world.counters("far").cache_hits == 1


async def test_a_result_too_large_for_the_cache_waits_for_a_returning_consumer():
    world = World("far", cache_bytes=0)
    slab = slab_of(3, 0, [foreign(b"x", "far")])
    begin(world, slab)
    result = Converted(b"new", 1)
    await world.pool.answer(result)
    assert begin(world, slab) is result
    assert world.pool.jobs == []


@pytest.mark.parametrize("answer", [DECLINED, Converted(b"same", 1, identity=True)])
async def test_unchanged_entries_are_not_converted_again(answer):
    world = World("far")
    slab = slab_of(3, 0, [foreign(b"x", "far")])
    begin(world, slab)
    await world.pool.answer(answer)
    assert begin(world, slab) is answer
    assert world.service.tools.candidates.of(slab.slice(0, 1)) == []


async def test_a_failure_stands_for_all_until_its_time_is_up():
    world = World("far")
    slab = slab_of(3, 5, [foreign(b"x", "far")])
    begin(world, slab)
    await world.pool.answer(BAD_DATA)
    for _ in range(50):
        failed = begin(world, slab)
        assert failed == Failed(BAD_DATA, 1, world.now_ms + 1000)
    assert world.pool.jobs == []
    assert world.counters("far").failures == {FailureReason.EXCEPTION: 1}
    world.now_ms += 1000
    assert isinstance(begin(world, slab), Flight)
    await world.pool.answer(Converted(b"new", 1))
    assert Position(3, 5) not in world.topic.failures


async def fail(world, count, failure):
    for n in range(count):
        assert isinstance(begin(world, slab_of(3, n, [foreign(b"x", "far")])), Flight)
        await world.pool.answer(failure)


async def test_a_broken_converter_is_given_a_rest_and_tried_out():
    world = World("far", breaker=BreakerSettings(window=10, minimum_calls=4, failure_percent=50, open_ms=5000))
    await fail(world, 4, DEFECT)
    assert begin(world, slab_of(3, 100, [foreign(b"x", "far")])) == Unavailable(5000)
    assert world.topic.open_breakers() == {"far"}
    assert isinstance(begin(world, slab_of(3, 100, [foreign()])), Converted), "others go on"
    world.now_ms += 5000
    probe = slab_of(3, 101, [foreign(b"x", "far")])
    assert isinstance(begin(world, probe), Flight)
    assert begin(world, slab_of(3, 102, [foreign(b"x", "far")])) == Unavailable(1000)
    await world.pool.answer(Converted(b"new", 1))
    assert world.topic.open_breakers() == set()
    assert isinstance(begin(world, slab_of(3, 103, [foreign(b"x", "far")])), Flight)


async def test_timeouts_open_the_breaker_and_bad_data_does_not():
    settings = BreakerSettings(window=10, minimum_calls=4, failure_percent=50, open_ms=5000)
    world = World("far", breaker=settings)
    await fail(world, 20, BAD_DATA)
    assert world.topic.open_breakers() == set()
    world = World("far", breaker=settings)
    await fail(world, 4, ConversionFailure(FailureReason.TIMEOUT, "far", "slow"))
    assert world.topic.open_breakers() == {"far"}


async def test_unstored_entries_share_nothing():
    world = World("far")
    slab = slab_of(0, 0, [foreign(b"a"), foreign(b"b")])
    found = dict(world.service.tools.candidates.of(slab.slice(0, 2)))
    first = await world.topic.convert_unstored(slab, 0, found[0])
    second = await world.topic.convert_unstored(slab, 1, found[1])
    assert [Entry(each.entry).payload for each in (first, second)] == [b"a", b"b"]
    assert world.service.tools.cache.stats().entries == 0
    bad = slab_of(0, 0, [foreign(b"x", messages=3)])
    [(_, chosen)] = world.service.tools.candidates.of(bad.slice(0, 1))
    assert isinstance(await world.topic.convert_unstored(bad, 0, chosen), ConversionFailure)
    assert len(world.topic.failures) == 0
