"""The readers of `spark.read`. Two classes: Spark refuses every query of one that has `pushFilters`, unless the session
allows filters to be pushed down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from magnetar.pipeline.source.filters import RowFilter
from magnetar.pipeline.source.partitions import Ranges, ranges_of
from magnetar.pipeline.source_plan import SourcePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter, InputPartition

    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.source.row_source import RowSource


class PulsarReader(DataSourceReader):
    """Reads a range of every selected topic partition, fixed when the query is planned."""

    def __init__(self, options: SourceOptions, rows: RowSource) -> None:
        self._options, self._rows = options, rows
        self._filter = RowFilter()

    def partitions(self) -> list[InputPartition]:
        """Runs on the driver."""
        plan = SourcePlan(self._options)
        logs = self._filter.topics(plan.logs())
        start, end = plan.starting(logs), plan.ending(logs)
        start, end = self._filter.bounds(start, end)
        return [Ranges(task) for task in plan.tasks(start, end, logs)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        for batch in self._rows.batches(ranges_of(partition)):
            kept = self._filter.apply(batch)
            if kept.num_rows:
                yield kept


class FilteringPulsarReader(PulsarReader):
    """The same with filters pushed down; only where `spark.sql.python.filterPushdown.enabled` is true."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """All filters are given back: Spark evaluates them again over the rows that are left."""
        self._filter = RowFilter.of(filters, self._rows.schema())
        return filters
