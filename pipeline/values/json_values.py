"""Payloads of JSON schemas: one JSON object each, typed by the topic's latest schema, an Avro definition.

JSON names its fields, so a row written under an older version needs no other schema: a missing field has its default
(`json_defaults`), else null, a field outside the schema is left out, a value of another type is a failure of its row.
Numbers stay numbers where Avro has dates: JSON encoders do not agree on how to write those. Bytes are base64, as Java's
encoder writes them. Floating-point numbers that JSON lacks are the texts of Java's encoder ("NaN", "-Infinity"), or the
words of Python's (NaN, -Infinity).
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

import msgspec
import numpy as np
import pyarrow as pa

from magnetar.pipeline.values.avro_types import AvroTypes, with_text
from magnetar.pipeline.values.interface import DecodedValues
from magnetar.pipeline.values.json_defaults import Fill, fill_of
from magnetar.pipeline.values.row_by_row import ENCRYPTED, arrow_array, decode_each, field_arrays
from magnetar.pipeline.values.types import column, record_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.pipeline.values.interface import ValueBatch
    from magnetar.pipeline.values.topic_schema import TopicSchema

_INT32: Final = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SIMPLE: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): bool,
    pa.int32(): _INT32,
    pa.int64(): _INT64,
    pa.float32(): float,
    pa.float64(): float,
    pa.binary(): bytes,
}
_BEYOND_JSON: Final = {
    "NaN": math.nan,
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
}


class JsonValues:
    """Decodes to the columns of the latest schema."""

    def __init__(self, schema: TopicSchema) -> None:
        """Raises SchemaError for a definition that has no form as columns."""
        types = AvroTypes(logical=False)
        definition = schema.definition
        self._arrow = types.arrow(definition)
        self._mixed = types.has_mixed_unions
        self._is_record = pa.types.is_struct(self._arrow)
        self.columns = record_columns(self._arrow) if self._is_record else (column("value", self._arrow),)
        decode = _decoder(self._arrow, _python_type(self._arrow, mixed=self._mixed))
        fill = fill_of(definition)
        self._decode = decode if fill is None else lambda payload: _filled(fill, decode(payload))

    def decode(self, batch: ValueBatch) -> DecodedValues:
        """See ValueDecoder."""
        failures = {int(row): ENCRYPTED for row in np.flatnonzero(batch.encrypted)}
        rows = decode_each(batch.payload.to_pylist(), self._decode, failures)
        if self._mixed:
            rows = [with_text(row, self._arrow) for row in rows]
        if not self._is_record:
            return DecodedValues([arrow_array(rows, self._arrow, failures)], failures)
        return DecodedValues(field_arrays(rows, self._arrow, failures), failures)


def _decoder(arrow: pa.DataType, python_type: Any) -> Callable[[bytes], Any]:
    """Decodes a document; a document that the fast decoder refuses may have numbers beyond JSON."""
    decoder: Any = msgspec.json.Decoder(python_type)

    def decode(payload: bytes) -> Any:
        try:
            return decoder.decode(payload)
        except msgspec.MsgspecError as refusal:
            try:
                document = _with_numbers(json.loads(payload.decode()), arrow)
                return msgspec.convert(document, python_type, builtin_types=())
            except (ValueError, RecursionError, msgspec.MsgspecError):
                raise refusal from None

    return decode if _has_floats(arrow) else decoder.decode


def _has_floats(arrow: pa.DataType) -> bool:
    return pa.types.is_floating(arrow) or any(_has_floats(arrow.field(k).type) for k in range(arrow.num_fields))


def _with_numbers(value: Any, arrow: pa.DataType) -> Any:
    """The document with the numbers that the client for Java writes as text."""
    if pa.types.is_floating(arrow) and isinstance(value, str):
        return _BEYOND_JSON.get(value, value)
    if pa.types.is_struct(arrow) and isinstance(value, dict):
        return value | {f.name: _with_numbers(value[f.name], f.type) for f in arrow if f.name in value}
    if pa.types.is_list(arrow) and isinstance(value, list):
        return [_with_numbers(each, arrow.value_type) for each in value]
    if pa.types.is_map(arrow) and isinstance(value, dict):
        return {key: _with_numbers(each, arrow.item_type) for key, each in value.items()}
    return value


def _filled(fill: Fill, value: Any) -> Any:
    return None if value is None else fill(value)


def _python_type(arrow: pa.DataType, *, mixed: bool) -> Any:
    """The type msgspec checks a value against; with mixed unions a string may be anything."""
    if pa.types.is_string(arrow):
        return Any if mixed else str
    if pa.types.is_struct(arrow):
        fields = {field.name: _python_type(field.type, mixed=mixed) | None for field in arrow}
        return _typed_dict(fields)
    if pa.types.is_list(arrow):
        return list[_python_type(arrow.value_type, mixed=mixed) | None]  # type: ignore[misc]
    if pa.types.is_map(arrow):
        return dict[str, _python_type(arrow.item_type, mixed=mixed) | None]  # type: ignore[misc]
    return _SIMPLE[arrow]


def _typed_dict(fields: dict[str, Any]) -> Any:
    """A TypedDict whose keys may all be missing."""
    return TypedDict("Record", fields, total=False)  # type: ignore[operator]
