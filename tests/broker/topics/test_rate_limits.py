import dataclasses
import gc
import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.policies.effective import effective_config
from magnetar.broker.policies.records import Policies, TopicPolicies
from magnetar.broker.policies.values import DispatchRate, PublishRate, SubscribeRate
from magnetar.broker.settings import Settings
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.rate_limits import (
    LEAST_WAIT_S,
    Limits,
    PeriodBucket,
    PublishThrottle,
    PublishThrottles,
    SubscribeThrottle,
    Throttle,
    Throttles,
    TokenBucket,
)
from magnetar.broker.topics.rates_in_force import BrokerRates, TopicPublishRate
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.storage.managed_for_tests import run_of
from tests.twins.fake_connection import FakeConnection


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


def test_a_wait_counts_for_the_first_throttle_that_is_used_up():
    clock, limited = Clock(), Counter()
    topic, own = Throttle(Limits(5), clock), Throttle(Limits(5, 100), clock)
    both = Throttles(topic, own, levels=("Topic", "Subscription"), limited=limited)
    both.note_wait()
    assert not limited
    own.take(5, 100)
    both.note_wait()
    assert limited == {("Msg", "Subscription"): 1, ("Bytes", "Subscription"): 1}
    topic.take(5, 1)
    both.note_wait()
    assert limited[("Msg", "Topic")] == 1
    assert limited[("Msg", "Subscription")] == 1


def test_a_connection_over_the_publish_rate_is_held_until_the_debt_is_paid():
    clock, timers, log = Clock(), [], []

    class Connection(FakeConnection):
        def hold_reading(self, reason):
            super().hold_reading(reason)
            log.append("held")

        def release_reading(self, reason):
            super().release_reading(reason)
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
    assert log == ["held"], "one more came while it was held"
    wait, call = timers[-1]
    assert wait == pytest.approx(1 / 5)
    clock.now_s += wait
    call()
    assert log == ["held", "released"]
    assert throttle.times_limited == 1


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40)), min_size=1, max_size=20),
    st.integers(0, 12),
    st.integers(0, 200),
    st.integers(0, 100),
)
def test_the_entries_of_a_run_pass_a_publish_rate_one_by_one(entries, messages, size, taken):
    """As when each entry came alone: an entry passes while tokens are left."""
    run = run_of([b"x" * length for _, length in entries], [count for count, _ in entries])
    throttle = PublishThrottle(Limits(messages, size), Clock(), lambda _wait, _call: None)
    throttle.published(FakeConnection(), 0, taken)
    bounds = [messages or 1 << 62, (size - taken if size else 1 << 62)]
    start = 0
    for end, (count, length) in enumerate(entries, 1):
        bounds = [max(bounds[0], 0) - count, max(bounds[1], 0) - length]
        if min(bounds) <= 0:
            assert throttle.last_of(run, start, run.count) == end
            start, bounds = end, [messages or 1 << 62, (size - taken if size else 1 << 62)]
            if start == run.count:
                return
    assert throttle.last_of(run, start, run.count) == run.count


def test_a_wide_rate_looks_at_no_entries_that_wait_for_a_narrow_rate(monkeypatch):
    """Each time tokens came, every waiting connection walked over all of its entries: 9 ms for 26,000 entries."""
    looked = []

    class Counts(list):
        def __getitem__(self, i):
            looked.append(i)
            return super().__getitem__(i)

    run = run_of([b"x"] * 1000, [1] * 1000)
    monkeypatch.setattr(run, "message_counts", lambda: Counts([1] * 1000))
    wide, narrow = (PublishThrottle(Limits(limit), Clock(), lambda _wait, _call: None) for limit in (1_000_000, 2))
    for pair in (PublishThrottles(wide, narrow), PublishThrottles(narrow, wide)):
        looked.clear()
        assert pair.last_of(run, 10, run.count) == 12
        assert looked == [10, 11]


