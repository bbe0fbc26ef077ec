"""Default values of fields, judged as Apache Avro's Java library judges them. Pure.

The library has two judgements. `invalid_default` is that of its parser, to which Apache Pulsar gives the schemas of a
topic when a further schema comes. `default_problem` is that of its resolution, which writes the default of a field that
the writer does not have: it refuses symbols that an enum lacks, and accepts numbers of any type.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.compat.java_numbers import fits
from magnetar.broker.schemas.avro_names import NamedTypes, full_name
from magnetar.broker.schemas.avro_printing import printed_in_a_line
from magnetar.broker.schemas.work import SchemaWork, SchemaWorkError

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXTS: Final = frozenset({"string", "bytes", "enum", "fixed"})
_BITS: Final = {"int": 32, "long": 64}
_FRACTIONS: Final = ("float", "double")
_RECORDS: Final = ("record", "error")
_SHOWN_CHARACTERS: Final = 200
_SYMBOL_CHARACTERS: Final = 16 << 10
_SYMBOLS_OF_A_STEP: Final = 64
"""Symbols that take as long as a step."""
_ABSENT: Final = object()


def invalid_default(schema: Any, work: SchemaWork) -> str | None:
    """The refusal of the first field, in the order of the text, whose default is no value of its type; None without
    such a field. Precondition: `parse_schema` accepted the schema. Raises SchemaWorkError.
    """
    try:
        return _Defaults(NamedTypes(schema), work).search(schema, "")
    except RecursionError:  # a record whose default contains its own default
        raise SchemaWorkError from None


class _Defaults:
    def __init__(self, names: NamedTypes, work: SchemaWork) -> None:
        self._names, self._work = names, work

    def search(self, schema: Any, namespace: str) -> str | None:
        self._work.spend()
        if isinstance(schema, list):
            return next(filter(None, (self.search(branch, namespace) for branch in schema)), None)
        if not isinstance(schema, dict):
            return None
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.search(kind, namespace)
        if kind in ("array", "map"):
            return self.search(schema["items" if kind == "array" else "values"], namespace)
        if kind not in _RECORDS:
            return None
        inside = full_name(schema, namespace)[1]
        return next(filter(None, (self._of_field(field, inside) for field in schema["fields"])), None)

    def _of_field(self, field: dict[str, Any], namespace: str) -> str | None:
        problem = self.search(field["type"], namespace)
        if problem is not None or "default" not in field or self._is_valid(field["type"], namespace, field["default"]):
            return problem
        kind = printed_in_a_line(field["type"])[:_SHOWN_CHARACTERS]
        return f"Invalid default for field {field['name']}: {_shown(field['default'])} not a {kind}"

    def _is_valid(self, schema: Any, namespace: str, value: Any) -> bool:
        self._work.spend()
        schema, inside = self._names.resolve(schema, namespace)
        if isinstance(schema, list):
            return any(self._is_valid(branch, inside, value) for branch in schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if value is _ABSENT:
            return False
        if kind == "array":
            return isinstance(value, list) and all(self._is_valid(schema["items"], inside, each) for each in value)
        if kind == "map":
            return isinstance(value, dict) and all(
                self._is_valid(schema["values"], inside, each) for each in value.values()
            )
        if kind in _RECORDS:
            return isinstance(value, dict) and all(
                self._is_valid(field["type"], inside, value.get(field["name"], field.get("default", _ABSENT)))
                for field in schema["fields"]
            )
        return _is_plain(kind, value)


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))[:_SHOWN_CHARACTERS]


def _is_plain(kind: str, value: Any) -> bool:
    if kind in _TEXTS:
        return isinstance(value, str)
    if kind in _BITS:
        return type(value) is int and fits(value, _BITS[kind])
    if kind in _FRACTIONS:
        # The parser has read a number in a text before.
        return type(value) in (int, float, str)
    return value is None if kind == "null" else isinstance(value, bool)


def default_problem(
    names: NamedTypes, schema: Any, namespace: str, value: Any, work: SchemaWork
) -> Callable[[], str] | None:
    """The reason why the library cannot write the default; None for a default that it writes. Raises
    SchemaWorkError.

    The caller composes the text when it shows the reason: that of a large default takes long.
    """
    try:
        return _problem(names, schema, namespace, value, work)
    except RecursionError:
        raise SchemaWorkError from None


def _problem(names: NamedTypes, schema: Any, namespace: str, value: Any, work: SchemaWork) -> Callable[[], str] | None:
    work.spend()
    schema, inside = names.resolve(schema, namespace)
    if isinstance(schema, list):
        for branch in schema:
            work.spend()
            plain = names.resolve(branch, inside)[0]
            if _is_of(plain if isinstance(plain, str) else plain["type"], value):
                return _problem(names, branch, inside, value, work)
        return lambda: f"Not compatible default value for union: {_shown(value)}"
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in _RECORDS:
        return _problem_of_record(names, schema, inside, value, work)
    if kind in ("array", "map"):
        part = schema["items" if kind == "array" else "values"]
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return next(filter(None, (_problem(names, part, inside, each, work) for each in parts)), None)
    if kind == "enum":
        return _problem_of_enum(schema["symbols"], value, work)
    return None if _is_of(kind, value) else lambda: f"{_shown(value)} is no default of {kind}"


def _problem_of_record(
    names: NamedTypes, schema: dict[str, Any], inside: str, value: Any, work: SchemaWork
) -> Callable[[], str] | None:
    for field in schema["fields"]:
        name = field["name"]
        found = field.get("default", _ABSENT)
        if isinstance(value, dict):
            found = value.get(name, found)
        if found is _ABSENT:
            return lambda: f"No default value for: {name}"
        if problem := _problem(names, field["type"], inside, found, work):
            return problem
    return None


def _problem_of_enum(symbols: list[str], value: Any, work: SchemaWork) -> Callable[[], str] | None:
    work.spend(len(symbols) // _SYMBOLS_OF_A_STEP)
    if value in symbols:
        return None

    def text() -> str:
        shown = value[:_SHOWN_CHARACTERS] if isinstance(value, str) else _shown(value)
        return f"enum value '{shown}' is not in the enum symbol set: [{', '.join(symbols)[:_SYMBOL_CHARACTERS]}]"

    return text


def _is_of(kind: str, value: Any) -> bool:
    """Whether the library takes the JSON value for a value of this kind."""
    if kind in _TEXTS:
        return isinstance(value, str)
    if kind in _BITS or kind in _FRACTIONS:
        return type(value) in (int, float) or (kind in _FRACTIONS and isinstance(value, str))
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, list) if kind == "array" else isinstance(value, dict)
