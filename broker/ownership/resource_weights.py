"""The usage of a broker: that of its resources, each with a weight, as Apache Pulsar compares brokers. Pure."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from magnetar.broker.ownership.cluster_nodes import LoadReport

__all__ = ["ResourceWeights", "average_usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceWeights:
    """Settings ``loadBalancer...ResourceWeight``. Memory has none: a full heap of a broker of Apache Pulsar says
    nothing about its load.
    """

    cpu: float = 1.0
    direct_memory: float = 0.0
    bandwidth_in: float = 1.0
    bandwidth_out: float = 1.0

    def usage(self, report: LoadReport) -> float:
        """Return the highest weighted share of a resource; with weights up to 1.0 from 0.0 to 1.0."""
        return max(
            report.cpu.share * self.cpu,
            report.direct_memory.share * self.direct_memory,
            report.bandwidth_in.share * self.bandwidth_in,
            report.bandwidth_out.share * self.bandwidth_out,
        )


def average_usage(usages: Collection[float]) -> float:
    """Return the average of at least one usage, rounded after each addition as in Apache Pulsar.

    ``sum`` makes up for rounding from Python 3.12 on; a broker exactly at a threshold would count otherwise.
    """
    return reduce(operator.add, usages) / len(usages)