def test_a_publish_rate_keeps_no_connection_that_has_ended():
    """Clients that left a debt and their connections filled the memory until the debt was paid."""
    clock, timers = Clock(), []
    throttle = PublishThrottle(Limits(1), clock, lambda wait, call: timers.append((wait, call)))
    ended = []
    for _ in range(5):
        connection = FakeConnection()
        ended.append(weakref.ref(connection))
        throttle.published(connection, 1000, 0)
        del connection
        gc.collect()
    assert [each() for each in ended] == [None] * 5
    assert len(timers) == 1

    last = FakeConnection()
    throttle.published(last, 1000, 0)
    clock.now_s = 6001.0
    timers.pop()[1]()
    assert not last.held and not timers
    throttle.published(last, 1000, 0)
    assert last.held and len(timers) == 1


def test_a_wait_for_a_publish_rate_that_is_too_short_for_the_clock_is_over():
    """The rate called itself for ever at 0.243 s: the rest of the debt took 3.6e-18 s."""
    clock, timers = Clock(), []
    throttle = PublishThrottle(Limits(1000), clock, lambda wait, call: timers.append((wait, call)))
    connection = FakeConnection()
    throttle.published(connection, 1000, 0)
    for _ in range(2000):
        ((wait, call),) = timers
        timers.clear()
        clock.now_s += wait
        call()
        assert not connection.held
        throttle.published(connection, 27, 0)


def test_a_high_publish_rate_lets_connections_wait_for_the_tokens_of_many_messages():
    clock, timers = Clock(), []
    throttle = PublishThrottle(Limits(100_000), clock, lambda wait, call: timers.append((wait, call)))
    throttle.published(FakeConnection(), 100_000, 0)
    ((wait, _),) = timers
    assert wait == pytest.approx(LEAST_WAIT_S)


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


# --- rates of the broker and of several topics -----------------------------------------------------------------------


class Timers:
    """Callbacks with their times; the test runs them."""

    def __init__(self, clock):
        self.clock, self.due = clock, []

    def __call__(self, seconds, callback):
        self.due.append((self.clock.now_s + seconds, callback))

    def run_until(self, now_s):
        while self.due and min(at for at, _ in self.due) <= now_s:
            at, callback = self.due.pop(min(range(len(self.due)), key=lambda i: self.due[i][0]))
            self.clock.now_s = max(self.clock.now_s, at)
            callback()
        self.clock.now_s = now_s


def test_a_connection_waits_for_each_topic_it_is_over_the_rate_of():
    clock = Clock()
    timers = Timers(clock)
    slow, fast = (PublishThrottle(Limits(rate), clock, timers) for rate in (1, 10))
    connection = FakeConnection()
    slow.published(connection, 5, 1)
    fast.published(connection, 11, 1)
    timers.run_until(1.0)
    assert connection.held, "the other topic's debt is not paid"
    timers.run_until(6.0)
    assert not connection.held


def test_connections_are_not_read_while_others_make_new_debt():
    clock = Clock()
    timers = Timers(clock)
    throttle = PublishThrottle(Limits(10), clock, timers)
    first, second = FakeConnection(), FakeConnection()
    throttle.published(first, 20, 1)
    throttle.published(second, 50, 1)
    timers.run_until(1.5)
    assert first.held
    timers.run_until(7.0)
    assert not first.held
    assert not second.held


def test_the_broker_and_the_topic_are_both_kept():
    clock = Clock()
    timers = Timers(clock)
    rates = BrokerRates(clock, timers)
    topic = TopicPublishRate(rates)
    config = effective_config(
        Settings(max_publish_rate_per_topic_in_messages=100, broker_publisher_throttling_max_message_rate=10),
        Policies(),
        TopicPolicies(),
    )
    throttle = topic.throttle(config)
    connection = FakeConnection()
    throttle.published(connection, 20, 1)
    assert connection.held
    assert topic.times_limited == 0, "it was the broker's rate"
    timers.run_until(2.0)
    assert not connection.held
    assert TopicPublishRate(rates).throttle(effective_config(Settings(), Policies(), TopicPolicies())) is None


