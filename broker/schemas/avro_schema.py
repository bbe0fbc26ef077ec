"""Avro schema texts: validity and equality by the rules of Apache Avro's Java library.

`parse_schema` refuses the texts that the library refuses: invalid names, the same field twice, an undefined type. Of
default values it checks those of enums, and texts in place of fractions; the others are the subject of `avro_defaults`.
It also refuses a text beyond the limits of the module `work`, so that every later walk over the schema is bounded.
`canonical` removes the parts without effect on equality (doc, aliases, how a name is qualified, wrappers around a plain
type) and keeps the others (order of fields, defaults, other properties).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from magnetar.broker.compat.java_texts import trimmed
from magnetar.broker.schemas.avro_names import full_name
from magnetar.broker.schemas.work import (
    MAX_DEFINITION_BYTES,
    MAX_DEPTH,
    MAX_NAME_CHARACTERS,
    MAX_VALUES,
    SchemaWork,
    count_values,
)

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_RESERVED = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases", "default"}
)
_REASON_CHARACTERS = 200
_FRACTION: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
"""A number as Double.valueOf reads it."""
_FIELD_RESERVED = frozenset({"default", "doc", "name", "order", "type", "aliases"})


class SchemaTextError(Exception):
    """The text is no Avro schema."""


class SchemaMeaningError(SchemaTextError):
    """The text has the form of a schema, but is contradictory: an undefined type, a field twice."""


class SchemaLimitError(SchemaTextError):
    """The text is larger, deeper or made of more values than a schema may be."""


def parse_schema(data: bytes, work: SchemaWork | None = None) -> Any:
    """Return the schema as JSON values; raises SchemaTextError, and SchemaWorkError when `work` is used up."""
    work = work or SchemaWork()
    schema = parse_json(data, work)
    walk = _Check(work)
    walk.check(schema, "")
    if unknown := walk.used - walk.defined:
        raise SchemaMeaningError(f"undefined names: {sorted(unknown)[:10]}")
    return schema


def parse_json(data: bytes, work: SchemaWork) -> Any:
    """Return a JSON value within the limits of schemas; raises SchemaTextError."""
    if len(data) > MAX_DEFINITION_BYTES:
        raise SchemaLimitError(f"a schema may have {MAX_DEFINITION_BYTES} bytes, not {len(data)}")
    try:
        schema = json.loads(data)
    except RecursionError as e:
        raise SchemaLimitError("nested too deeply") from e
    except ValueError as e:
        raise SchemaTextError(str(e)[:_REASON_CHARACTERS]) from e
    values, depth = count_values(schema, work)
    if depth > MAX_DEPTH or values > MAX_VALUES:
        raise SchemaLimitError(f"a schema may have {MAX_VALUES} values, nested {MAX_DEPTH} deep")
    return schema


def canonical(schema: Any, work: SchemaWork | None = None) -> Any:
    """Return JSON values that compare equal for equal schemas."""
    return _Canonical(work or SchemaWork()).of(schema, "")


def _name(schema: dict[str, Any]) -> str:
    name = schema.get("name")
    if isinstance(name, str) and len(name) > MAX_NAME_CHARACTERS:
        raise SchemaLimitError(f"a name of {len(name)} characters")
    if not isinstance(name, str) or not _is_name(name.rpartition(".")[2]):
        raise SchemaTextError(f"no name: {repr(name)[:_REASON_CHARACTERS]}")
    return name


def _is_name(text: str) -> bool:
    return bool(text) and (text[0].isalpha() or text[0] == "_") and all(c.isalnum() or c == "_" for c in text)


def _check_aliases(named: dict[str, Any]) -> None:
    aliases = named.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise SchemaTextError(f"no aliases: {repr(aliases)[:_REASON_CHARACTERS]}")


def _check_fraction(field: dict[str, Any]) -> None:
    """Raise SchemaTextError for a default that is a text without a number, where the field is a fraction."""
    kind, default = field["type"], field.get("default")
    while isinstance(kind, dict):
        kind = kind.get("type")
    if isinstance(default, str) and kind in ("float", "double") and not _FRACTION.fullmatch(trimmed(default)):
        raise SchemaTextError(f"no number: {default[:_REASON_CHARACTERS]!r}")


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Check:
    """One walk over a schema; raises an error at the first malformed part."""

    def __init__(self, work: SchemaWork) -> None:
        self.defined: set[str] = set()
        self.used: set[str] = set()
        self._work = work

    def check(self, schema: Any, namespace: str) -> None:
        self._work.spend()
        if isinstance(schema, str):
            if schema not in PRIMITIVES:
                self.used.add(_qualified(schema, namespace))
        elif isinstance(schema, list):
            self._union(schema, namespace)
        elif isinstance(schema, dict):
            self._complex(schema, namespace)
        else:
            raise SchemaTextError(f"no schema: {repr(schema)[:_REASON_CHARACTERS]}")

    def _union(self, branches: list[Any], namespace: str) -> None:
        kinds: set[str] = set()
        twice = False
        for branch in branches:
            if isinstance(branch, list):
                raise SchemaTextError("a union in a union")
            self.check(branch, namespace)
            kind = branch.get("type") if isinstance(branch, dict) else branch
            name = full_name(branch, namespace)[0] if isinstance(kind, str) and kind in _NAMED else kind
            if isinstance(name, str) and name in kinds:
                twice = True
            elif isinstance(name, str):
                kinds.add(name)
        if twice:
            raise SchemaMeaningError("a type twice in a union")

    def _complex(self, schema: dict[str, Any], namespace: str) -> None:
        kind = schema.get("type")
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in schema:
                raise SchemaTextError(f"{kind} without {part}")
            self.check(schema[part], namespace)
        elif isinstance(kind, str) and kind in _NAMED:
            self._define(schema, kind, namespace)
        else:
            self.check(kind, namespace)

    def _define(self, schema: dict[str, Any], kind: str, namespace: str) -> None:
        _name(schema)
        full, namespace = full_name(schema, namespace)
        if full in self.defined:
            raise SchemaTextError(f"{full} is defined twice")
        self.defined.add(full)
        _check_aliases(schema)
        if kind == "fixed":
            if not isinstance(schema.get("size"), int):
                raise SchemaTextError("fixed without size")
        elif kind == "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) and _is_name(s) for s in symbols):
                raise SchemaTextError("enum without symbols")
            if len(set(symbols)) < len(symbols):
                raise SchemaTextError("a symbol twice")
            default = schema.get("default")
            if isinstance(default, str) and default not in symbols:
                raise SchemaTextError(f"no symbol: {default[:_REASON_CHARACTERS]!r}")
        else:
            self._fields(schema.get("fields"), namespace)

    def _fields(self, fields: Any, namespace: str) -> None:
        if not isinstance(fields, list):
            raise SchemaTextError("record without fields")
        names: set[str] = set()
        for field in fields:
            if not isinstance(field, dict) or "type" not in field:
                raise SchemaTextError(f"no field: {repr(field)[:_REASON_CHARACTERS]}")
            name = _name(field)
            _check_aliases(field)
            self.check(field["type"], namespace)
            _check_fraction(field)
            if name in names:
                raise SchemaMeaningError(f"field {name} twice")
            names.add(name)


class _Canonical:
    def __init__(self, work: SchemaWork) -> None:
        self._work = work

    def of(self, schema: Any, namespace: str) -> Any:
        self._work.spend()
        if isinstance(schema, str):
            return schema if schema in PRIMITIVES else _qualified(schema, namespace)
        if isinstance(schema, list):
            return [self.of(branch, namespace) for branch in schema]
        kind = schema["type"]
        properties = {k: v for k, v in schema.items() if k not in _RESERVED}
        if not isinstance(kind, str):
            return self.of(kind, namespace)
        if kind in _NAMED:
            full, namespace = full_name(schema, namespace)
            parts = [self._field(f, namespace) for f in schema.get("fields", ())]
            return [
                "record" if kind == "error" else kind,
                full,
                parts,
                schema.get("symbols"),
                schema.get("size"),
                properties,
            ]
        if kind in ("array", "map"):
            return [kind, self.of(schema["items" if kind == "array" else "values"], namespace), properties]
        inner = self.of(kind, namespace)
        return [inner, properties] if properties else inner

    def _field(self, field: dict[str, Any], namespace: str) -> Any:
        properties = {k: v for k, v in field.items() if k not in _FIELD_RESERVED}
        default = [field["default"]] if "default" in field else []
        order = field.get("order", "ascending")
        return [field["name"], self.of(field["type"], namespace), default, order, properties]
