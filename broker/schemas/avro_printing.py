"""An Avro schema as text, as Apache Avro's Java library prints it (`Schema.toString(true)`); refusals show it.

An object has a line per key; an array has no lines of its own: ``"fields" : [ {`` ... ``} ]``. Keys are in the
library's order. The text omits a namespace equal to the enclosing namespace, and a wrapper ``{"type": "int"}`` without
another member.
"""

from __future__ import annotations

import json
from typing import Any

from magnetar.broker.schemas.avro_names import full_name

_NAMED = frozenset({"record", "error", "enum", "fixed"})
_SCHEMA_KEYS = ("type", "name", "namespace", "doc", "size", "symbols", "default", "fields", "items", "values")
_FIELD_KEYS = ("name", "type", "doc", "default", "order", "aliases")


def printed(schema: Any) -> str:
    """Return the text of a schema that `parse_schema` accepted."""
    return _lines(_ordered(schema, ""), "")


def printed_in_a_line(schema: Any) -> str:
    """Return the text of a schema as `Schema.toString()` prints it."""
    return json.dumps(_ordered(schema, ""), separators=(",", ":"))


def _ordered(schema: Any, namespace: str) -> Any:
    if isinstance(schema, list):
        return [_ordered(branch, namespace) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if not isinstance(kind, str) or set(schema) == {"type"}:
        return _ordered(kind, namespace)
    found = dict(schema)
    if kind in _NAMED:
        full, inner = full_name(schema, namespace)
        found["name"] = full.rpartition(".")[2]
        found.pop("namespace", None)
        if inner != namespace:
            found["namespace"] = inner
        namespace = inner
    for part in ("items", "values"):
        if part in found:
            found[part] = _ordered(found[part], namespace)
    if "fields" in found:
        found["fields"] = [_field(field, namespace) for field in found["fields"]]
    return _sorted(found, _SCHEMA_KEYS)


def _field(field: dict[str, Any], namespace: str) -> dict[str, Any]:
    found = dict(field, type=_ordered(field["type"], namespace))
    if found.get("order") == "ascending":
        del found["order"]
    return _sorted(found, _FIELD_KEYS)


def _sorted(found: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    others = sorted((k for k in found if k not in keys), key=lambda k: k == "aliases")  # aliases of a type come last
    return {k: found[k] for k in (*keys, *others) if k in found}


def _lines(value: Any, indent: str) -> str:
    if isinstance(value, dict):
        deeper = indent + "  "
        parts = [f"{deeper}{json.dumps(k, ensure_ascii=False)} : {_lines(v, deeper)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}" if parts else "{ }"
    if isinstance(value, list):
        return f"[ {', '.join(_lines(v, indent) for v in value)} ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
