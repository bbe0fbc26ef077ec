"""Fields that a JSON document does not have get the defaults of its schema, in records at any depth.

A schema is an Avro definition, where a default is JSON: bytes are text, and a record may omit fields that have defaults
of their own. A field without a default, or with the default null, needs nothing: an absent field is null in Arrow. A
union of several types has no form as a record, so nothing is filled in there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

Fill = Callable[[Any], Any]
"""Returns a decoded value with the defaults; the value itself may change. Raises ValueError or TypeError when a default
does not fit its type.
"""


_UNFIT: Final = object()


def fill_of(definition: Any) -> Fill | None:
    """The function that fills in the defaults of a definition; None for a definition without defaults."""
    return _Defaults().fill(definition, "")


class _Defaults:
    """Names are resolved as they are defined, in the order of the text, as in `avro_types.AvroTypes`."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}

    def fill(self, schema: Any, namespace: str) -> Fill | None:
        """See `fill_of`."""
        schema, namespace = self._resolved(schema, namespace)
        if not isinstance(schema, dict):
            return None
        if schema["type"] in ("array", "map"):
            is_map = schema["type"] == "map"
            each = self.fill(schema["values" if is_map else "items"], namespace)
            return None if each is None else _of_values(each) if is_map else _of_items(each)
        return self._record(schema, namespace) if "fields" in schema else None

    def _record(self, schema: dict[str, Any], namespace: str) -> Fill | None:
        fills = {field["name"]: self.fill(field["type"], namespace) for field in schema["fields"]}
        inner = [(name, fill) for name, fill in fills.items() if fill is not None]
        defaults = {
            field["name"]: self._default(field["type"], field["default"], namespace)
            for field in schema["fields"]
            if field.get("default") is not None
        }
        if not inner and not defaults:
            return None

        def fill(record: dict[str, Any]) -> dict[str, Any]:
            for name, value in defaults.items():
                if name not in record:
                    if value is _UNFIT:
                        raise ValueError(f"the default of {name} does not fit its type")
                    record[name] = deepcopy(value)
            for name, fill_field in inner:
                record[name] = _filled(fill_field, record.get(name))
            return record

        return fill

    def _default(self, schema: Any, default: Any, namespace: str) -> Any:
        """See `_value`; _UNFIT for a default that does not fit its type: rows that need it fail."""
        try:
            return self._value(schema, default, namespace)
        except (AttributeError, TypeError, ValueError):
            return _UNFIT

    def _value(self, schema: Any, default: Any, namespace: str) -> Any:
        """A default in the form that the decoder of documents returns; `fill` adds the fields that a record omits."""
        schema, namespace = self._resolved(schema, namespace)
        if schema in ("bytes", "fixed") or (isinstance(schema, dict) and schema["type"] in ("bytes", "fixed")):
            return default.encode("latin-1") if isinstance(default, str) else default
        if not isinstance(schema, dict):
            return default
        if schema["type"] == "array":
            return [self._value(schema["items"], each, namespace) for each in default]
        if schema["type"] == "map":
            return {key: self._value(schema["values"], each, namespace) for key, each in default.items()}
        if "fields" in schema:
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: self._value(types[name], each, namespace) for name, each in default.items() if name in types}
        return default

    def _resolved(self, schema: Any, namespace: str) -> tuple[Any, str]:
        """Resolve a schema to a definition: follows names, unions of null and one type, and a type within a type."""
        while True:
            if isinstance(schema, list):
                left = [branch for branch in schema if branch != "null"]
                if len(left) != 1:
                    for branch in left:
                        self.fill(branch, namespace)  # later fields may name its definitions
                    return None, namespace
                schema = left[0]
            elif isinstance(schema, str):
                full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
                found = self._named.get(full, self._named.get(schema))
                if found is None:
                    return schema, namespace
                return found
            elif isinstance(schema["type"], dict | list):
                schema = schema["type"]
            else:
                return self._defined(schema, namespace)

    def _defined(self, schema: dict[str, Any], namespace: str) -> tuple[dict[str, Any], str]:
        name = schema.get("name")
        if name is None:
            return schema, namespace
        own = schema.get("namespace", namespace)
        full = name if "." in name or not own else f"{own}.{name}"
        self._named[full] = schema, full.rpartition(".")[0]
        return self._named[full]


def _of_items(each: Fill) -> Fill:
    return lambda values: [_filled(each, value) for value in values]


def _of_values(each: Fill) -> Fill:
    return lambda values: {key: _filled(each, value) for key, value in values.items()}


def _filled(fill: Fill, value: Any) -> Any:
    return None if value is None else fill(value)
