"""Payloads of AVRO schemas: single records without a container, each written under the version its message names.

A row written under an older version is resolved to the reader's schema by Avro's rules (promotion, defaults, aliases).
Flat records are read in lock step (`avro_flat.py`), also when fields came or went between the versions; the others one
by one.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.read import SchemaResolutionError

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.avro_flat import FlatReader, flat_fields, resolved
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
    """A version to read: its definition, the same for the library, and what it is resolved to (None: itself)."""

    definition: Any
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
        self.columns = record_columns(self._arrow) if self._is_record else (column("value", self._arrow),)
        self._reader = _parsed(self._definition)
        self._versions = WrittenVersions(versions, self._writer)
        self._own = _Writer(self._definition, self._reader, None)

    def decode(self, batch: ValueBatch) -> DecodedValues:
        """See ValueDecoder."""
        failures = {int(row): ENCRYPTED for row in np.flatnonzero(batch.encrypted)}
        groups = self._versions.groups(batch.schema_version, self._own, failures)
        if len(groups) == 1 and not failures:
            fast = self._flat(batch.payload, groups[0][0].definition)
            if fast is not None:
                return DecodedValues(fast)
        return self._one_by_one(batch, groups, failures)

    def _writer(self, schema: TopicSchema) -> _Writer:
        definition = physical(schema.definition)
        return _Writer(definition, _parsed(definition), self._reader_for(definition))

    def _reader_for(self, definition: Any) -> Any:
        """The reader's schema under the writer's name: Avro in Java, and so the broker, compares records by their
        fields; the library also wants the names equal.
        """
        if not (self._is_record and isinstance(definition, dict) and "name" in definition):
            return self._reader
        names = {key: definition[key] for key in ("name", "namespace") if key in definition}
        without = {key: value for key, value in self._definition.items() if key != "namespace"}
        try:
            return _parsed({**without, **names})
        except SchemaError:  # it names its own types in full
            return self._reader

    def _flat(self, payload: pa.Array, definition: Any) -> list[pa.Array] | None:
        """All rows in lock step; None when the schema is not flat or evolves in another way than by columns that come
        or go, or a row does not fit.
        """
        fields = flat_fields(definition)
        if fields is None:
            return None
        n = len(payload)
        offsets = np.frombuffer(payload.buffers()[1], np.int32)[payload.offset : payload.offset + n + 1].astype(
            np.int64
        )
        present = np.asarray(payload.is_valid())
        reader = FlatReader(np.frombuffer(payload.buffers()[2] or b"", np.uint8), offsets[:-1], offsets[1:])
        reader.good &= present
        try:
            arrays = [reader.read(field) for field in fields]
        except pa.ArrowInvalid:  # text that is no UTF-8
            return None
        if not (reader.good | ~present).all():
            return None
        if definition is self._definition:
            return arrays
        found = resolved(fields, arrays, self._definition)
        return found and [
            pa.nulls(n, field.type) if array is None else array for array, field in zip(found, self._arrow, strict=True)
        ]

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


def _parsed(definition: Any) -> Any:
    try:
        return fastavro.parse_schema(definition)
    except Exception as e:
        raise SchemaError(f"no Avro schema: {e}") from e
