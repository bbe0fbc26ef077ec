"""Types that the columns of a message's parts may have: a wrong type is refused before any row is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.types as kinds

from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class _Expected(NamedTuple):
    text: str
    fits: Callable[[pa.DataType], bool]


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(kinds.is_timestamp(kind) or kinds.is_integer(kind) or kinds.is_null(kind))


def _is_properties(kind: pa.DataType) -> bool:
    if kinds.is_map(kind):
        return _is_text(kind.key_type) and _is_bytes(kind.item_type)
    if not kinds.is_list(kind) or not kinds.is_struct(kind.value_type):
        return bool(kinds.is_null(kind))
    fields = {field.name: field.type for field in kind.value_type}
    return fields.keys() == {"key", "value"} and _is_text(fields["key"]) and _is_bytes(fields["value"])


_BYTES: Final = _Expected("binary or string", _is_bytes)
_TIME: Final = _Expected("timestamp, or a whole number of milliseconds", _is_time)
PART_TYPES: Final[Mapping[str, _Expected]] = {
    "key": _BYTES,
    "ordering_key": _BYTES,
    "topic": _Expected("string", _is_text),
    "partition": _Expected("a whole number", lambda kind: kinds.is_integer(kind) or kinds.is_null(kind)),
    "event_time": _TIME,
    "deliver_at": _TIME,
    "properties": _Expected("map<string,string>, or array<struct<key:string,value:binary>>", _is_properties),
    "schema_version": _BYTES,
}


def check_part_types(schema: pa.Schema, parts: Mapping[str, str]) -> None:
    """parts: part of the message -> its column, see `columns.parts`. Raises: OptionError that names the column."""
    for part, column in parts.items():
        kind, expected = schema.field(column).type, PART_TYPES[part]
        if not expected.fits(kind):
            raise OptionError(f"column {column} is {kind}; {expected.text} is expected")
