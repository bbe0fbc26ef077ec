"""Filters of a query, evaluated before rows cross to the JVM.

Every filter that is understood here is applied exactly as Spark would, nulls and negations included, and Spark does not
evaluate it again; those on topic, partition and index also leave out whole ranges. Spark evaluates filters that may
differ: floating point numbers (there NaN is equal to itself and above all others), fields of structs, lists with a
null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
    spark.GreaterThan: "greater",
    spark.GreaterThanOrEqual: "greater_equal",
    spark.LessThan: "less",
    spark.LessThanOrEqual: "less_equal",
}
_TEXTS: dict[type, str] = {
    spark.StringStartsWith: "starts_with",
    spark.StringEndsWith: "ends_with",
    spark.StringContains: "match_substring",
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


class Condition(Protocol):
    """One filter, by the logic of SQL with its three values."""

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return true, false, or null for unknown, for each row."""


@dataclass(frozen=True)
class Comparison:
    """A column compared with a literal; `equal` may have several, of which one must match. Unknown for null."""

    column: str
    comparison: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether the comparison holds for a value."""
        return any(_TESTS[self.comparison](value, each) for each in self.values)

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """See `Condition`."""
        column = batch.column(self.column)
        if len(self.values) > 1:
            found = pc.is_in(column, pa.array(self.values, column.type))
            return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))
        return pc.call_function(self.comparison, [column, pa.scalar(self.values[0], column.type)])


@dataclass(frozen=True)
class NullTest:
    """Whether a column is null; never unknown."""

    column: str

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """See `Condition`."""
        return batch.column(self.column).is_null()


@dataclass(frozen=True)
class TextTest:
    """Whether text begins with, ends with or contains another text; unknown for null."""

    column: str
    function: str
    text: str

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """See `Condition`."""
        options = pc.MatchSubstringOptions(self.text)
        return pc.call_function(self.function, [batch.column(self.column)], options)


@dataclass(frozen=True)
class Known:
    """A condition that is false where it would be unknown: `<=>`."""

    condition: Condition

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """See `Condition`."""
        return pc.fill_null(self.condition.mask(batch), False)


@dataclass(frozen=True)
class Negation:
    """True where another condition is false; unknown where that is unknown."""

    condition: Condition

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """See `Condition`."""
        return pc.invert(self.condition.mask(batch))


@dataclass(frozen=True)
class RowFilter:
    """Conditions that all have to hold. May be pickled."""

    conditions: tuple[Condition, ...] = ()

    @staticmethod
    def of(filters: Sequence[Filter], schema: pa.Schema) -> tuple[RowFilter, list[Filter]]:
        """The filters of Spark that the source evaluates, and the others, which are left to Spark."""
        found = [(each, _condition(each, schema)) for each in filters]
        understood = tuple(condition for _, condition in found if condition is not None)
        return RowFilter(understood), [each for each, condition in found if condition is None]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which all conditions are true."""
        for condition in self.conditions:
            if batch.num_rows:
                batch = batch.filter(condition.mask(batch))
        return batch

    def topics(self, logs: Mapping[str, LogRange]) -> dict[str, LogRange]:
        """The logs that can have rows for which the conditions on topic and partition are true."""
        kept = dict(logs)
        for condition in self._comparisons():
            if condition.column == "__topic":
                kept = {t: stored for t, stored in kept.items() if condition.holds(t)}
            elif condition.column == "topic":
                kept = {t: stored for t, stored in kept.items() if condition.holds(str(TopicName.parse(t).base))}
            elif condition.column in _PARTITION:
                least = 0 if condition.column == "partition" else -1  # in the style kafka every topic has a partition
                kept = {t: stored for t, stored in kept.items() if condition.holds(max(stored.partition, least))}
        return kept

    def bounds(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The part of the ranges that can have rows for which the conditions on the index are true."""
        first, last = self._index_bounds()
        starts: dict[str, Place] = {t: max(p, first) if isinstance(p, int) else p for t, p in start.by_topic.items()}
        ends: dict[str, Place] = {
            t: min(p, last) if isinstance(p, int) and last is not None else p for t, p in end.by_topic.items()
        }
        return Offsets(starts), Offsets(ends)

    def _comparisons(self) -> list[Comparison]:
        return [condition for condition in self.conditions if isinstance(condition, Comparison)]

    def _index_bounds(self) -> tuple[int, int | None]:
        first, end = 0, None
        for condition in self._comparisons():
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
    if isinstance(given, spark.Not):
        negated = _condition(given.child, schema)
        return None if negated is None else Negation(negated)
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1 or schema.names.count(attribute[0]) != 1:
        return None
    field = schema.field(attribute[0])
    if isinstance(given, spark.IsNull | spark.IsNotNull):
        test = NullTest(field.name)
        return test if isinstance(given, spark.IsNull) else Negation(test)
    return _text_test(given, field) or _comparison(given, field)


def _text_test(given: Filter, field: pa.Field) -> Condition | None:
    function = _TEXTS.get(type(given))
    value = getattr(given, "value", None)
    if function is None or not isinstance(value, str) or not pa.types.is_string(field.type):
        return None
    return TextTest(field.name, function, value)


def _comparison(given: Filter, field: pa.Field) -> Condition | None:
    value = getattr(given, "value", None)
    if isinstance(given, spark.EqualNullSafe):
        if value is None:
            return NullTest(field.name)
        return Known(Comparison(field.name, "equal", (value,))) if _comparable(field.type, (value,)) else None
    values: tuple[Any, ...] = tuple(value or ()) if isinstance(given, spark.In) else (value,)
    comparison = "equal" if isinstance(given, spark.In) else _COMPARISONS.get(type(given))
    if comparison is None or not values or not _comparable(field.type, values):
        return None
    return Comparison(field.name, comparison, values)


def _comparable(kind: pa.DataType, values: tuple[Any, ...]) -> bool:
    """Whether Arrow compares these values with a column of this type as Spark does."""
    if None in values or pa.types.is_floating(kind) or pa.types.is_nested(kind):
        return False
    if pa.types.is_timestamp(kind) and any((kind.tz is None) != (value.tzinfo is None) for value in values):
        return False
    try:
        pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return False
    return True