def test_a_rate_that_did_not_change_keeps_its_debt():
    clock = Clock()
    topic = TopicPublishRate(BrokerRates(clock, Timers(clock)))
    config = effective_config(Settings(max_publish_rate_per_topic_in_bytes=10), Policies(), TopicPolicies())
    throttle = topic.throttle(config)
    throttle.published(FakeConnection(), 1, 1000)
    assert topic.throttle(dataclasses.replace(config, message_ttl_seconds=5)) is throttle
    assert topic.times_limited == 1
    changed = dataclasses.replace(config, publish_rate=PublishRate(publish_throttling_rate_in_msg=5))
    assert topic.throttle(changed) is not throttle
    assert topic.times_limited == 1, "the count belongs to the topic"


def test_dispatch_rates_spare_subscriptions_that_are_caught_up():
    clock = Clock()
    backlog = [0]
    throttles = Throttles(Throttle(Limits(5), clock), is_spared=lambda: backlog[0] < 1000)
    throttles.take(100, 1)
    assert throttles.room() > 1000
    backlog[0] = 1000
    assert throttles.room() == 5
    throttles.take(100, 1)
    assert throttles.room() == 0


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("dispatch_throttling_rate_per_topic_in_msg", "dispatch_rate", DispatchRate),
        ("dispatch_throttling_rate_per_subscription_in_msg", "subscription_dispatch_rate", DispatchRate),
        ("dispatch_throttling_rate_in_msg", "broker_dispatch_rate", DispatchRate),
    ],
)
def test_settings_are_the_rates_where_no_policy_is(key, field, value):
    config = effective_config(Settings(**{key: 7}), Policies(), TopicPolicies())
    assert getattr(config, field) == value(dispatch_throttling_rate_in_msg=7, rate_period_in_second=1)
    own = DispatchRate(dispatch_throttling_rate_in_msg=3, rate_period_in_second=2)
    if field != "broker_dispatch_rate":
        config = effective_config(Settings(**{key: 7}), Policies(), TopicPolicies(**{field: own}))
        assert getattr(config, field) == own


def test_a_rate_relative_to_the_publish_rate():
    clock = Clock()
    throttle = Throttle(Limits(10, 0, 2.0), clock)
    throttle.take(10, 1)
    throttle.allow_more(100.0, 1.0)
    assert throttle.room() == 200
    throttle.take(200, 1)
    clock.now_s += 1.0
    assert throttle.room() == 105
    throttle.allow_more(0.0, 0.0)
    clock.now_s += 1000
    assert throttle.room() == 10


NO_RATE = DispatchRate(dispatch_throttling_rate_in_msg=-1, dispatch_throttling_rate_in_byte=0)


def test_a_policy_cannot_lift_the_rate_of_the_namespace_or_the_broker():
    settings = Settings(
        dispatch_throttling_rate_per_topic_in_msg=5,
        dispatch_throttling_rate_per_subscription_in_msg=6,
        max_publish_rate_per_topic_in_messages=7,
        subscribe_throttling_rate_per_consumer=8,
    )
    topic = TopicPolicies(
        dispatch_rate=NO_RATE,
        subscription_dispatch_rate=NO_RATE,
        publish_rate=PublishRate(),
        subscribe_rate=SubscribeRate(),
    )
    config = effective_config(settings, Policies(), topic)
    assert config.dispatch_rate == NO_RATE, "shown as it was set"
    assert config.dispatch_rate_in_force.dispatch_throttling_rate_in_msg == 5
    assert config.subscription_dispatch_rate_in_force.dispatch_throttling_rate_in_msg == 6
    assert config.publish_rate.publish_throttling_rate_in_msg == 7
    assert config.subscribe_rate_in_force.subscribe_throttling_rate_per_consumer == 8
    of_namespace = {"standalone": DispatchRate(dispatch_throttling_rate_in_msg=3)}
    config = effective_config(settings, Policies(topic_dispatch_rate=of_namespace), topic)
    assert config.dispatch_rate_in_force.dispatch_throttling_rate_in_msg == 3
    more = DispatchRate(dispatch_throttling_rate_in_msg=500)
    config = effective_config(settings, Policies(topic_dispatch_rate=of_namespace), TopicPolicies(dispatch_rate=more))
    assert config.dispatch_rate_in_force == more, "another limit is one"


