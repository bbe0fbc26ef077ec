"""Defaults of an Avro schema as values. In a schema a default is JSON: bytes are text, times are numbers, and a record
may omit fields that have defaults of their own. The library returns the JSON as it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastavro.read import LOGICAL_READERS

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def decode_defaults(parsed: Any) -> None:
    """Replace the defaults in a schema of `fastavro.parse_schema`; a default that does not fit its type stays."""
    named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
    found = []
    for field in _fields([parsed, *named.values()]):
        try:
            found.append((field, _value(field["type"], field["default"], named)))
        except _UNREADABLE:
            continue
    for field, value in found:
        field["default"] = value


def _fields(schemas: list[Any]) -> Iterator[dict[str, Any]]:
    """The fields with a default of all records in the schemas, each once."""
    seen: set[int] = set()
    todo = list(schemas)
    while todo:
        schema = todo.pop()
        if isinstance(schema, list):
            todo += schema
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        todo += [schema[key] for key in ("type", "items", "values") if key in schema]
        for field in schema.get("fields", ()):
            todo.append(field["type"])
            if "default" in field and id(field) not in seen:
                seen.add(id(field))
                yield field


def _value(schema: Any, default: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        if default is None:
            return None
        return _value(next(branch for branch in schema if branch != "null"), default, named)
    if isinstance(schema, str):
        return _value(named[schema], default, named) if schema in named else _plain(schema, default)
    kind = schema["type"]
    if kind in ("record", "error"):
        return {
            field["name"]: _value(
                field["type"], default[field["name"]] if field["name"] in default else field["default"], named
            )
            for field in schema["fields"]
        }
    if kind == "array":
        return [_value(schema["items"], each, named) for each in default]
    if kind == "map":
        return {key: _value(schema["values"], each, named) for key, each in default.items()}
    if not isinstance(kind, str):
        return _value(kind, default, named)
    raw = _plain(kind, default)
    logical = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    return raw if logical is None else logical(raw, schema, None)


def _plain(kind: str, default: Any) -> Any:
    if kind in ("bytes", "fixed"):
        return default.encode("latin-1")
    return float(default) if kind in ("float", "double") else default
