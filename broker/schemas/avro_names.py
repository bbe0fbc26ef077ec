"""Names in an Avro schema: full names, and the types that they mean. Pure."""

from __future__ import annotations

from typing import Any, Final

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


class NamedTypes:
    """Collects the named types of a schema by full name."""

    def __init__(self, schema: Any) -> None:
        self.by_name: dict[str, tuple[Any, str]] = {}
        """The type and the namespace of its content."""
        self._collect(schema, "")

    def _collect(self, schema: Any, namespace: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, namespace)
        elif isinstance(schema, dict):
            kind = schema.get("type")
            if isinstance(kind, str) and kind in _NAMED:
                full, namespace = full_name(schema, namespace)
                self.by_name[full] = schema, namespace
                for field in schema.get("fields", ()):
                    self._collect(field.get("type"), namespace)
            elif isinstance(kind, dict | list):
                self._collect(kind, namespace)
            for part in ("items", "values"):
                if part in schema:
                    self._collect(schema[part], namespace)

    def resolve(self, schema: Any, namespace: str) -> tuple[Any, str]:
        """Return a schema with its name resolved and without `{"type": X}` wrappers, and the namespace inside it."""
        while True:
            if isinstance(schema, str):
                qualified = schema if "." in schema or not namespace else f"{namespace}.{schema}"
                found = self.by_name.get(qualified, self.by_name.get(schema))
                return (schema, namespace) if found is None else found
            if not isinstance(schema, dict):
                return schema, namespace
            kind = schema.get("type")
            if isinstance(kind, str) and kind in _NAMED:
                return schema, full_name(schema, namespace)[1]
            if kind in ("array", "map"):
                return schema, namespace
            schema = kind


def full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a named type and the namespace of its content."""
    name = str(schema.get("name", ""))
    if "." in name:
        return name, name.rpartition(".")[0]
    namespace = str(schema.get("namespace") or namespace)
    return (f"{namespace}.{name}" if namespace else name), namespace
