"""Avro schema resolution: can data written with one schema be read with another?

A pure walk over two parsed JSON schemas, by the rules of the Java library that decides in Apache Pulsar (Avro's
Resolver). These are the rules of the specification with two exceptions: names of records do not matter, and an enum
whose symbols are missing is an error of the datum, not of the schema. The Python libraries differ in both points (they
compare record names), hence this walk.

A pair of schemas that contains itself is assumed to fit inside its own comparison, which ends the walk over recursive
schemas. The walk compares every pair once: a schema that uses a type twice at each of forty levels costs forty
comparisons, not 2^40. When an assumption proves wrong, the walk forgets the matches found under the assumption;
differences remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.errors import SchemaDefaultError
from magnetar.broker.schemas.avro_defaults import default_problem
from magnetar.broker.schemas.avro_names import NamedTypes, full_name
from magnetar.broker.schemas.work import SchemaWork, SchemaWorkError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NESTED: Final = 150
"""Limit of nested pairs of types, low enough for the stack of Python."""

_PROMOTIONS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
_NAMED = {"record", "error", "enum", "fixed"}


def can_read(*, reader: Any, writer: Any, work: SchemaWork | None = None) -> str | None:
    """Return None when `reader` reads everything written with `writer`, else the reason with its place.

    Raises SchemaWorkError when `work` is used up, or when pairs are nested more than MAX_NESTED deep, and
    SchemaDefaultError when the library cannot write the default of a field that the writer lacks.
    """
    resolution = _Resolution(NamedTypes(reader), NamedTypes(writer), work or SchemaWork())
    reason = resolution.check(reader, writer, "", "", "/")
    if resolution.default_problem is not None:
        raise SchemaDefaultError(resolution.default_problem())
    return reason


class _Resolution:
    def __init__(self, reader_names: NamedTypes, writer_names: NamedTypes, work: SchemaWork) -> None:
        self._reader_names = reader_names
        self._writer_names = writer_names
        self._work = work
        self._open: set[tuple[int, int]] = set()
        self._fit: dict[tuple[int, int], None] = {}
        self._differ: dict[tuple[int, int], str] = {}
        self._branches: dict[int, dict[str, Any]] = {}
        self.default_problem: Callable[[], str] | None = None
        """The first default that the library cannot write; it counts before any difference."""

    def check(self, reader: Any, writer: Any, reader_space: str, writer_space: str, where: str) -> str | None:
        self._work.spend()
        reader, reader_space = self._reader_names.resolve(reader, reader_space)
        writer, writer_space = self._writer_names.resolve(writer, writer_space)
        if isinstance(reader, str) and isinstance(writer, str):
            if reader == writer or reader in _PROMOTIONS.get(writer, ()):
                return None
            return f"{where}: the reader expects {reader}, the writer wrote {writer}"
        pair = (id(reader), id(writer))
        if pair in self._open or pair in self._fit:
            return None
        if pair in self._differ:
            return self._differ[pair]
        if len(self._open) >= MAX_NESTED:
            raise SchemaWorkError
        known = len(self._fit)
        self._open.add(pair)
        reason = self._compare(reader, writer, reader_space, writer_space, where)
        self._open.discard(pair)
        if reason is None:
            self._fit[pair] = None
        else:
            self._differ[pair] = reason
            while len(self._fit) > known:
                self._fit.popitem()
        return reason

    def _compare(self, reader: Any, writer: Any, reader_space: str, writer_space: str, where: str) -> str | None:
        if isinstance(writer, list):
            for branch in writer:
                if reason := self.check(reader, branch, reader_space, writer_space, where):
                    return reason
            return None
        if isinstance(reader, list):
            return self._union(reader, writer, reader_space, writer_space, where)
        if _kind(reader) == _kind(writer):
            return self._same_kind(reader, writer, reader_space, writer_space, where)
        return f"{where}: the reader expects {_kind(reader)}, the writer wrote {_kind(writer)}"

    def _union(self, reader: list[Any], writer: Any, reader_space: str, writer_space: str, where: str) -> str | None:
        """Check whether a branch accepts the writer's schema: first the branch of the same name, then all others."""
        branches = self._branches.get(id(reader))
        if branches is None:
            self._work.spend(len(reader))
            branches = {_key(*self._reader_names.resolve(branch, reader_space)): branch for branch in reader}
            self._branches[id(reader)] = branches
        likely = branches.get(_key(writer, writer_space))
        problem = self.default_problem
        for branch in reader if likely is None else (likely, *reader):
            if self.check(branch, writer, reader_space, writer_space, where) is None:
                return None
            self.default_problem = problem  # the library writes no defaults of a branch that it does not choose
        return f"{where}: no branch of the reader's union takes {_kind(writer)}"

    def _same_kind(self, reader: Any, writer: Any, reader_space: str, writer_space: str, where: str) -> str | None:
        kind = _kind(reader)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return self.check(reader[part], writer[part], reader_space, writer_space, f"{where}{part}/")
        if kind == "record":
            return self._fields(reader, writer, reader_space, writer_space, where)
        if kind in _NAMED and full_name(reader, reader_space)[0] != full_name(writer, writer_space)[0]:
            return f"{where}: the reader expects {reader.get('name')}, the writer wrote {writer.get('name')}"
        if kind == "fixed" and reader.get("size") != writer.get("size"):
            return f"{where}: fixed of different sizes"
        return None

    def _fields(self, reader: Any, writer: Any, reader_space: str, writer_space: str, where: str) -> str | None:
        written = {field["name"]: field for field in writer.get("fields", ())}
        added: list[Any] = []
        first_reason = None
        for field in reader.get("fields", ()):
            names = [field["name"], *field.get("aliases", ())]
            source = next((written[n] for n in names if n in written), None)
            place = f"{where}{field['name']}/"
            if source is None:
                if "default" not in field:
                    return f"{place}: the writer has no such field and the reader no default"
                added.append(field)
                continue
            reason = self.check(field["type"], source["type"], reader_space, writer_space, place)
            first_reason = first_reason or reason
        for field in added:
            found = default_problem(self._reader_names, field["type"], reader_space, field["default"], self._work)
            self.default_problem = self.default_problem or found
        return first_reason


def _key(schema: Any, namespace: str) -> str:
    """The key of a branch of a union: the full name of a named type, the kind of any other type."""
    kind = _kind(schema)
    return full_name(schema, namespace)[0] if isinstance(schema, dict) and kind in _NAMED else kind


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)
