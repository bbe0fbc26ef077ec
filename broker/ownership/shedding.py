"""Chooses the bundles that a broker gives up because of its load: Apache Pulsar's strategies, by their class names.
Pure.

ThresholdShedder      brokers above the average by more than a threshold give up bundles until their load fits;
                      the usage of a broker is that of its resource used most, each weighted, smoothed over the calls
OverloadShedder       brokers that use a resource beyond a limit give up bundles until they are below the limit
UniformLoadShedder    the broker with most messages, or most traffic, gives up a part of its difference to the
                      broker with least
AvgShedder            the broker used most and the broker used least are a pair, so are the next two, and so on; when a
                      pair differs too much several times in a row, a part of its difference moves within the pair
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.broker.ownership.resource_weights import ResourceWeights, average_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport

__all__ = [
    "SHEDDERS",
    "AvgShedder",
    "OverloadShedder",
    "Shedder",
    "SheddingRules",
    "ThresholdShedder",
    "UniformLoadShedder",
]

_MARGIN: Final = 0.05
"""The load that a broker gives up in addition to the excess, so that it does not stay at the threshold."""
_LOWER_BOUNDARY_PART: Final = 0.5
"""The part of the threshold that the busiest broker gives up when another broker lies far below the average."""
_LEAST_BUNDLES: Final = 2
"""A broker with fewer bundles keeps them: a single bundle would overload the next broker as well."""
_BEYOND: Final = 1000.0
"""A bundle moves only if its weight exceeds the load to give up by at most this amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingRules:
    """Settings; shares are 0.0 to 1.0."""

    threshold_share: float = 0.10
    history_share: float = 0.9
    lower_boundary: bool = False
    weights: ResourceWeights = field(default_factory=ResourceWeights)
    least_bytes_per_second: float = 10 * 2**20
    """A broker that has less traffic to give up keeps its bundles."""
    overloaded_share: float = 0.85
    message_rate_difference: float = 0.5
    """The difference to the broker with the fewest messages; 0.0: never."""
    throughput_multiplier: float = 4.0
    """The multiple of the broker with the least traffic; 0.0: never."""
    given_up_share: float = 0.2
    least_messages: float = 1000.0
    least_uniform_bytes: float = 2**20
    most_bundles: int = -1
    """The most bundles that move at a time; -1: no limit."""
    grace_s: float = 30 * 60.0
    """The time for which a moved bundle does not move again."""
    excluded_namespaces: tuple[str, ...] = ()
    low_difference_percent: float = 15.0
    high_difference_percent: float = 40.0
    low_hits: int = 8
    high_hits: int = 2


class Shedder(ABC):
    """Remembers moves between the calls of ``plan``."""

    def __init__(self, rules: SheddingRules) -> None:
        self.rules = rules
        self.expected: dict[str, str] = {}
        """bundle -> broker, for a strategy that chooses the next broker as well."""
        self._moved: dict[str, float] = {}

    def plan(self, reports: Mapping[str, LoadReport], now_s: float) -> list[tuple[str, str]]:
        """(broker id, bundle) to give up now. ``moved`` reports a completed move."""
        self._moved = {bundle: at for bundle, at in self._moved.items() if now_s - at < self.rules.grace_s}
        return self._plan(reports) if reports else []

    def moved(self, bundle: str, now_s: float) -> None:
        self._moved[bundle] = now_s

    @abstractmethod
    def _plan(self, reports: Mapping[str, LoadReport]) -> list[tuple[str, str]]:
        """Like ``plan``, with one report at least."""

    def _heaviest(self, report: LoadReport, wanted: float, weigh: Callable[[BundleUsage], float]) -> list[str]:
        """Return the heaviest bundles that may move, until their weight reaches the wanted weight. At least one bundle
        of the broker stays.
        """
        free = {name: weigh(each) for name, each in report.last_stats.items() if self._may_move(name)}
        chosen: list[str] = []
        given = 0.0
        for name in sorted(free, key=lambda each: free[each], reverse=True):
            if (chosen and given >= wanted) or len(chosen) == len(report.last_stats) - 1:
                break
            chosen.append(name)
            given += free[name]
        return chosen

    def _may_move(self, bundle: str) -> bool:
        return bundle not in self._moved and bundle.rpartition("/")[0] not in self.rules.excluded_namespaces


