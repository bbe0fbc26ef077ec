"""Figures of a broker's report that every placement needs: worked out once for each report, not for each placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from magnetar.broker.ownership.cluster_nodes import LoadReport
    from magnetar.broker.ownership.load_averages import BundleLoad, LoadAverages

__all__ = ["BrokerFigures"]


class _Figures:
    """The figures of one report and one state of the averages. ``expected`` is the rate of ``coming[:summed]``."""

    __slots__ = ("base", "below", "bundles", "coming", "expected", "report", "summed")

    def __init__(self, report: LoadReport, bundles: Mapping[str, BundleLoad], base: float) -> None:
        self.report, self.bundles, self.base = report, bundles, base
        self.below: dict[str, set[str]] = {}
        """namespace -> bundles of the report."""
        for bundle in (*report.bundles, *report.last_stats):
            self.below.setdefault(bundle.rpartition("/")[0], set()).add(bundle)
        self.coming: Sequence[str] = ()
        self.summed = 0
        self.expected = 0.0


class BrokerFigures:
    """Figures by broker id. A new report of a broker, and new averages, replace the figures of that broker."""

    def __init__(self, averages: LoadAverages) -> None:
        self._averages = averages
        self._known: dict[str, _Figures] = {}

    def rate(self, broker: str, report: LoadReport, coming: Sequence[str]) -> float:
        """Return the rate as ``LoadAverages.rate``. Precondition: `coming` is the list of the previous call, perhaps
        with more bundles at its end, or another list object.
        """
        known = self._of(broker, report)
        if known.coming is not coming:
            known.coming, known.summed, known.expected = coming, 0, 0.0
        if known.summed < len(coming):
            known.expected += self._averages.expected_rate(coming[known.summed :])
            known.summed = len(coming)
        return known.base + known.expected

    def of_namespace(self, broker: str, report: LoadReport, namespace: str) -> Collection[str]:
        """The bundles of one namespace that the broker reports."""
        return self._of(broker, report).below.get(namespace, ())

    def keep(self, brokers: Collection[str]) -> None:
        """Remove the figures of all other brokers."""
        if len(self._known) > len(brokers):
            self._known = {broker: each for broker, each in self._known.items() if broker in brokers}

    def _of(self, broker: str, report: LoadReport) -> _Figures:
        known = self._known.get(broker)
        if known is None or known.report is not report or known.bundles is not self._averages.bundles:
            base = self._averages.base_rate(report)
            known = self._known[broker] = _Figures(report, self._averages.bundles, base)
        return known
