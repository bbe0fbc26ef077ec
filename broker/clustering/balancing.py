"""The leader's balancing of load: overloaded brokers give up bundles, large bundles are split.

The leader calls the owner of a bundle, which unloads or splits the bundle in order. Only the leader acts. If two
brokers are leaders for a moment, they may move or split a bundle twice, which costs a reconnection of its clients.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from magnetar.broker.errors import BrokerError, RestError
from magnetar.broker.ownership.auto_split import SplitRules, bundles_to_split
from magnetar.broker.ownership.placement_strategies import PlacementRules
from magnetar.broker.ownership.resource_weights import ResourceWeights
from magnetar.broker.ownership.shedding import SHEDDERS, Shedder, SheddingRules, ThresholdShedder
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from magnetar.broker.ownership.bundle_ownership import BundleOwnership
    from magnetar.broker.policies.values import BundlesData
    from magnetar.broker.settings import Settings

__all__ = [
    "Balancing",
    "BalancingFigures",
    "Calls",
    "make_shedder",
    "placement_rules",
    "resource_weights",
    "shedding_rules",
    "split_rules",
]

log = structlog.get_logger(__name__)

_MINUTE_S: Final = 60.0
_LEAST_BROKERS: Final = 2
"""With one broker a split has no use: the broker would serve both parts."""


class Calls(Protocol):
    """Admin calls to the brokers of the cluster; each call goes to the owner of its bundle."""

    async def call(self, method: str, path: str, body: object = None) -> object:
        """Raises RestError."""
        ...


@dataclass(slots=True)
class BalancingFigures:
    """Counts since the start; those of a broker that never was the leader stay 0."""

    unloaded_brokers: int = 0
    unloaded_bundles: int = 0
    splits: int = 0


class Balancing:
    """``run`` until it is cancelled; ``shed`` and ``split`` are one pass each."""

    def __init__(
        self,
        settings: Settings,
        ownership: BundleOwnership,
        calls: Calls,
        policy_bundles: Callable[[str], BundlesData | None],
        now_s: Callable[[], float],
    ) -> None:
        self.figures = BalancingFigures()
        self._settings, self._ownership, self._calls = settings, ownership, calls
        self._policy_bundles, self._now_s = policy_bundles, now_s
        self._shedder = make_shedder(settings)

    @property
    def expected(self) -> Mapping[str, str]:
        """Bundle -> next broker, if the shedding strategy chooses the next broker as well (AvgShedder)."""
        return self._shedder.expected

    async def run_shedding(self) -> None:
        """The settings may change while the broker runs."""
        settings = self._settings
        while True:
            await asyncio.sleep(settings.load_balancer_shedding_interval_minutes * _MINUTE_S)
            if settings.load_balancer_enabled and settings.load_balancer_shedding_enabled:
                await self._logged("shedding", self.shed)

    async def run_splitting(self) -> None:
        settings = self._settings
        while True:
            await asyncio.sleep(settings.load_balancer_split_interval_minutes * _MINUTE_S)
            if settings.load_balancer_enabled and settings.load_balancer_auto_bundle_split_enabled:
                await self._logged("splitting", self.split)

    async def shed(self) -> None:
        """Raises StorageError."""
        register, assignments = self._ownership.register, self._ownership.assignments
        if not register.is_leader:
            return
        self._shedder.rules = shedding_rules(self._settings)
        reports = await register.candidates(persistent=True)
        relieved = set()
        smooth = self._ownership.averages.short_term(reports)
        for broker, bundle in self._shedder.plan(smooth, self._now_s()):
            target = await assignments.destination(bundle, broker, reports)
            if target is None:
                log.info("bundle.stays", bundle=bundle, broker=broker)
                continue
            log.info("bundle.shed", bundle=bundle, broker=broker, target=target)
            if await self._call(f"/admin/v2/namespaces/{bundle}/unload?destinationBroker={target}"):
                self._shedder.moved(bundle, self._now_s())
                self.figures.unloaded_bundles += 1
                relieved.add(broker)
        self.figures.unloaded_brokers += len(relieved)

    async def split(self) -> None:
        """Raises StorageError."""
        register, assignments = self._ownership.register, self._ownership.assignments
        if not register.is_leader:
            return
        reports = await register.candidates(persistent=True)
        if len(reports) < _LEAST_BROKERS:
            return
        for bundle in bundles_to_split(reports, split_rules(self._settings), self._count):
            owner = next(name for name, each in sorted(reports.items()) if bundle in each.last_stats)
            unload = self._settings.load_balancer_auto_unload_split_bundles_enabled
            unload = unload and await assignments.may_leave(bundle, owner, reports)
            log.info("bundle.too_large", bundle=bundle, unload=unload)
            if await self._call(f"/admin/v2/namespaces/{bundle}/split?unload={str(unload).lower()}"):
                self.figures.splits += 1

    def _count(self, namespace: str) -> int | None:
        bundles = self._ownership.bundles(namespace) or self._policy_bundles(namespace)
        return None if bundles is None else bundles.num_bundles

    async def _call(self, path: str) -> bool:
        try:
            await self._calls.call("PUT", path)
        except RestError as error:
            log.warning("balancing.refused", path=path, status=error.status, reason=error.reason)
            return False
        return True

    async def _logged(self, work: str, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except (StorageError, BrokerError) as error:
            log.warning("balancing.failed", work=work, reason=str(error))


def make_shedder(settings: Settings) -> Shedder:
    """Make the strategy of loadBalancerLoadSheddingStrategy, which the start has checked. With
    loadBalancerEnabled=false the start permits any name, and no strategy sheds.
    """
    name = settings.load_balancer_load_shedding_strategy.rpartition(".")[2]
    return SHEDDERS.get(name, ThresholdShedder)(shedding_rules(settings))


def shedding_rules(settings: Settings) -> SheddingRules:
    return SheddingRules(
        threshold_share=settings.load_balancer_broker_threshold_shedder_percentage / 100,
        history_share=settings.load_balancer_history_resource_percentage,
        lower_boundary=settings.lower_boundary_shedding_enabled,
        weights=resource_weights(settings),
        least_bytes_per_second=settings.load_balancer_bundle_unload_min_throughput_threshold * 2**20,
        overloaded_share=settings.load_balancer_broker_overloaded_threshold_percentage / 100,
        message_rate_difference=settings.load_balancer_msg_rate_difference_shedder_threshold / 100,
        throughput_multiplier=settings.load_balancer_msg_throughput_multiplier_difference_shedder_threshold,
        given_up_share=settings.max_unload_percentage,
        least_messages=settings.min_unload_message,
        least_uniform_bytes=settings.min_unload_message_throughput,
        most_bundles=settings.max_unload_bundle_num_per_shedding,
        grace_s=settings.load_balancer_shedding_grace_period_minutes * _MINUTE_S,
        excluded_namespaces=settings.load_balancer_shedding_excluded_namespaces,
        low_difference_percent=settings.load_balancer_avg_shedder_low_threshold,
        high_difference_percent=settings.load_balancer_avg_shedder_high_threshold,
        low_hits=settings.load_balancer_avg_shedder_hit_count_low_threshold,
        high_hits=settings.load_balancer_avg_shedder_hit_count_high_threshold,
    )


def placement_rules(settings: Settings, domains: Mapping[str, str], expected: Mapping[str, str]) -> PlacementRules:
    return PlacementRules(
        strategy=settings.load_balancer_load_placement_strategy.rpartition(".")[2],
        overloaded_share=settings.load_balancer_broker_overloaded_threshold_percentage / 100,
        most_topics=settings.load_balancer_broker_max_topics,
        evenly=settings.load_balancer_distribute_bundles_evenly_enabled,
        domains=domains,
        weights=resource_weights(settings),
        usage_difference=settings.load_balancer_average_resource_usage_difference_threshold_percentage / 100,
        history_share=settings.load_balancer_history_resource_percentage,
        expected=expected,
        excluded_namespaces=settings.load_balancer_shedding_excluded_namespaces,
    )


def resource_weights(settings: Settings) -> ResourceWeights:
    """The weights that are in force: a weight of traffic under its present name, else under its former name."""
    bandwidth_in, bandwidth_out = (
        present if present != 1 else former
        for present, former in (
            (settings.load_balancer_bandwidth_in_resource_weight, settings.load_balancer_bandwith_in_resource_weight),
            (settings.load_balancer_bandwidth_out_resource_weight, settings.load_balancer_bandwith_out_resource_weight),
        )
    )
    return ResourceWeights(
        cpu=settings.load_balancer_cpu_resource_weight,
        direct_memory=settings.load_balancer_direct_memory_resource_weight,
        bandwidth_in=bandwidth_in,
        bandwidth_out=bandwidth_out,
    )


def split_rules(settings: Settings) -> SplitRules:
    return SplitRules(
        most_topics=settings.load_balancer_namespace_bundle_max_topics,
        most_sessions=settings.load_balancer_namespace_bundle_max_sessions,
        most_messages_per_second=settings.load_balancer_namespace_bundle_max_msg_rate,
        most_bytes_per_second=settings.load_balancer_namespace_bundle_max_bandwidth_mbytes * 2**20,
        most_bundles=settings.load_balancer_namespace_maximum_bundles,
        at_once=settings.load_balancer_max_number_of_bundles_to_split_per_cycle,
    )