@pytest.mark.parametrize("rate", [PublishRate(), PublishRate(publish_throttling_rate_in_msg=1000)])
@pytest.mark.parametrize("of", ["publish_rate", "broker_publish_rate"])
def test_a_changed_publish_rate_releases_the_connections_that_paid_for_the_rate_before(rate, of):
    """A rate set by mistake, of a message a second, would hold a producer of a thousand messages for a quarter of an
    hour after its correction.
    """
    clock = Clock()
    timers = Timers(clock)
    topic = TopicPublishRate(BrokerRates(clock, timers))
    config = effective_config(Settings(), Policies(), TopicPolicies())
    slow = dataclasses.replace(config, **{of: PublishRate(publish_throttling_rate_in_msg=1)})
    connection = FakeConnection()
    topic.throttle(slow).published(connection, 1000, 1)
    assert connection.held
    after = topic.throttle(dataclasses.replace(config, **{of: rate}))
    assert not connection.held
    if after is not None:
        after.published(connection, 1001, 1)
        assert connection.held
        timers.run_until(1.0)
        assert not connection.held
    timers.run_until(2000.0)
    assert not connection.held


@pytest.mark.parametrize("persistent", [True, False])
async def test_a_topic_that_closes_releases_the_connections_that_wait_for_its_rate(persistent):
    bench = TopicBench()
    bench.own = TopicPolicies(publish_rate=PublishRate(publish_throttling_rate_in_msg=1))
    topic = await bench.open() if persistent else NonPersistentTopic(NAME, bench.context)
    connection = FakeConnection()
    topic.publishing.policy.throttle.published(connection, 1000, 1)
    assert connection.held
    await topic.close()
    assert not connection.held
    await bench.tasks.close()


def test_a_period_bucket_is_filled_at_the_end_of_each_period():
    bucket = PeriodBucket(3, 2.0, 0.0)
    assert (bucket.room(100.0), bucket.wait_s(100.0)) == (3, 0.0)
    bucket.take(3, 100.5)
    assert (bucket.room(102.4), bucket.room(102.5)) == (0, 3)
    bucket.take(7, 102.5)
    assert bucket.wait_s(103.0) == 3.5
    assert (bucket.room(104.5), bucket.room(106.5)) == (0, 2), "the debt counts in later periods"
    assert bucket.room(1000.0) == 3


def test_a_period_bucket_has_room_at_the_end_of_its_wait():
    """The quotient of 10 s and the period rounded to less than 1: no room, and a wait of 0 s."""
    bucket = PeriodBucket(1, 10.0, 1014.1)
    bucket.take(1, 1014.1)
    over_s = 1014.1 + bucket.wait_s(1014.1)
    assert (bucket.wait_s(over_s), bucket.room(over_s)) == (0.0, 1)


def test_a_period_bucket_without_a_limit():
    bucket = PeriodBucket(0, 0, 0.0)
    bucket.take(5, 0.0)
    assert bucket.room(0.0) > 1 << 60
    assert bucket.wait_s(0.0) == 0.0
    bucket.set_limit(2, 0, 1.0)
    bucket.take(2, 1.0)
    assert (bucket.room(1.9), bucket.room(2.0)) == (0, 2)


def test_bytes_that_may_go_now():
    clock = Clock()
    assert Throttles(Throttle(Limits(5, 100), clock), Throttle(Limits(0, 70), clock)).room_bytes() == 70
