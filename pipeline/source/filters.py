"""Filters of a query, evaluated before rows cross to the JVM.

Every comparison of a column with a literal drops rows of record batches; those on topic, partition and index also
leave out whole ranges. A comparison with null is never true, as in SQL. Spark evaluates the filters again, so a filter
that is not understood here costs time, never rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from magnetar.pipeline.offsets import Offsets
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.datasource import Filter

    from magnetar.pipeline.log_range import LogRange
    from magnetar.pipeline.offsets import Place

_COMPARISONS: dict[type, str] = {
    spark.EqualTo: "equal",
    spark.EqualNullSafe: "equal",
    spark.GreaterThan: "greater",
    spark.GreaterThanOrEqual: "greater_equal",
    spark.LessThan: "less",
    spark.LessThanOrEqual: "less_equal",
}
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": lambda a, b: bool(a == b),
    "greater": lambda a, b: bool(a > b),
    "greater_equal": lambda a, b: bool(a >= b),
    "less": lambda a, b: bool(a < b),
    "less_equal": lambda a, b: bool(a <= b),
}
_INDEX = ("__index", "offset")
_PARTITION = ("__partition", "partition")


@dataclass(frozen=True)
class Condition:
    """A column compared with one of several literals; `equal` may have more than one."""

    column: str
    comparison: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether it holds for a value."""
        return any(_TESTS[self.comparison](value, each) for each in self.values)


@dataclass(frozen=True)
class RowFilter:
    """Conditions that all have to hold. May be pickled."""

    conditions: tuple[Condition, ...] = ()

    @staticmethod
    def of(filters: Sequence[Filter], schema: pa.Schema) -> RowFilter:
        """The filters of Spark that the source evaluates; the rest is left to Spark."""
        found = (_condition(each, schema) for each in filters)
        return RowFilter(tuple(each for each in found if each is not None))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which all conditions hold."""
        for condition in self.conditions:
            if condition.column in batch.schema.names and batch.num_rows:
                batch = batch.filter(_mask(batch.column(condition.column), condition))
        return batch

    def topics(self, logs: Mapping[str, LogRange]) -> dict[str, LogRange]:
        """The logs that can have such rows, by topic and partition."""
        kept = dict(logs)
        for condition in self.conditions:
            if condition.column == "__topic":
                kept = {t: stored for t, stored in kept.items() if condition.holds(t)}
            elif condition.column == "topic":
                kept = {t: stored for t, stored in kept.items() if condition.holds(str(TopicName.parse(t).base))}
            elif condition.column in _PARTITION:
                least = 0 if condition.column == "partition" else -1  # the style of Kafka knows no topic without
                kept = {t: stored for t, stored in kept.items() if condition.holds(max(stored.partition, least))}
        return kept

    def bounds(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The part of the ranges that can have rows with such indexes."""
        first, last = self._index_bounds()
        starts: dict[str, Place] = {t: max(p, first) if isinstance(p, int) else p for t, p in start.by_topic.items()}
        ends: dict[str, Place] = {
            t: min(p, last) if isinstance(p, int) and last is not None else p for t, p in end.by_topic.items()
        }
        return Offsets(starts), Offsets(ends)

    def _index_bounds(self) -> tuple[int, int | None]:
        first, end = 0, None
        for condition in self.conditions:
            if condition.column not in _INDEX:
                continue
            low, high = min(condition.values), max(condition.values)
            if condition.comparison in {"greater", "greater_equal", "equal"}:
                first = max(first, low + (condition.comparison == "greater"))
            if condition.comparison in {"less", "less_equal", "equal"}:
                bound = high + (condition.comparison != "less")
                end = bound if end is None else min(end, bound)
        return first, end


def _condition(given: Filter, schema: pa.Schema) -> Condition | None:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    name = attribute[0] if attribute else ""
    if len(attribute) > 1 or name not in schema.names:
        return None
    comparison = _COMPARISONS.get(type(given))
    if comparison is not None and given.value is not None:  # type: ignore[attr-defined]
        values: tuple[Any, ...] = (given.value,)  # type: ignore[attr-defined]
    elif isinstance(given, spark.In) and given.value and None not in given.value:
        comparison, values = "equal", tuple(given.value)
    else:
        return None
    try:
        pa.array(values, schema.field(name).type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None
    return Condition(name, comparison, values)


def _mask(column: pa.Array, condition: Condition) -> pa.Array:
    if condition.comparison == "equal":
        found = pc.is_in(column, pa.array(condition.values, column.type))
    else:
        found = pc.call_function(condition.comparison, [column, pa.scalar(condition.values[0], column.type)])
    return pc.fill_null(found, False)
