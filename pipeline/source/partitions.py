"""The partitions that Spark hands from the driver to a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.pipeline.planning import ReadRange


class Ranges(InputPartition):
    """The ranges one task reads."""

    def __init__(self, ranges: Sequence[ReadRange]) -> None:
        super().__init__(None)
        self.ranges = list(ranges)


def ranges_of(partition: InputPartition) -> list[ReadRange]:
    """Spark makes an empty plan a partition of nothing."""
    return partition.ranges if isinstance(partition, Ranges) else []
