"""Payloads of AVRO schemas: single records without a container, each written under the version its message names.

A row written under an older version is resolved to the reader's schema by Avro's rules (promotion, defaults, aliases).
Records are read in lock step (`avro_columns.py`) where there is a plan for their schema, also when fields came or went
between the versions; other records are read singly.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.read import SchemaResolutionError

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.avro_columns import ColumnReader, OddValuesError, spread
from magnetar.pipeline.values.avro_defaults import decode_defaults
from magnetar.pipeline.values.avro_plan import Plan, plan_of, resolved_fields
from magnetar.pipeline.values.avro_types import AvroTypes, physical, with_text
from magnetar.pipeline.values.interface import DecodedValues
from magnetar.pipeline.values.row_by_row import ENCRYPTED, arrow_array, decode_each, field_arrays
from magnetar.pipeline.values.types import column, record_columns
from magnetar.pipeline.values.versions import WrittenVersions

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.pipeline.values.interface import ValueBatch
    from magnetar.pipeline.values.topic_schema import SchemaVersions, TopicSchema


class _Writer(NamedTuple):
    """A version to read: its plan, its definition for the library, and the definition to which its values are resolved
    (None: its own).
    """

    plan: Plan | None
    parsed: Any
    reader: Any


class AvroValues:
    """Decodes to the columns of the reader's schema."""

    def __init__(self, reader: TopicSchema, versions: SchemaVersions) -> None:
        """Raises SchemaError for a reader's schema that has no form as columns."""
        self._definition = physical(reader.definition)
        types = AvroTypes()
        self._arrow = types.arrow(self._definition)
        self._mixed = types.has_mixed_unions
        self._is_record = pa.types.is_struct(self._arrow)
        self._named_record = isinstance(self._definition, dict) and "fields" in self._definition
        self.columns = record_columns(self._arrow) if self._is_record else (column("value", self._arrow),)
        self._reader = _parsed_reader(self._definition)
        self._versions = WrittenVersions(versions, self._writer)
        self._plan = plan_of(self._definition)
        self._own = _Writer(self._plan, self._reader, None)

    def decode(self, batch: ValueBatch) -> DecodedValues:
        """See ValueDecoder."""
        failures = {int(row): ENCRYPTED for row in np.flatnonzero(batch.encrypted)}
        groups = self._versions.groups(batch.schema_version, self._own, failures)
        if len(groups) == 1 and not failures:
            fast = self._in_lock_step(batch.payload, groups[0][0])
            if fast is not None:
                return DecodedValues(fast)
        return self._one_by_one(batch, groups, failures)

    def _writer(self, schema: TopicSchema) -> _Writer:
        if schema.type.upper() != "AVRO":  # the definition of a JSON schema is Avro's too, its payloads are not
            raise SchemaError(f"its payloads are {schema.type}, not AVRO; read with valueMode=bytes")
        definition = physical(schema.definition)
        parsed = _parsed(definition)
        return _Writer(plan_of(definition), parsed, self._reader_for(definition))

    def _reader_for(self, definition: Any) -> Any:
        """The reader's schema under the writer's name: Avro in Java, and so the broker, compares records by their
        fields; the library also wants the names equal.
        """
        if not (self._named_record and isinstance(definition, dict) and "name" in definition):
            return self._reader
        names = {key: definition[key] for key in ("name", "namespace") if key in definition}
        without = {key: value for key, value in self._definition.items() if key != "namespace"}
        try:
            return _parsed_reader({**without, **names})
        except SchemaError:  # the schema names its own types in full
            return self._reader

    def _in_lock_step(self, payload: pa.Array, writer: _Writer) -> list[pa.Array] | None:
        """Read all rows at once; None without a plan for the schema or its resolution, or for an odd row."""
        if self._plan is None or writer.plan is None:
            return None
        numbers = self._fields(writer)
        if numbers is None:
            return None
        n = len(payload)
        offsets = np.frombuffer(payload.buffers()[1], np.int32)[payload.offset : payload.offset + n + 1].astype(
            np.int64
        )
        present = np.asarray(payload.is_valid())
        reader = ColumnReader(np.frombuffer(payload.buffers()[2] or b"", np.uint8), offsets[:-1], offsets[1:])
        try:
            found = reader.read(writer.plan, np.flatnonzero(present))
        except OddValuesError:
            return None
        arrays = found.flatten() if self._is_record else [found]
        chosen = [
            pa.nulls(len(found), column.arrow) if number is None else arrays[number]
            for number, column in zip(numbers, self.columns, strict=True)
        ]
        return chosen if present.all() else [spread(array, present) for array in chosen]

    def _fields(self, writer: _Writer) -> list[int | None] | None:
        """For each column the number of the writer's field; None when these rows cannot be read in lock step."""
        assert self._plan is not None
        assert writer.plan is not None
        if not self._is_record:
            return [0] if writer.plan.reads_as(self._plan) else None
        if not self._named_record or writer.plan.kind != "record" or writer.plan.null_branch is not None:
            return None
        return resolved_fields(writer.plan, self._plan, self._definition)

    def _one_by_one(
        self, batch: ValueBatch, groups: list[tuple[_Writer, list[int]]], failures: dict[int, str]
    ) -> DecodedValues:
        payloads = batch.payload.to_pylist()
        rows: list[Any] = [None] * len(payloads)
        for writer, numbers in groups:
            for number, value in zip(numbers, self._decoded(payloads, numbers, writer, failures), strict=True):
                rows[number] = with_text(value, self._arrow) if self._mixed else value
        if not self._is_record:
            return DecodedValues([arrow_array(rows, self._arrow, failures)], failures)
        return DecodedValues(field_arrays(rows, self._arrow, failures), failures)

    def _decoded(
        self, payloads: list[bytes | None], numbers: list[int], writer: _Writer, failures: dict[int, str]
    ) -> list[Any]:
        """The values of these rows, which one schema wrote."""
        own: dict[int, str] = {i: "" for i, number in enumerate(numbers) if number in failures}
        before = set(own)
        values = decode_each([payloads[number] for number in numbers], _read(writer), own)
        failures |= {numbers[i]: why for i, why in own.items() if i not in before}
        return values


def _read(writer: _Writer) -> Callable[[bytes], Any]:
    def read(payload: bytes) -> Any:
        try:
            return fastavro.schemaless_reader(io.BytesIO(payload), writer.parsed, writer.reader)
        except SchemaResolutionError as e:
            raise SchemaError("the version it was written under does not resolve to the reader's schema") from e

    return read


def _parsed_reader(definition: Any) -> Any:
    """The parsed definition of the reader, to which older versions are resolved; its defaults are values."""
    parsed = _parsed(definition)
    decode_defaults(parsed)
    return parsed


def _parsed(definition: Any) -> Any:
    try:
        return fastavro.parse_schema(definition)
    except Exception as e:
        raise SchemaError(f"no Avro schema: {e}") from e
