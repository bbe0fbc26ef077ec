import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.topics.rate_limits import (
    Limits,
    PublishThrottle,
    SubscribeThrottle,
    Throttle,
    Throttles,
    TokenBucket,
)


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def test_a_bucket_holds_a_period_and_refills_steadily():
    bucket = TokenBucket(10, 2.0, 0.0)
    assert bucket.room(0.0) == 10
    bucket.take(12, 0.0)
    assert bucket.room(0.0) == 0
    assert bucket.wait_s(0.0) == pytest.approx(3 / 5)
    assert bucket.room(0.6) == 1
    assert bucket.room(100.0) == 10


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 3)), max_size=50))
def test_no_more_than_a_period_ahead_of_the_rate_is_ever_taken(takes):
    bucket, now, taken = TokenBucket(10, 1.0, 0.0), 0.0, 0
    for count, wait in takes:
        now += wait
        if bucket.room(now) >= count:
            bucket.take(count, now)
            taken += count
        assert taken <= 10 + 10 * now + 1e-6


def test_unlimited_never_waits():
    clock = Clock()
    throttle = Throttle(Limits(0, -1), clock)
    throttle.take(10**9, 10**12)
    assert throttle.room() > 10**9
    assert throttle.wait_s() == 0


def test_several_throttles_are_all_kept():
    clock = Clock()
    both = Throttles(Throttle(Limits(5), clock), Throttle(Limits(0, 100), clock))
    both.take(1, 150)
    assert both.room() == 0
    clock.now_s += both.wait_s()
    assert both.room() == 5


def test_a_connection_over_the_publish_rate_is_held_until_the_debt_is_paid():
    clock, timers, log = Clock(), [], []

    class Connection:
        def hold_reading(self, _reason):
            log.append("held")

        def release_reading(self, _reason):
            log.append("released")

    throttle = PublishThrottle(Limits(5), clock, lambda wait, call: timers.append((wait, call)))
    connection = Connection()
    throttle.published(connection, 3, 0)
    assert not log
    throttle.published(connection, 12, 0)
    throttle.published(connection, 1, 0)
    assert log == ["held"]
    (wait, call), *more = timers
    assert wait == pytest.approx(11 / 5)
    assert not more
    clock.now_s += wait
    call()
    assert log == ["held", "released"]
    assert throttle.times_limited == 1


def test_subscribes_are_counted_for_each_consumer():
    clock = Clock()
    throttle = SubscribeThrottle(1, 30, clock)
    assert throttle.try_subscribe(("/h", "a", 1))
    assert not throttle.try_subscribe(("/h", "a", 1))
    assert throttle.try_subscribe(("/h", "b", 1))
    clock.now_s = 31
    assert throttle.try_subscribe(("/h", "a", 1))
    clock.now_s = 100
    throttle.try_subscribe(("/h", "c", 1))
    assert len(throttle._buckets) == 1, "what has refilled is forgotten"
