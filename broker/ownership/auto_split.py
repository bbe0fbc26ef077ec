"""Which bundles are split because they carry too much (loadBalancerNamespaceBundle*). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport

__all__ = ["SplitRules", "bundles_to_split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """The limits beyond which a bundle is split, unless its namespace has ``most_bundles`` already."""

    most_topics: int = 1000
    most_sessions: int = 1000
    most_messages_per_second: float = 30_000
    most_bytes_per_second: float = 100 * 2**20
    most_bundles: int = 128
    at_once: int = 10


def bundles_to_split(
    reports: Mapping[str, LoadReport], rules: SplitRules, bundle_count: Callable[[str], int | None]
) -> list[str]:
    """Full names, those with most topics first, at most ``at_once``.

    bundle_count: returns the number of bundles of a namespace; None if it is unknown: no bundle of it is split then.
    """
    found: dict[str, BundleUsage] = {}
    for report in reports.values():
        found |= {name: each for name, each in report.last_stats.items() if _is_too_much(each, rules)}
    chosen: list[str] = []
    counts: dict[str, int] = {}
    for name in sorted(found, key=lambda each: (-found[each].topics, each)):
        namespace = name.rpartition("/")[0]
        count = counts.get(namespace) or bundle_count(namespace)
        if count is None or count >= rules.most_bundles or len(chosen) == rules.at_once:
            continue
        counts[namespace] = count + 1
        chosen.append(name)
    return chosen


def _is_too_much(usage: BundleUsage, rules: SplitRules) -> bool:
    """A bundle of one topic cannot become smaller."""
    return usage.topics > 1 and (
        usage.topics > rules.most_topics
        or usage.consumer_count + usage.producer_count > rules.most_sessions
        or usage.msg_rate_in + usage.msg_rate_out > rules.most_messages_per_second
        or usage.msg_throughput_in + usage.msg_throughput_out > rules.most_bytes_per_second
    )
