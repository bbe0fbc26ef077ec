"""The choice among the brokers that the filters of placement leave: Apache Pulsar's strategies, by their class names.
Pure, but for the memory of a strategy.

LeastLongTermMessageRate      the broker with the lowest message rate over a long time (``broker_choice``)
LeastResourceUsageWithWeight  a broker whose usage is below the average by a threshold, at random; without such a
                              broker any. The usage is that of the weighted resource used most, smoothed over the
                              choices
RoundRobinBrokerSelector      one broker after the other
AvgShedder                    the broker for which the shedding strategy of this name gave the bundle up; any broker
                              for another bundle
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.broker.compat.java_order import java_order
from magnetar.broker.ownership.broker_choice import OVERLOADED_SHARE, Burden, choose_broker
from magnetar.broker.ownership.resource_weights import ResourceWeights, average_usage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from random import Random

    from magnetar.broker.ownership.cluster_nodes import LoadReport

__all__ = ["DEFAULT_STRATEGY", "STRATEGIES", "Choice", "PlacementRules", "RoundRobinBrokerSelector", "Strategy"]

DEFAULT_STRATEGY: Final = "LeastLongTermMessageRate"
_LARGEST_INT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """Settings ``loadBalancer*``; domains: broker id -> failure domain, empty without failureDomainsEnabled."""

    strategy: str = DEFAULT_STRATEGY
    overloaded_share: float = OVERLOADED_SHARE
    most_topics: int = 50_000
    evenly: bool = True
    domains: Mapping[str, str] = field(default_factory=dict)
    weights: ResourceWeights = field(default_factory=ResourceWeights)
    usage_difference: float = 0.1
    """LeastResourceUsageWithWeight: how far a broker is below the average usage."""
    history_share: float = 0.9
    expected: Mapping[str, str] = field(default_factory=dict)
    """AvgShedder: bundle -> broker."""
    excluded_namespaces: tuple[str, ...] = ()
    """Namespaces whose bundles no shedding moves."""

    def overloads(self, report: LoadReport) -> bool:
        """Whether the broker of this report is overloaded."""
        return self.weights.usage(report) > self.overloaded_share


@dataclass(frozen=True, slots=True)
class Choice:
    """The facts of one choice."""

    bundle: str
    candidates: Mapping[str, LoadReport]
    burden: Mapping[str, Burden]
    rules: PlacementRules


class Strategy(ABC):
    """One strategy of a leader. `random`: decides between equal brokers."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, choice: Choice) -> str | None:
        """Return the id of a broker, None without candidates."""
        return self._choose(choice) if choice.candidates else None

    def keep(self, brokers: Collection[str]) -> None:  # noqa: B027 - a strategy may remember nothing
        """Forget all other brokers."""

    @abstractmethod
    def _choose(self, choice: Choice) -> str | None:
        """Like ``choose``, with one candidate at least."""


class LeastLongTermMessageRate(Strategy):
    """Remembers nothing: the averages are those of the leader."""

    def _choose(self, choice: Choice) -> str | None:
        rules = choice.rules
        return choose_broker(choice.candidates, choice.burden, self._random, rules.overloaded_share, rules.weights)


class LeastResourceUsageWithWeight(Strategy):
    """Remembers usage. A broker without bundles or without messages begins anew, so that a broker that has started
    again has the usage of its report.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._usage: dict[str, float] = {}

    def keep(self, brokers: Collection[str]) -> None:
        self._usage = {name: each for name, each in self._usage.items() if name in brokers}

    def _choose(self, choice: Choice) -> str | None:
        usage = {name: self._smoothed(name, report, choice.rules) for name, report in choice.candidates.items()}
        self._usage.update(usage)
        average = average_usage(usage.values())
        best = [name for name, each in usage.items() if each + choice.rules.usage_difference <= average]
        return self._random.choice(sorted(best or usage))

    def _smoothed(self, name: str, report: LoadReport, rules: PlacementRules) -> float:
        before, now = self._usage.get(name), rules.weights.usage(report)
        if before is None or not report.bundles or report.msg_rate_in == report.msg_rate_out == 0:
            return now
        return before * rules.history_share + now * (1 - rules.history_share)


class RoundRobinBrokerSelector(Strategy):
    """Remembers an order of brokers and the number of its choices. Another number of candidates, or a turn of a broker
    that is no candidate, is a reason for a new order.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._order: list[str] = []
        self._count = 0

    def _choose(self, choice: Choice) -> str | None:
        candidates = choice.candidates
        index = self._count % len(candidates)
        self._count = 0 if self._count == _LARGEST_INT else self._count + 1
        if len(self._order) != len(candidates) or self._order[index] not in candidates:
            self._order = java_order(candidates)
        return self._order[index]


class AvgShedder(Strategy):
    """Remembers nothing: the rules have the expectations of the shedding strategy."""

    def _choose(self, choice: Choice) -> str | None:
        expected = choice.rules.expected.get(choice.bundle)
        return expected if expected in choice.candidates else self._random.choice(sorted(choice.candidates))


STRATEGIES: Final[Mapping[str, type[Strategy]]] = {
    each.__name__: each
    for each in (LeastLongTermMessageRate, LeastResourceUsageWithWeight, RoundRobinBrokerSelector, AvgShedder)
}
