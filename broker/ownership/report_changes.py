"""Decides when a broker writes its load report again, as Apache Pulsar does (loadBalancerReportUpdate*). Pure.

Every report costs a write of the metadata service and a read by the leader. So the broker omits an unchanged report,
for at most the longest interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.broker.ownership.resource_weights import ResourceWeights

if TYPE_CHECKING:
    from magnetar.broker.ownership.cluster_nodes import LoadReport

__all__ = ["ReportRules", "is_due"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRules:
    """The rules of reports. The broker compares its load every ``look_s`` seconds."""

    look_s: float = 5.0
    longest_s: float = 15 * 60.0
    threshold_percent: float = 10.0
    weights: ResourceWeights = field(default_factory=ResourceWeights)


def is_due(written: LoadReport, now: LoadReport, rules: ReportRules) -> bool:
    """Whether the present report should replace the written report; that of a clock that was set back does."""
    if not 0 <= now.last_update - written.last_update < rules.longest_s * 1000:
        return True
    changes = (
        100.0 * abs(rules.weights.usage(written) - rules.weights.usage(now)),
        _percent(written.msg_rate_in + written.msg_rate_out, now.msg_rate_in + now.msg_rate_out),
        _percent(
            written.msg_throughput_in + written.msg_throughput_out, now.msg_throughput_in + now.msg_throughput_out
        ),
        _percent(written.num_bundles, now.num_bundles),
    )
    return max(changes) > rules.threshold_percent


def _percent(before: float, now: float) -> float:
    """Change in percent; the first traffic of a broker is a change without bound."""
    if before == 0:
        return 0.0 if now == 0 else float("inf")
    return 100.0 * abs((before - now) / before)