class ThresholdShedder(Shedder):
    """Remembers usage as well."""

    def __init__(self, rules: SheddingRules) -> None:
        super().__init__(rules)
        self._usage: dict[str, float] = {}

    def _plan(self, reports: Mapping[str, LoadReport]) -> list[tuple[str, str]]:
        self._usage = {name: self._smoothed(name, report) for name, report in reports.items()}
        average = average_usage(self._usage.values())
        chosen: list[tuple[str, str]] = []
        for name, report in sorted(reports.items()):
            excess = self._usage[name] - average - self.rules.threshold_share
            if excess > 0:
                chosen += self._of_broker(name, report, excess + _MARGIN)
        if not chosen and self.rules.lower_boundary:
            return self._to_idle_brokers(reports, average)
        return chosen

    def _to_idle_brokers(self, reports: Mapping[str, LoadReport], average: float) -> list[tuple[str, str]]:
        """The broker used most gives bundles to brokers that are below the average by more than the threshold."""
        if all(each >= average - self.rules.threshold_share for each in self._usage.values()):
            return []
        busiest = max(sorted(self._usage), key=lambda name: self._usage[name])
        return self._of_broker(busiest, reports[busiest], self.rules.threshold_share * _LOWER_BOUNDARY_PART)

    def _of_broker(self, name: str, report: LoadReport, share: float) -> list[tuple[str, str]]:
        wanted = (report.msg_throughput_in + report.msg_throughput_out) * share
        if wanted < self.rules.least_bytes_per_second or len(report.last_stats) < _LEAST_BUNDLES:
            return []
        return [(name, bundle) for bundle in self._heaviest(report, wanted, _traffic)]

    def _smoothed(self, name: str, report: LoadReport) -> float:
        share = self.rules.history_share
        before, now = self._usage.get(name), self.rules.weights.usage(report)
        return now if before is None else before * share + now * (1 - share)


class OverloadShedder(Shedder):
    """Decides for each broker without regard to the other brokers."""

    def _plan(self, reports: Mapping[str, LoadReport]) -> list[tuple[str, str]]:
        chosen: list[tuple[str, str]] = []
        for name, report in sorted(reports.items()):
            excess = self.rules.weights.usage(report) - self.rules.overloaded_share
            if excess < 0 or len(report.last_stats) < _LEAST_BUNDLES:
                continue
            wanted = (report.msg_throughput_in + report.msg_throughput_out) * (excess + _MARGIN)
            chosen += [(name, bundle) for bundle in self._heaviest(report, wanted, _traffic)]
        return chosen


class UniformLoadShedder(Shedder):
    """Moves load from the broker with most load to the broker with least: by messages, else by traffic."""

    def _plan(self, reports: Mapping[str, LoadReport]) -> list[tuple[str, str]]:
        rules = self.rules
        least, most, name = _ends(reports, _messages)
        if 0 < rules.message_rate_difference < (most - least) / (least or 1.0):
            return self._apart(name, reports[name], most - least, rules.least_messages, _messages)
        least, most, name = _ends(reports, _traffic)
        if 0 < rules.throughput_multiplier < most / (least or 1.0):
            return self._apart(name, reports[name], most - least, rules.least_uniform_bytes, _traffic)
        return []

    def _apart(
        self, name: str, report: LoadReport, difference: float, least: float, weigh: Callable[[BundleUsage], float]
    ) -> list[tuple[str, str]]:
        wanted = difference * self.rules.given_up_share
        if wanted < least or len(report.last_stats) < _LEAST_BUNDLES:
            return []
        free = {bundle: weigh(each) for bundle, each in report.last_stats.items() if self._may_move(bundle)}
        most = len(report.last_stats) - 1
        if self.rules.most_bundles != -1:
            most = min(most, self.rules.most_bundles)
        chosen: list[tuple[str, str]] = []
        for bundle in sorted(free, key=lambda each: free[each], reverse=True):
            if len(chosen) < most and 0 < free[bundle] <= wanted + _BEYOND:
                chosen.append((name, bundle))
                wanted -= free[bundle]
        return chosen


