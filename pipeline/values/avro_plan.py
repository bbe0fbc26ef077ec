"""The steps of a reader of an Avro schema, as a tree without names and references: the plan of `avro_columns.py`.

There is no plan for unions of several types, decimals and the type null: such schemas are read row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

_PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "string", "bytes")


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one value. null_branch: number of null in its union, None without a union. fields: the fields of a
    record by name; the element of an array; the value of a map.
    """

    kind: str
    logical: str = ""
    null_branch: int | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0
    fields: tuple[tuple[str, Plan], ...] = ()

    def reads_as(self, other: Plan) -> bool:
        """Whether values that this plan, the writer's, describes are valid for the plan `other` without any change."""
        if self.null_branch is not None and other.null_branch is None:
            return False
        same = (self.kind, self.logical, self.symbols, self.size) == (
            other.kind,
            other.logical,
            other.symbols,
            other.size,
        )
        return (
            same
            and len(self.fields) == len(other.fields)
            and all(
                name == other_name and field.reads_as(other_field)
                for (name, field), (other_name, other_field) in zip(self.fields, other.fields, strict=True)
            )
        )


def plan_of(schema: Any) -> Plan | None:
    """The plan of a schema that `AvroTypes` has taken; None when there is none."""
    return _Planner().plan(schema, "")


class _Planner:
    def __init__(self) -> None:
        self._named: dict[str, Plan | None] = {}

    def plan(self, schema: Any, namespace: str) -> Plan | None:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return Plan(schema)
            return self._named.get(_full(schema, namespace), self._named.get(schema))
        return self._complex(schema, namespace)

    def _complex(self, schema: dict[str, Any], namespace: str) -> Plan | None:
        kind, logical = schema["type"], schema.get("logicalType", "")
        if isinstance(kind, dict | list):
            return self.plan(kind, namespace)
        if logical == "decimal":
            return None
        if kind in ("array", "map"):
            inner = self.plan(schema["items" if kind == "array" else "values"], namespace)
            return None if inner is None else Plan(kind, fields=(("", inner),))
        if kind in ("record", "error", "enum", "fixed"):
            own = schema.get("namespace", namespace)
            name = _full(str(schema.get("name", "")), own)
            found = self._definition(schema, kind, name.rpartition(".")[0])
            self._named[name] = found
            return found
        if kind in _PRIMITIVES:
            return Plan(kind, logical)
        return self.plan(kind, namespace)

    def _definition(self, schema: dict[str, Any], kind: str, namespace: str) -> Plan | None:
        if kind == "enum":
            return Plan(kind, symbols=tuple(schema["symbols"]))
        if kind == "fixed":
            return Plan(kind, size=int(schema["size"]))
        fields = []
        for field in schema["fields"]:
            found = self.plan(field["type"], namespace)
            if found is None:
                return None
            fields.append((str(field["name"]), found))
        return Plan("record", fields=tuple(fields))

    def _union(self, branches: list[Any], namespace: str) -> Plan | None:
        if len(branches) != 2 or "null" not in branches or branches[0] == branches[1]:
            return None
        null_branch = branches.index("null")
        inner = self.plan(branches[1 - null_branch], namespace)
        return None if inner is None or inner.null_branch is not None else replace(inner, null_branch=null_branch)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def resolved_fields(writer: Plan, reader: Plan, definition: Any) -> list[int | None] | None:
    """Return for each field of the reader's record the number of the writer's field; None for a field that is always
    null.

    Returns None instead of the list when resolution needs more than omitting fields, reordering fields and adding nulls
    (promotion, other defaults, aliases).
    """
    if any("aliases" in field for field in definition["fields"]):
        return None
    numbers = {name: number for number, (name, _) in enumerate(writer.fields)}
    found: list[int | None] = []
    for (name, field), details in zip(reader.fields, definition["fields"], strict=True):
        number = numbers.get(name)
        if number is None and (field.null_branch is None or details.get("default", ...) is not None):
            return None
        if number is not None and not writer.fields[number][1].reads_as(field):
            return None
        found.append(number)
    return found
