"""Rates of a topic's subscriptions: which buckets are kept, which are made anew."""

from types import SimpleNamespace

from magnetar.broker.meters.rates import Rate
from magnetar.broker.policies.effective import effective_config
from magnetar.broker.policies.records import Policies, TopicPolicies
from magnetar.broker.policies.values import DispatchRate, SubscribeRate
from magnetar.broker.settings import Settings
from magnetar.broker.topics.rates_in_force import BrokerRates
from magnetar.broker.topics.subscription_rates import SubscriptionRates
from tests.twins.fake_connection import FakeConnection


class Context:
    """The part of a topic's context that the rates use: a clock and the rates of the broker."""

    def __init__(self):
        self.now_s = 0.0
        self.rates = BrokerRates(self.monotonic, lambda _seconds, _callback: None)

    def monotonic(self):
        return self.now_s


def config(**policies):
    return effective_config(Settings(), Policies(), TopicPolicies(**policies))


def rate(messages, **values):
    return DispatchRate(dispatch_throttling_rate_in_msg=messages, rate_period_in_second=1, **values)


def subscription(name="s"):
    return SimpleNamespace(name=name, is_caught_up=lambda: False, dispatch_limited=None)


def test_without_a_rate_there_is_no_throttle():
    assert SubscriptionRates(Context(), config()).throttle(subscription()) is None


def test_the_rate_of_the_topic_is_shared_and_that_of_a_subscription_is_its_own():
    rates = SubscriptionRates(Context(), config(dispatch_rate=rate(10), subscription_dispatch_rate=rate(4)))
    first, second = (rates.throttle(subscription(name)) for name in "ab")
    first.take(4, 1)
    assert first.room() == 0
    assert second.room() == 4
    second.take(4, 1)
    assert rates.throttle(subscription("c")).room() == 2, "the topic has two left"


def test_a_rate_that_stays_the_same_keeps_its_debt():
    rates = SubscriptionRates(Context(), config(subscription_dispatch_rate=rate(4)))
    rates.throttle(subscription()).take(4, 1)
    rates.config_changed(config(subscription_dispatch_rate=rate(4), dispatch_rate=rate(100)))
    assert rates.throttle(subscription()).room() == 0
    rates.config_changed(config(subscription_dispatch_rate=rate(5)))
    assert rates.throttle(subscription()).room() == 5


def test_a_subscription_that_is_forgotten_leaves_no_debt():
    rates = SubscriptionRates(Context(), config(subscription_dispatch_rate=rate(4)))
    rates.throttle(subscription()).take(4, 1)
    rates.forget("s")
    assert rates.throttle(subscription()).room() == 4


def test_rates_relative_to_the_publish_rate_follow_it():
    rates = SubscriptionRates(Context(), config(dispatch_rate=rate(10, relative_to_publish_rate=True)))
    throttle = rates.throttle(subscription())
    throttle.take(10, 1)
    rates.published(Rate(100.0, 1.0, 0.01))
    assert throttle.room() == 100


def test_a_consumer_may_subscribe_as_often_as_the_rate_says():
    context = Context()
    rates = SubscriptionRates(
        context,
        config(subscribe_rate=SubscribeRate(subscribe_throttling_rate_per_consumer=1, rate_period_in_second=30)),
    )
    consumer, other = (SimpleNamespace(outbox=FakeConnection(), name="c", consumer_id=i) for i in range(2))
    assert rates.may_subscribe(consumer)
    assert not rates.may_subscribe(consumer)
    assert rates.may_subscribe(other)
    context.now_s = 31.0
    assert rates.may_subscribe(consumer)


def test_waits_count_by_level_and_go_on_when_a_rate_changes():
    context, one = Context(), subscription()
    rates = SubscriptionRates(context, config(subscription_dispatch_rate=rate(2)))
    first = rates.throttle(one)
    first.take(2, 1)
    first.note_wait()
    assert one.dispatch_limited == {("Msg", "Subscription"): 1}
    rates.config_changed(config(dispatch_rate=rate(1)))
    later = rates.throttle(one)
    later.take(1, 1)
    later.note_wait()
    assert one.dispatch_limited == {("Msg", "Subscription"): 1, ("Msg", "Topic"): 1}
