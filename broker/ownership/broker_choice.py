"""Chooses the broker for a bundle without an owner: Pulsar's LeastLongTermMessageRate. Pure.

A broker that uses more than 85 % of a resource, by its weight, is chosen only when all brokers use so much. Of the
other brokers the function chooses the broker with the lowest message rate, at random among equals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from magnetar.broker.ownership.resource_weights import ResourceWeights

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from magnetar.broker.ownership.cluster_nodes import LoadReport

__all__ = ["OVERLOADED_SHARE", "Burden", "choose_broker", "is_candidate"]

OVERLOADED_SHARE: Final = 0.85
_WEIGHTS: Final = ResourceWeights()
Burden: TypeAlias = tuple[float, int]
"""(messages per second over a long time, number of bundles given to the broker). The number decides between equal
rates, so that a burst of lookups does not go to one broker.
"""


def is_candidate(broker_id: str, report: LoadReport, *, persistent: bool) -> bool:
    """Whether lookups may lead to the broker: its name, its addresses, its protocols, its load manager."""
    host, colon, port = broker_id.rpartition(":")
    addresses = report.addresses
    serves = report.persistent_topics_enabled if persistent else report.non_persistent_topics_enabled
    return bool(
        serves
        and report.has_owners_in_nodes
        and host
        and colon
        and port.isdecimal()
        and (addresses.service_url or addresses.service_url_tls)
        and (addresses.web_url or addresses.web_url_tls)
    )


def choose_broker(
    reports: Mapping[str, LoadReport],
    burden: Mapping[str, Burden],
    random: Random,
    overloaded_share: float = OVERLOADED_SHARE,
    weights: ResourceWeights = _WEIGHTS,
) -> str | None:
    """Return the id of the chosen broker, None without brokers. A broker without a burden has the rate of its
    report.
    """
    rested = {name: each for name, each in reports.items() if weights.usage(each) <= overloaded_share} or reports
    if not rested:
        return None
    rates = {name: burden.get(name, (each.msg_rate_in + each.msg_rate_out, 0)) for name, each in rested.items()}
    least = min(rates.values())
    return random.choice(sorted(name for name, each in rates.items() if each == least))
