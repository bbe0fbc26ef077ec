"""How a table's schema follows a topic's: columns are added, never dropped, and widen where the format allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from magnetar.pipeline.lake.errors import SchemaDriftError

if TYPE_CHECKING:
    from collections.abc import Iterable

_WIDER: Final = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
}


def merge(table: pa.Schema, topic: pa.Schema, *, widen: bool) -> pa.Schema:
    """The table's columns in their order, then those only the topic has; all nullable.

    Args:    widen: whether the format may change int to long and float to double.
    Raises:  SchemaDriftError.
    """
    fields = {field.name: field for field in table}
    for field in topic:
        have = fields.get(field.name)
        wanted = field.type if have is None else _merged(field.name, have.type, field.type, widen=widen)
        fields[field.name] = pa.field(field.name, wanted, nullable=True)
    return pa.schema(list(fields.values()))


def _merged(name: str, table: pa.DataType, topic: pa.DataType, *, widen: bool) -> pa.DataType:
    if table.equals(topic) or table in _WIDER.get(topic, ()):
        return table
    if widen and topic in _WIDER.get(table, ()):
        return topic
    if pa.types.is_struct(table) and pa.types.is_struct(topic):
        merged = merge(pa.schema(list(table)), pa.schema(list(topic)), widen=widen)
        return pa.struct(list(merged))
    if pa.types.is_list(table) and pa.types.is_list(topic):
        return pa.list_(_merged(name, table.value_type, topic.value_type, widen=widen))
    if pa.types.is_map(table) and pa.types.is_map(topic) and table.key_type.equals(topic.key_type):
        return pa.map_(table.key_type, _merged(name, table.item_type, topic.item_type, widen=widen))
    if (_text(table) and _text(topic)) or (_bytes(table) and _bytes(topic)):
        return table
    raise SchemaDriftError(name, table, topic)


def _text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns: absent columns are null, narrower columns are cast.

    Raises: SchemaDriftError for a column that cannot be cast, or that the schema does not have.
    """
    if batch.schema.equals(schema):
        return batch
    unknown = [name for name in batch.schema.names if name not in schema.names]
    if unknown:
        raise SchemaDriftError(unknown[0], "absent", batch.schema.field(unknown[0]).type)
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(at)
    if column.type.equals(field.type):
        return column
    try:
        return _cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaDriftError(field.name, field.type, column.type) from error


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Casts, and adds absent fields of structs as nulls, which a plain cast refuses."""
    if not (pa.types.is_struct(wanted) and pa.types.is_struct(column.type)):
        return column.cast(wanted)
    have = {column.type.field(i).name: i for i in range(column.type.num_fields)}
    parts: Iterable[pa.Array] = [
        _cast(column.field(have[field.name]), field.type) if field.name in have else pa.nulls(len(column), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(list(parts), fields=list(wanted), mask=column.is_null())
