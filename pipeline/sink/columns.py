"""Which column of a row is which part of its message.

| part             | pulsar style          | kafka style | types                                     |
|------------------|-----------------------|-------------|-------------------------------------------|
| value            | `value`, or all others | `value`    | see `values`                              |
| key              | `__key`               | `key`       | binary, string                            |
| ordering key     | `__orderingKey`       | -           | binary, string                            |
| topic            | `__topic`             | `topic`     | string                                    |
| partition        | `__partition`         | `partition` | integer                                   |
| event time       | `__eventTime`         | `timestamp` | timestamp, integer (milliseconds)         |
| properties       | `__messageProperties` | `headers`   | map<string,string>, array<struct<key,value>> |
| delivery time    | `__deliverAt`         | -           | timestamp, integer (milliseconds)         |

Columns that only a source fills (`__messageId`, `__publishTime`, ...) are left out, so a table that was read can be
written as it is.
"""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipeline.columns import EXTRA, KAFKA, KAFKA_HEADERS, PULSAR
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.message import Message, Row
from magnetar.pipeline.sink.part_types import check_part_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from magnetar.pipeline.sink.options import SinkOptions

_PULSAR = {
    "__key": "key",
    "__orderingkey": "ordering_key",
    "__topic": "topic",
    "__partition": "partition",
    "__eventtime": "event_time",
    "__messageproperties": "properties",
    "__deliverat": "deliver_at",
}
_WRITTEN = {column.name.lower(): column.name for column in PULSAR} | {"__deliverat": "__deliverAt"}
_SCHEMA_VERSION = "__schemaVersion"
_KAFKA = {
    "key": "key",
    "topic": "topic",
    "partition": "partition",
    "timestamp": "event_time",
    "headers": "properties",
}
_OF_SOURCES = {
    False: {column.name.lower() for column in (*PULSAR, *EXTRA)} - _PULSAR.keys(),
    True: {column.name.lower() for column in (*KAFKA, KAFKA_HEADERS)} - _KAFKA.keys() - {"value"},
}


def parts(names: Sequence[str], options: SinkOptions) -> tuple[dict[str, str], list[str]]:
    """(part of the message -> column, columns of the value).

    Raises: OptionError when a row would have no topic or no value, when several columns have one name, or when a name
    is nearly that of a part.
    """
    table, unused = _KAFKA if options.kafka_style else _PULSAR, _OF_SOURCES[options.kafka_style]
    read = Counter(name.lower() if name.lower() in table else name for name in names if name.lower() not in unused)
    if repeated := [name for name, times in read.items() if times > 1]:
        raise OptionError(f"several columns are called {', '.join(repeated)}: rename them, or drop all but one")
    found = {table[name.lower()]: name for name in names if name.lower() in table}
    values = [name for name in names if name.lower() not in table and name.lower() not in unused]
    if options.keep_schema_versions and _SCHEMA_VERSION in names:
        found["schema_version"] = _SCHEMA_VERSION
    if options.topic is None and "topic" not in found:
        column = "topic" if options.kafka_style else "__topic"
        raise OptionError(f"rows have no topic: give option topic or a column {column}")
    if not values:
        raise OptionError("rows have no value: give a column value, or the columns of a record")
    if options.kafka_style:
        _check_kafka_value(values)
    else:
        _check_misspelt(values)
    return found, values


def _check_kafka_value(values: Sequence[str]) -> None:
    """Spark's Kafka sink makes no records of columns: it needs the column value."""
    others = [name for name in values if name.lower() != "value"]
    if len(others) == len(values):
        raise OptionError("rows have no value: columnStyle=kafka needs a column value")
    if others:
        raise OptionError(f"columnStyle=kafka has no place for {', '.join(others)}: drop these columns")