class AvgShedder(Shedder):
    """Counts how often in a row a broker was in a pair that differs; beyond the high difference both counts grow."""

    def __init__(self, rules: SheddingRules) -> None:
        super().__init__(rules)
        self._low_hits: dict[str, int] = {}
        self._high_hits: dict[str, int] = {}

    def _plan(self, reports: Mapping[str, LoadReport]) -> list[tuple[str, str]]:
        self._drop_old_plans(reports)
        usage = {name: 100 * self.rules.weights.usage(each) for name, each in reports.items()}
        ordered = sorted(usage, key=lambda name: (usage[name], name))
        pairs = []
        for index in range((len(ordered) + 1) // 2):
            least, most = ordered[index], ordered[-1 - index]
            if self._count(least, most, usage[most] - usage[least]):
                pairs.append((least, most))
        if not pairs:
            self._low_hits, self._high_hits = {}, {}
        chosen: list[tuple[str, str]] = []
        for least, most in pairs:
            if self._is_hit(least) or self._is_hit(most):
                self._forget(least, most)
                chosen += self._within(least, most, reports)
        return chosen

    def _drop_old_plans(self, reports: Mapping[str, LoadReport]) -> None:
        """Keep plans for bundles that a broker reports, and for bundles on their way between two brokers."""
        reported = set().union(*(each.last_stats for each in reports.values()))
        self.expected = {
            bundle: broker for bundle, broker in self.expected.items() if bundle in reported or bundle in self._moved
        }

    def _count(self, least: str, most: str, difference: float) -> bool:
        """Count a difference of the two brokers; return whether it is at least the low difference."""
        if least == most or difference < self.rules.low_difference_percent:
            self._forget(least, most)
            return False
        for broker in (least, most):
            self._low_hits[broker] = self._low_hits.get(broker, 0) + 1
            if difference < self.rules.high_difference_percent:
                self._high_hits.pop(broker, None)
            else:
                self._high_hits[broker] = self._high_hits.get(broker, 0) + 1
        return True

    def _is_hit(self, broker: str) -> bool:
        high, low = self._high_hits.get(broker, 0), self._low_hits.get(broker, 0)
        return high >= self.rules.high_hits or low >= self.rules.low_hits

    def _forget(self, *brokers: str) -> None:
        for broker in brokers:
            self._low_hits.pop(broker, None)
            self._high_hits.pop(broker, None)

    def _within(self, least: str, most: str, reports: Mapping[str, LoadReport]) -> list[tuple[str, str]]:
        """The largest bundles that fit into a part of the difference: in messages, else in traffic."""
        report, rules = reports[most], self.rules
        for weigh, enough in ((_messages, rules.least_messages), (_traffic, rules.least_uniform_bytes)):
            wanted = (weigh(report) - weigh(reports[least])) * rules.given_up_share
            if wanted > enough:
                return [(most, bundle) for bundle in self._fitting(report, wanted, weigh, least)]
        return []

    def _fitting(
        self, report: LoadReport, wanted: float, weigh: Callable[[BundleUsage], float], least: str
    ) -> list[str]:
        free = {bundle: weigh(each) for bundle, each in report.last_stats.items() if self._may_move(bundle)}
        chosen = []
        for bundle in sorted(free, key=lambda each: free[each], reverse=True):
            if 0 < free[bundle] <= wanted:
                chosen.append(bundle)
                self.expected[bundle] = least
                wanted -= free[bundle]
        return chosen


SHEDDERS: Final[Mapping[str, type[Shedder]]] = {
    each.__name__: each for each in (ThresholdShedder, OverloadShedder, UniformLoadShedder, AvgShedder)
}


def _ends(
    reports: Mapping[str, LoadReport], weigh: Callable[[BundleUsage | LoadReport], float]
) -> tuple[float, float, str]:
    """Return (least weight, greatest weight, broker with the greatest weight)."""
    weights = {name: weigh(each) for name, each in sorted(reports.items())}
    most = max(weights, key=lambda name: weights[name])
    return min(weights.values()), weights[most], most


def _traffic(usage: BundleUsage | LoadReport) -> float:
    return usage.msg_throughput_in + usage.msg_throughput_out


def _messages(usage: BundleUsage | LoadReport) -> float:
    return usage.msg_rate_in + usage.msg_rate_out
