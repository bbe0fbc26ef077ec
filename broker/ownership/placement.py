"""Chooses a broker among those that may serve a bundle: Apache Pulsar's filters in order, then its choice. Pure, but
for the memory of the strategies.

    1. brokers with fewer topics than loadBalancerBrokerMaxTopics
    2. anti-affinity: the failure domains with fewest namespaces of the group, of their brokers those with fewest
    3. evenly: brokers with fewest bundles of the namespace
    4. the strategy of loadBalancerLoadPlacementStrategy (``placement_strategies``); brokers take turns for namespaces
       that are excluded from shedding
    5. the strategy again, without the filters, if the chosen broker is overloaded and the new choice is not

A filter that would remove all brokers removes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from magnetar.broker.ownership.placement_strategies import (
    DEFAULT_STRATEGY,
    STRATEGIES,
    Choice,
    RoundRobinBrokerSelector,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from random import Random

    from magnetar.broker.ownership.broker_choice import Burden
    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.placement_strategies import PlacementRules, Strategy

__all__ = ["Placement", "Served", "is_better_elsewhere"]

_NO_DOMAIN: Final = "default"
_SYSTEM_NAMESPACE: Final = "pulsar/system"
T = TypeVar("T")


class Served:
    """The bundles that each broker serves or will get, by full name."""

    def __init__(self, bundles: Mapping[str, Collection[str]]) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        for broker, names in bundles.items():
            counts = self._counts[broker] = {}
            for namespace in [name.rpartition("/")[0] for name in set(names)]:
                counts[namespace] = counts.get(namespace, 0) + 1

    def namespaces(self) -> set[str]:
        return {namespace for counts in self._counts.values() for namespace in counts}

    def bundles_of(self, broker: str, namespace: str) -> int:
        return self._counts.get(broker, {}).get(namespace, 0)

    def count(self, broker: str, group: Collection[str]) -> int:
        """Namespaces of the group of which the broker has a bundle."""
        return sum(namespace in group for namespace in self._counts.get(broker, {}))


class Placement:
    """The choices of one leader. Strategies remember figures between choices."""

    def __init__(self, random: Random) -> None:
        self._strategies = {name: strategy(random) for name, strategy in STRATEGIES.items()}
        self._turns = RoundRobinBrokerSelector(random)
        """For namespaces that no shedding moves: they stay where they are."""

    def place(
        self,
        bundle: str,
        candidates: Mapping[str, LoadReport],
        served: Served,
        group: Collection[str],
        rules: PlacementRules,
        burden: Mapping[str, Burden],
    ) -> str | None:
        """The id of the chosen broker; None without candidates.

        bundle: its full name; group: the namespaces of the anti-affinity group, including that of the bundle; empty
        without a group.
        """
        left = _filtered(bundle, candidates, served, group, rules)
        strategy = self._strategy(rules)
        excluded = bundle.rpartition("/")[0] in rules.excluded_namespaces
        first = (self._turns if excluded else strategy).choose(Choice(bundle, left, burden, rules))
        if first is None or not rules.overloads(left[first]):
            return first
        second = strategy.choose(Choice(bundle, candidates, burden, rules))
        return first if second is None or rules.overloads(candidates[second]) else second

    def keep(self, brokers: Collection[str]) -> None:
        """Forget brokers that are not registered any more."""
        for strategy in self._strategies.values():
            strategy.keep(brokers)

    def _strategy(self, rules: PlacementRules) -> Strategy:
        """A strategy that this broker does not have (with loadBalancerEnabled=false) is the default."""
        return self._strategies.get(rules.strategy, self._strategies[DEFAULT_STRATEGY])


def is_better_elsewhere(broker: str, candidates: Collection[str], served: Served, group: Collection[str]) -> bool:
    """Whether a namespace of the group may leave the broker. If all brokers have equally many, it would come back."""
    if not group:
        return True
    counts = {name: served.count(name, group) for name in candidates}
    least = min(counts.values(), default=0)
    return least == 0 or counts.get(broker, 0) > least or any(count != least for count in counts.values())


def _filtered(
    bundle: str,
    candidates: Mapping[str, LoadReport],
    served: Served,
    group: Collection[str],
    rules: PlacementRules,
) -> dict[str, LoadReport]:
    namespace = bundle.rpartition("/")[0]
    left = {name: each for name, each in candidates.items() if each.num_topics <= rules.most_topics} or dict(candidates)
    if group:
        left = _apart(left, served, group, rules.domains)
    if rules.evenly or namespace == _SYSTEM_NAMESPACE:
        left = _least(left, {name: served.bundles_of(name, namespace) for name in left})
    return left


def _apart(
    candidates: dict[str, LoadReport], served: Served, group: Collection[str], domains: Mapping[str, str]
) -> dict[str, LoadReport]:
    counts = {name: served.count(name, group) for name in candidates}
    if domains:
        of_domain: dict[str, int] = {}
        for name, count in counts.items():
            domain = domains.get(name, _NO_DOMAIN)
            of_domain[domain] = of_domain.get(domain, 0) + count
        candidates = _least(candidates, {name: of_domain[domains.get(name, _NO_DOMAIN)] for name in candidates})
    return _least(candidates, {name: counts[name] for name in candidates})


def _least(candidates: dict[str, T], counts: Mapping[str, int]) -> dict[str, T]:
    least = min(counts.values(), default=0)
    return {name: each for name, each in candidates.items() if counts[name] == least}