def _check_misspelt(values: Sequence[str]) -> None:
    """A misspelt __key would become a field of the payload, and the messages would have no key."""
    for name in values:
        near = difflib.get_close_matches(name.lower(), _PULSAR, 1, 0.75) if name.startswith("__") else []
        if near:
            raise OptionError(f"column {name} is no part of a message; rename it, for example to {_WRITTEN[near[0]]}")


class PayloadEncoder(Protocol):
    """Makes payloads of the value columns (`values.ValueEncoder`)."""

    def encode(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """The payload of each row; None for a tombstone. Raises: ValueError for a row that does not fit."""
        ...


class RowReader:
    """Record batches to rows."""

    def __init__(self, schema: pa.Schema, options: SinkOptions, encoder: PayloadEncoder) -> None:
        """Raises: OptionError for columns that make no message."""
        self._parts, _ = parts(schema.names, options)
        check_part_types(schema, self._parts)
        self._topic, self._encoder = options.topic, encoder

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """The batch's rows in order. Raises: ValueError for a row that cannot be sent."""
        n = batch.num_rows
        topics = [self._topic] * n if self._topic is not None else self._texts(batch, "topic")
        columns = zip(
            topics,
            self._numbers(batch, "partition", -1),
            self._encoder.encode(batch),
            self._bytes(batch, "key"),
            self._bytes(batch, "ordering_key"),
            self._properties(batch),
            self._times(batch, "event_time"),
            self._times(batch, "deliver_at"),
            self._bytes(batch, "schema_version"),
            strict=True,
        )
        for topic, partition, *message in columns:
            if topic is None:
                raise ValueError("a row has null in its topic column")
            yield Row(topic, partition, Message(*message))

    def _column(self, batch: pa.RecordBatch, part: str) -> pa.Array | None:
        name = self._parts.get(part)
        return None if name is None else batch.column(batch.schema.get_field_index(name))

    def _bytes(self, batch: pa.RecordBatch, part: str) -> list[bytes | None]:
        column = self._column(batch, part)
        if column is None:
            return [None] * batch.num_rows
        values: list[bytes | None] = column.cast(pa.binary()).to_pylist()
        return values

    def _texts(self, batch: pa.RecordBatch, part: str) -> list[str | None]:
        column = self._column(batch, part)
        assert column is not None, "parts() has seen it"
        values: list[str | None] = column.cast(pa.string()).to_pylist()
        return values

    def _numbers(self, batch: pa.RecordBatch, part: str, absent: int) -> list[int]:
        column = self._column(batch, part)
        if column is None:
            return [absent] * batch.num_rows
        values: list[int] = pc.fill_null(column.cast(pa.int64()), absent).to_pylist()
        return values

    def _times(self, batch: pa.RecordBatch, part: str) -> list[int]:
        column = self._column(batch, part)
        if column is None:
            return [0] * batch.num_rows
        if pa.types.is_timestamp(column.type):  # without its zone: rounding down asks no database of zones then
            column = pc.floor_temporal(column.cast(pa.timestamp(column.type.unit)), unit="millisecond")
            column = column.cast(pa.timestamp("ms"))
        values: list[int] = pc.fill_null(column.cast(pa.int64()), 0).to_pylist()
        return values

    def _properties(self, batch: pa.RecordBatch) -> list[tuple[tuple[str, str], ...]]:
        column = self._column(batch, "properties")
        if column is None:
            return [()] * batch.num_rows
        of = _of_map if pa.types.is_map(column.type) else _of_headers
        return [of(value) if value else () for value in column.to_pylist()]


def _of_map(items: list[tuple[str, str | bytes | None]]) -> tuple[tuple[str, str], ...]:
    """A key whose value is null is left out: for SQL, such a map and a map without the key have the same value."""
    return tuple((key, _text(value)) for key, value in items if value is not None)


def _of_headers(headers: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """A header whose value is null becomes an empty property, as in entries of Kafka."""
    return tuple((header["key"], _text(header["value"] or "")) for header in headers)


def _text(value: str | bytes) -> str:
    """Bytes that are no UTF-8 text are replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
