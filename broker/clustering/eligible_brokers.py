"""Which brokers may serve a namespace: Apache Pulsar's namespace isolation policies. Pure.

    a policy names the namespace     its primary brokers; its secondary brokers as well while fewer than min_limit of
                                     the primary brokers are there and below usage_threshold percent of every resource
    no policy names it               the brokers that are primary in no policy

Patterns are regular expressions that match whole: of a namespace's name, of a broker's host or of its id (host:port).
Of several policies that name a namespace the first policy counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import re2

from magnetar.broker.topics.patterns import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.ownership.cluster_nodes import LoadReport

__all__ = ["eligible_brokers"]


def eligible_brokers(
    policies: Mapping[str, Mapping[str, Any]], namespace: str, reports: Mapping[str, LoadReport]
) -> dict[str, LoadReport]:
    """The brokers that may get a bundle of the namespace; none when the policies leave none."""
    if not policies:
        return dict(reports)
    for policy in policies.values():
        if _matches(policy.get("namespaces"), namespace):
            return _of_policy(policy, reports)
    primaries = [policy.get("primary") for policy in policies.values()]
    return {name: report for name, report in reports.items() if not any(_names(each, name) for each in primaries)}


def _of_policy(policy: Mapping[str, Any], reports: Mapping[str, LoadReport]) -> dict[str, LoadReport]:
    found = {name: report for name, report in reports.items() if _names(policy.get("primary"), name)}
    failover = policy.get("auto_failover_policy")
    parameters = failover.get("parameters") if isinstance(failover, dict) else None
    parameters = parameters if isinstance(parameters, dict) else {}
    least, most = _number(parameters.get("min_limit"), 1), _number(parameters.get("usage_threshold"), 100)
    usable = sum(report.highest_share * 100 < most for report in found.values())
    if usable < least:
        found |= {name: report for name, report in reports.items() if _names(policy.get("secondary"), name)}
    return found


def _names(patterns: object, broker_id: str) -> bool:
    return _matches(patterns, broker_id) or _matches(patterns, broker_id.rpartition(":")[0])


def _matches(patterns: object, text: str) -> bool:
    for pattern in patterns if isinstance(patterns, list | tuple) else ():
        try:
            if isinstance(pattern, str) and compiled(pattern).fullmatch(text.encode()):
                return True
        except re2.error:
            continue  # an unreadable pattern matches no name
    return False


def _number(text: object, otherwise: int) -> int:
    try:
        return int(str(text))
    except ValueError:
        return otherwise
