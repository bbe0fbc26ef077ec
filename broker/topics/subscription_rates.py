"""The rates of a topic's subscriptions: how fast entries are dispatched, and how often a consumer may subscribe."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from magnetar.broker.topics.rate_limits import SubscribeThrottle, Throttle, Throttles
from magnetar.broker.topics.rates_in_force import dispatch_limits, kept_dispatch

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.meters.rates import Rate
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.policies.values import DispatchRate, SubscribeRate
    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.context import TopicContext


class SubscriptionRates:
    """The dispatch rate of the topic, the dispatch rates of its subscriptions by name, and the subscribe rate.

    A rate that a change of policies does not change keeps its bucket, and with the bucket the debt of earlier reads.
    """

    def __init__(self, context: TopicContext, config: TopicConfig) -> None:
        self._context = context
        self._config = config
        self._dispatch: Throttle | None = None
        self._own: dict[str, Throttle] = {}
        self._subscribe: SubscribeThrottle | None = None
        self._subscribe_rate: SubscribeRate | None = None
        self.config_changed(config)

    def config_changed(self, config: TopicConfig) -> None:
        """Take the rates from the topic's policies. The caller then calls `throttle` again for each subscription."""
        self._config = config
        limits = dispatch_limits(config.dispatch_rate_in_force)
        self._dispatch = kept_dispatch(self._dispatch, limits, self._context.monotonic)
        rate = config.subscribe_rate_in_force
        if rate != self._subscribe_rate:
            self._subscribe_rate = rate
            self._subscribe = SubscribeThrottle(
                rate.subscribe_throttling_rate_per_consumer, rate.rate_period_in_second, self._context.monotonic
            )

    def throttle(self, subscription: Subscription) -> Throttles | None:
        """The dispatch rates that apply to the subscription: of the broker, of the topic, and its own."""
        context, config = self._context, self._config
        limits = dispatch_limits(self._own_rate(subscription.name))
        own = kept_dispatch(self._own.pop(subscription.name, None), limits, context.monotonic)
        if own is not None:
            self._own[subscription.name] = own
        levels = {"Broker": context.rates.dispatch(config), "Topic": self._dispatch, "Subscription": own}
        throttles = {level: each for level, each in levels.items() if each is not None}
        if not throttles:
            return None
        if subscription.dispatch_limited is None:
            subscription.dispatch_limited = Counter()
        return Throttles(
            *throttles.values(),
            counts_entries=config.dispatch_rates_count_entries,
            is_spared=subscription.is_caught_up if config.dispatch_rates_spare_caught_up else None,
            levels=tuple(throttles),
            limited=subscription.dispatch_limited,
        )

    def _own_rate(self, name: str) -> DispatchRate:
        """The dispatch rate of the subscription of that name."""
        config = self._config
        return config.subscription_rates.get(name, config.subscription_dispatch_rate_in_force)

    def published(self, rate: Rate) -> None:
        """Raise the dispatch rates that are relative to the publish rate by the publish rate of the last period."""
        config = self._config
        if self._dispatch is not None and config.dispatch_rate_in_force.relative_to_publish_rate:
            self._dispatch.allow_more(rate.messages_per_second, rate.bytes_per_second)
        for name, own in self._own.items():
            if self._own_rate(name).relative_to_publish_rate:
                own.allow_more(rate.messages_per_second, rate.bytes_per_second)

    def may_subscribe(self, consumer: Consumer) -> bool:
        """Count one SUBSCRIBE of the consumer; false when its rate is used up."""
        identity = (consumer.outbox.address.rpartition(":")[0], consumer.name, consumer.consumer_id)
        return self._subscribe is None or self._subscribe.try_subscribe(identity)

    def forget(self, name: str) -> None:
        """Forget the subscription of that name, and the debt of its rate."""
        self._own.pop(name, None)
