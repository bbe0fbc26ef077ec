"""The reader of `spark.read`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from magnetar.pipeline.source.filters import RowFilter
from magnetar.pipeline.source.row_source import spare_collections
from magnetar.pipeline.source_plan import SourcePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.source.row_source import RowSource


class Ranges(InputPartition):
    """The ranges one task reads."""

    def __init__(self, ranges: Sequence[ReadRange]) -> None:
        super().__init__(None)
        self.ranges = list(ranges)


def own_cores() -> int:
    """The cores that this process may use: those of the tasks of a local master, fewer than those of a cluster."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ranges_of(partition: InputPartition) -> list[ReadRange]:
    """The ranges of a Spark partition; none for the partition that Spark itself makes for an empty plan."""
    return partition.ranges if isinstance(partition, Ranges) else []


class PulsarReader(DataSourceReader):
    """Reads a range of every selected topic partition, fixed when the query is planned."""

    def __init__(self, options: SourceOptions, rows: RowSource) -> None:
        self._options, self._rows = options, rows
        self._filter = RowFilter()
        if options.pushdown:
            self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "pushFilters"}

    def take_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Called before `partitions`, in the process that plans. Returns the filters that Spark has to evaluate."""
        self._filter, left = RowFilter.of(filters, self._rows.schema())
        return left

    def partitions(self) -> list[InputPartition]:
        """Runs on the driver, in a process that plans one query after the other."""
        spare_collections()
        plan = SourcePlan(self._options)
        logs = self._filter.topics(plan.logs())
        start, end = plan.starting(logs), plan.ending(logs)
        start, end = self._filter.bounds(start, end)
        return [Ranges(task) for task in plan.tasks(start, end, logs, cores=own_cores())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        for batch in self._rows.batches(ranges_of(partition)):
            kept = self._filter.apply(batch)
            if kept.num_rows:
                yield kept


class _PushFilters:
    """The method `pushFilters` of a reader, in a form that does not count as overridden.

    Spark refuses every query of a reader whose class overrides that method, unless the session has
    `spark.sql.python.filterPushdown.enabled`. A session with this setting calls the method; other sessions read without
    filters.
    """

    def __init__(self, reader: PulsarReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters  # Spark compares it; on the class Python would bind the method

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)
