"""The leader's choice of a broker for a bundle, and its earlier choices.

While the chosen broker is a candidate the leader repeats its choice: until the first lookup has reached that broker,
and later, when that broker has released the bundle for a moment.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar.broker.errors import MetadataError
from magnetar.broker.ownership.broker_figures import BrokerFigures
from magnetar.broker.ownership.given_bundles import GivenBundles
from magnetar.broker.ownership.placement import Placement, Served, is_better_elsewhere

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from random import Random

    from magnetar.broker.ownership.broker_choice import Burden
    from magnetar.broker.ownership.bundle_map import BundleMap
    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.load_averages import LoadAverages
    from magnetar.broker.ownership.ports import BundleTopics

__all__ = ["Assignments"]


class Assignments:
    """The choices of the leader; ``given`` has the choices until now."""

    def __init__(self, topics: BundleTopics, bundles: BundleMap, averages: LoadAverages, random: Random) -> None:
        self.given = GivenBundles()
        self._figures = BrokerFigures(averages)
        self._placement = Placement(random)
        self._topics, self._bundles = topics, bundles

    async def choose(self, bundle: str, candidates: Mapping[str, LoadReport], *, otherwise: str) -> str:
        """Return the broker of the bundle and keep the choice: the broker that got the bundle before if it is a
        candidate, else the best candidate, or ``otherwise`` without candidates. Raises StorageError.
        """
        chosen = self.given.get(bundle)
        if chosen is None or chosen not in candidates:
            chosen = await self._place(bundle, candidates) or otherwise
            self.given.give(bundle, chosen, candidates[chosen].last_update if chosen in candidates else None)
        return chosen

    def keep(self, brokers: Collection[str]) -> None:
        """Forget figures of brokers that are not registered any more."""
        self._placement.keep(brokers)

    async def destination(self, bundle: str, source: str, reports: Mapping[str, LoadReport]) -> str | None:
        """Return the broker that would get the bundle from its present owner, None if the bundle stays. Raises
        StorageError.
        """
        namespace = bundle.rpartition("/")[0]
        candidates = self._topics.eligible(namespace, reports)
        if not await self.may_leave(bundle, source, reports):
            return None
        chosen = await self._place(bundle, candidates)
        return None if chosen == source else chosen

    async def may_leave(self, bundle: str, source: str, reports: Mapping[str, LoadReport]) -> bool:
        """Whether isolation policies and the anti-affinity group let another broker have the bundle."""
        namespace = bundle.rpartition("/")[0]
        candidates = self._topics.eligible(namespace, reports)
        if not candidates.keys() - {source}:
            return False
        served, group = await self._served(namespace, candidates)
        return is_better_elsewhere(source, candidates, served, group)

    async def _place(self, bundle: str, candidates: Mapping[str, LoadReport]) -> str | None:
        """Choose a broker by the rules of placement; bundles assigned since the reports were written count."""
        served, group = await self._served(bundle.rpartition("/")[0], candidates)
        rules, burden = self._topics.placement(), self._burden(candidates)
        return self._placement.place(bundle, candidates, served, group, rules, burden)

    def _burden(self, candidates: Mapping[str, LoadReport]) -> dict[str, Burden]:
        given, figures = self.given, self._figures
        figures.keep(candidates.keys())
        return {
            name: (figures.rate(name, report, given.coming(name, report.last_update)), given.count(name))
            for name, report in candidates.items()
        }

    async def _served(self, namespace: str, reports: Mapping[str, LoadReport]) -> tuple[Served, set[str]]:
        """The bundles that each broker serves or will get, and the namespaces of the anti-affinity group of this
        namespace. Without a group the bundles are those of the namespace alone.
        """
        group = await self._anti_affinity_group(namespace)
        if group is None:
            return Served({name: self._of_namespace(name, each, namespace) for name, each in reports.items()}), set()
        given = self.given
        served = Served(
            {name: {*each.bundles, *each.last_stats, *given.of_broker(name)} for name, each in reports.items()}
        )
        others = [each for each in served.namespaces() if await self._anti_affinity_group(each) == group]
        return served, {namespace, *others}

    def _of_namespace(self, broker: str, report: LoadReport, namespace: str) -> set[str]:
        reported = self._figures.of_namespace(broker, report, namespace)
        return {*reported, *self.given.of_namespace(broker, namespace)}

    async def _anti_affinity_group(self, namespace: str) -> str | None:
        """Groups are compared without case, as in Apache Pulsar. A namespace that cannot be read has none."""
        with contextlib.suppress(MetadataError):
            group = (await self._bundles.policies(namespace)).anti_affinity_group
            return group.lower() if group and group.strip() else None
        return None
