"""Whether a value of an Avro schema can be decoded in bounded work. Pure.

A value may take no bytes at all: null, fixed of size 0, a record without other fields. The count of an array of such
values may be up to 2^63 in nine bytes. Records that name others twice per level unfold to 2^levels values. Arrays of
the first kind are refused; of the others, the number of values follows from the payload's length.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["SchemaTooWideError", "empty_values"]

MOST_EMPTY: Final = 1000
"""The most values without bytes that an unfolded record may hold."""
_NO_NAMES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class SchemaTooWideError(ValueError):
    """No bound exists for the work of decoding a value of the schema, or the bound is too large."""


def empty_values(schema: Any) -> int:
    """An upper bound of the values without bytes, per byte of a payload of this parsed JSON schema.

    Raises: SchemaTooWideError, and KeyError, TypeError or RecursionError for an invalid schema.
    """
    return _Walk().run(schema)


class _Walk:
    def __init__(self) -> None:
        self._sizes: dict[str, tuple[bool, int] | None] = {}
        self._most = 0

    def run(self, schema: Any) -> int:
        self._size(schema, "")
        return self._most

    def _size(self, schema: Any, namespace: str) -> tuple[bool, int]:
        """(whether a value may take no bytes, number of values without bytes before the first union or count)."""
        if isinstance(schema, list):
            for each in schema:
                self._size(each, namespace)
            return False, 0
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, (dict, list)):
            return self._size(kind, namespace)
        if kind in ("record", "error"):
            return self._record(schema, namespace)
        if kind in ("array", "map"):
            empty, _ = self._size(schema["items" if kind == "array" else "values"], namespace)
            if empty and kind == "array":
                raise SchemaTooWideError("an array of values that take no bytes")
            return False, 0
        if kind in ("enum", "fixed"):
            found = (kind == "fixed" and schema["size"] == 0, int(kind == "fixed"))
            self._sizes[_full_name(schema["name"], schema.get("namespace", namespace))] = found
            return found
        if kind in _NO_NAMES:
            return kind == "null", int(kind == "null")
        return self._named(kind, namespace)

    def _record(self, schema: dict[str, Any], namespace: str) -> tuple[bool, int]:
        name = _full_name(schema["name"], schema.get("namespace", namespace))
        inner = name.rpartition(".")[0]
        self._sizes[name] = None
        fields = [self._size(field["type"], inner) for field in schema["fields"]]
        count = 1 + sum(each for _, each in fields)
        if count > MOST_EMPTY:
            raise SchemaTooWideError("a record that unfolds to many values")
        self._most = max(self._most, count)
        found = self._sizes[name] = all(empty for empty, _ in fields), count
        return found

    def _named(self, name: str, namespace: str) -> tuple[bool, int]:
        full = _full_name(name, namespace)
        if full not in self._sizes:
            full = name
        found = self._sizes[full]
        if found is None:  # unbounded depth: fastavro's compiled reader would crash the process
            raise SchemaTooWideError("a record that holds itself")
        return found


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
