"""The rates in force for a topic, made of its configuration; rates shared by the broker exist once.

A rate that did not change keeps its bucket, so that a change of another policy does not reset it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.topics.rate_limits import Limits, PeriodBucket, PublishThrottle, PublishThrottles, Throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.policies.values import DispatchRate, PublishRate

AnyPublishThrottle = PublishThrottle | PublishThrottles


def dispatch_limits(rate: DispatchRate) -> Limits:
    """A dispatch rate with plain values."""
    return Limits(
        rate.dispatch_throttling_rate_in_msg, rate.dispatch_throttling_rate_in_byte, rate.rate_period_in_second or 1
    )


def publish_limits(rate: PublishRate) -> Limits:
    """A publish rate with plain values."""
    return Limits(rate.publish_throttling_rate_in_msg, rate.publish_throttling_rate_in_byte)


class BrokerRates:
    """Throttles that all topics of a broker share; None while their rate is unlimited."""

    def __init__(
        self, monotonic: Callable[[], float], call_later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self.monotonic = monotonic
        self.call_later = call_later
        self._dispatch: Throttle | None = None
        self._publish: PublishThrottle | None = None

    def dispatch(self, config: TopicConfig) -> Throttle | None:
        self._dispatch = kept_dispatch(self._dispatch, dispatch_limits(config.broker_dispatch_rate), self.monotonic)
        return self._dispatch

    def publish(self, config: TopicConfig) -> PublishThrottle | None:
        self._publish = self.kept_publish(self._publish, publish_limits(config.broker_publish_rate))
        return self._publish

    def kept_publish(self, before: PublishThrottle | None, limits: Limits) -> PublishThrottle | None:
        """Return the throttle with `limits`: `before` when its limits are the same, None without limits. Any other
        throttle before ends.
        """
        if before is not None and before.limits == limits:
            return before
        if before is not None:
            before.end()
        if not limits.is_set:
            return None
        return PublishThrottle(limits, self.monotonic, self.call_later)


def kept_dispatch(before: Throttle | None, limits: Limits, monotonic: Callable[[], float]) -> Throttle | None:
    """Return the throttle with `limits`: `before` when its limits are the same, None without limits."""
    if not limits.is_set:
        return None
    return before if before is not None and before.limits == limits else Throttle(limits, monotonic, PeriodBucket)


class TopicPublishRate:
    """The publish rates of the producers of one topic."""

    def __init__(self, rates: BrokerRates) -> None:
        self._rates = rates
        self._own: PublishThrottle | None = None
        self._limited_before = 0
        """How often the rates of earlier policies held a connection."""

    @property
    def times_limited(self) -> int:
        """How often a publish rate of the topic held a connection."""
        return self._limited_before + (0 if self._own is None else self._own.times_limited)

    def end(self) -> None:
        """Read the connections that wait for the topic's rate again: the topic is closed."""
        if self._own is not None:
            self._own.end()

    def throttle(self, config: TopicConfig) -> AnyPublishThrottle | None:
        """Return the throttle for later publishes; None while neither the topic nor the broker has a publish rate."""
        own = self._rates.kept_publish(self._own, publish_limits(config.publish_rate))
        if own is not self._own:
            self._limited_before, self._own = self.times_limited, own
        shared = self._rates.publish(config)
        if self._own is None or shared is None:
            return self._own or shared
        return PublishThrottles(self._own, shared)
