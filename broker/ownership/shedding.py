"""Which bundles an overloaded broker gives up: Apache Pulsar's ThresholdShedder. Pure.

The usage of a broker is that of its resource used most, each weighted, and smoothed over the calls. Brokers above the
average by more than the threshold give up bundles, those with most traffic first, until what they carry fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport

__all__ = ["Shedder", "SheddingRules"]

_MARGIN: Final = 0.05
"""More than needed is given up, so that the broker does not stay at the threshold."""
_LEAST_BUNDLES: Final = 2
"""A single bundle would overload the next broker as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingRules:
    """Settings ``loadBalancer*``; shares are 0.0 to 1.0."""

    threshold_share: float = 0.10
    history_share: float = 0.9
    cpu_weight: float = 1.0
    memory_weight: float = 0.0
    direct_memory_weight: float = 0.0
    bandwidth_in_weight: float = 1.0
    bandwidth_out_weight: float = 1.0
    least_bytes_per_second: float = 10 * 2**20
    """Less traffic is not worth a move."""
    grace_s: float = 30 * 60.0
    """A bundle that was moved stays for so long."""
    excluded_namespaces: tuple[str, ...] = ()


class Shedder:
    """Remembers usage and moves between the calls of ``plan``."""

    def __init__(self, rules: SheddingRules) -> None:
        self.rules = rules
        self._usage: dict[str, float] = {}
        self._moved: dict[str, float] = {}

    def plan(self, reports: Mapping[str, LoadReport], now_s: float) -> list[tuple[str, str]]:
        """(broker id, bundle) to give up now; counted as moved."""
        self._moved = {bundle: at for bundle, at in self._moved.items() if now_s - at < self.rules.grace_s}
        self._usage = {name: self._smoothed(name, report) for name, report in reports.items()}
        if not reports:
            return []
        average = sum(self._usage.values()) / len(self._usage)
        chosen: list[tuple[str, str]] = []
        for name, report in sorted(reports.items()):
            excess = self._usage[name] - average - self.rules.threshold_share
            if excess > 0 and len(report.last_stats) >= _LEAST_BUNDLES:
                chosen += [(name, bundle) for bundle in self._of_broker(report, excess + _MARGIN)]
        self._moved |= {bundle: now_s for _, bundle in chosen}
        return chosen

    def _smoothed(self, name: str, report: LoadReport) -> float:
        rules = self.rules
        weighted = (
            report.cpu.share * rules.cpu_weight,
            report.memory.share * rules.memory_weight,
            report.direct_memory.share * rules.direct_memory_weight,
            report.bandwidth_in.share * rules.bandwidth_in_weight,
            report.bandwidth_out.share * rules.bandwidth_out_weight,
        )
        before = self._usage.get(name)
        now = max(weighted)
        return now if before is None else before * rules.history_share + now * (1 - rules.history_share)

    def _of_broker(self, report: LoadReport, share: float) -> list[str]:
        wanted = (report.msg_throughput_in + report.msg_throughput_out) * share
        if wanted < self.rules.least_bytes_per_second:
            return []
        free = {name: each for name, each in report.last_stats.items() if self._may_move(name)}
        chosen: list[str] = []
        given = 0.0
        for name in sorted(free, key=lambda each: _traffic(free[each]), reverse=True):
            if given >= wanted or len(chosen) == len(report.last_stats) - 1:
                break
            chosen.append(name)
            given += _traffic(free[name])
        return chosen

    def _may_move(self, bundle: str) -> bool:
        return bundle not in self._moved and bundle.rpartition("/")[0] not in self.rules.excluded_namespaces


def _traffic(usage: BundleUsage) -> float:
    return usage.msg_throughput_in + usage.msg_throughput_out
