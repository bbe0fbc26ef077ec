"""Chooses a broker among those that may serve a bundle: Apache Pulsar's filters in order, then its choice. Pure.

    1. brokers with fewer topics than loadBalancerBrokerMaxTopics
    2. anti-affinity: the failure domains with fewest namespaces of the group, of their brokers those with fewest
    3. evenly: brokers with fewest bundles of the namespace
    4. the broker with the lowest message rate (``broker_choice``); with AvgShedder the broker for which the bundle was
       given up, any broker for another bundle

A filter that would remove all brokers removes none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from magnetar.broker.ownership.broker_choice import OVERLOADED_SHARE, Burden, choose_broker
from magnetar.broker.ownership.resource_weights import ResourceWeights

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from random import Random

    from magnetar.broker.ownership.cluster_nodes import LoadReport

__all__ = ["PlacementRules", "Served", "is_better_elsewhere", "place"]

_NO_DOMAIN: Final = "default"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """Settings ``loadBalancer*``; domains: broker id -> failure domain, empty without failureDomainsEnabled."""

    overloaded_share: float = OVERLOADED_SHARE
    most_topics: int = 50_000
    evenly: bool = True
    domains: Mapping[str, str] = field(default_factory=dict)
    weights: ResourceWeights = field(default_factory=ResourceWeights)
    expected: Mapping[str, str] | None = None
    """bundle -> broker by AvgShedder; None: LeastLongTermMessageRate."""


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


def place(
    bundle: str,
    candidates: Mapping[str, LoadReport],
    served: Served,
    group: Collection[str],
    rules: PlacementRules,
    burden: Mapping[str, Burden],
    random: Random,
) -> str | None:
    """The id of the chosen broker; None without candidates.

    bundle: its full name; group: the namespaces of the anti-affinity group, including that of the bundle; empty without
    a group.
    """
    namespace = bundle.rpartition("/")[0]
    left = {name: each for name, each in candidates.items() if each.num_topics <= rules.most_topics} or dict(candidates)
    if group:
        left = _apart(left, served, group, rules.domains)
    if rules.evenly:
        left = _least(left, {name: served.bundles_of(name, namespace) for name in left})
    if rules.expected is not None:
        expected = rules.expected.get(bundle)
        return expected if expected in left else random.choice(sorted(left)) if left else None
    return choose_broker(left, burden, random, rules.overloaded_share, rules.weights)


def is_better_elsewhere(broker: str, candidates: Collection[str], served: Served, group: Collection[str]) -> bool:
    """Whether a namespace of the group may leave the broker. If all brokers have equally many, it would come back."""
    if not group:
        return True
    counts = {name: served.count(name, group) for name in candidates}
    least = min(counts.values(), default=0)
    return least == 0 or counts.get(broker, 0) > least or any(count != least for count in counts.values())


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
