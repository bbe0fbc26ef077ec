"""Priority levels of Shared consumers: whose turn it is."""

import pytest

from tests.broker.dispatch_fakes import Bench, entry, got


async def test_priorities_are_served_first():
    bench = Bench()
    low = await bench.join(permits=100, priority=1)
    high = await bench.join(permits=30)
    other = await bench.join(permits=5)
    bench.publish(*[entry() for _ in range(50)])
    assert len(got(high)) == 30
    assert len(got(other)) == 5
    assert len(got(low)) == 15


@pytest.mark.parametrize(
    ("levels", "shares"),
    [
        ((-5, 0), (2, 2)),
        ((0, -5), (2, 2)),
        ((-5, -1), (4, 0)),
        ((-1, -5), (0, 4)),
        ((-1, 1), (4, 0)),
        ((-2, -2, -1), (2, 2, 0)),
        ((5, 0, -5), (0, 2, 2)),
    ],
)
async def test_levels_below_zero(levels, shares):
    """Verified against Apache Pulsar 4.2.4: a consumer of level 0 alone has its turn beside better levels."""
    bench = Bench()
    consumers = [await bench.join(permits=100, priority=level) for level in levels]
    for _ in range(4):
        bench.publish(entry())
    assert tuple(len(got(c)) for c in consumers) == shares


async def test_a_level_below_zero_gets_the_messages_that_level_zero_cannot_take():
    """Apache Pulsar delivers nothing while it is the turn of level 0."""
    bench = Bench()
    a = await bench.join(permits=100, priority=-5)
    b = await bench.join(permits=1)
    for _ in range(6):
        bench.publish(entry())
    assert (len(got(a)), len(got(b))) == (5, 1)
