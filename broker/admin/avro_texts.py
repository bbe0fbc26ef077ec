"""Converts Avro's JSON encoding to its binary encoding, as Apache Avro 1.12 does. Pure.

JSON                                          becomes
null                                          nothing
{"branch": value}, for null plain null        union: the branch's index, the value
text, a character per byte (up to U+00FF)     bytes, fixed
object with every field, in any order         record; other members are left out
array, object                                 one block (none when empty) and a zero
"""

from __future__ import annotations

import reprlib
import struct
from typing import Any

from magnetar.broker.schemas.avro_names import NamedTypes, full_name

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


class AvroTextError(ValueError):
    """The JSON does not fit the schema."""


class AvroTexts:
    """Encodes JSON values of a schema that `parse_schema` accepted; resolves the names of types once."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._names = NamedTypes(schema)
        self._branches: dict[int, dict[str, tuple[int, Any]]] = {}
        self._symbols: dict[int, dict[str, int]] = {}
        self._out = bytearray()

    def encode(self, value: Any) -> bytes:
        """The binary form of a JSON value. Raises AvroTextError."""
        self._out = bytearray()
        try:
            self.write(self._schema, "", value)
        except RecursionError:
            raise AvroTextError("nested too deep") from None
        except (OverflowError, UnicodeEncodeError) as e:
            raise AvroTextError(str(e)) from e
        return bytes(self._out)

    def write(self, schema: Any, namespace: str, value: Any) -> None:
        schema, inside = self._names.resolve(schema, namespace)
        if isinstance(schema, list):
            self._union(schema, inside, value)
        elif isinstance(schema, str):
            self._primitive(schema, value)
        elif schema["type"] in ("record", "error"):
            _require(isinstance(value, dict), "record", value)
            for field in schema["fields"]:
                _require(field["name"] in value, f"field {field['name']}", value)
                self.write(field["type"], inside, value[field["name"]])
        else:
            self._complex(schema, inside, value)

    def _union(self, branches: list[Any], namespace: str, value: Any) -> None:
        if value is None:
            name, inner = "null", None
        else:
            _require(isinstance(value, dict) and len(value) == 1, "union", value)
            ((name, inner),) = value.items()
        known = self._branches.get(id(branches))
        if known is None:
            numbered = [(self._branch_name(branch, namespace), (i, branch)) for i, branch in enumerate(branches)]
            known = self._branches[id(branches)] = dict(reversed(numbered))
        found = known.get(name)
        if found is None:
            raise AvroTextError(f"no union: {reprlib.repr(value)}")
        self._long(found[0])
        self.write(found[1], namespace, inner)

    def _branch_name(self, branch: Any, namespace: str) -> str:
        schema, inside = self._names.resolve(branch, namespace)
        if isinstance(schema, str):
            return schema
        kind = str(schema["type"])
        if kind in ("array", "map"):
            return kind
        return full_name(schema, inside)[0]

    def _complex(self, schema: dict[str, Any], inside: str, value: Any) -> None:
        kind = schema["type"]
        if kind == "enum":
            known = self._symbols.get(id(schema))
            if known is None:
                known = self._symbols[id(schema)] = {symbol: i for i, symbol in enumerate(schema["symbols"])}
            _require(isinstance(value, str) and value in known, "enum", value)
            self._long(known[value])
        elif kind == "fixed":
            _require(isinstance(value, str) and len(value) == schema["size"], "fixed", value)
            self._out += value.encode("latin-1")
        elif kind == "array":
            _require(isinstance(value, list), "array", value)
            if value:
                self._long(len(value))
            for item in value:
                self.write(schema["items"], inside, item)
            self._long(0)
        else:
            _require(isinstance(value, dict), "map", value)
            if value:
                self._long(len(value))
            for key, item in value.items():
                self._bytes(key.encode())
                self.write(schema["values"], inside, item)
            self._long(0)

    def _primitive(self, kind: str, value: Any) -> None:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind == "null":
            _require(value is None, kind, value)
        elif kind == "boolean":
            _require(isinstance(value, bool), kind, value)
            self._out.append(value)
        elif kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            _require(number and int(value) == value and -(1 << bits) <= value < 1 << bits, kind, value)
            self._long(int(value))
        elif kind in ("float", "double"):
            _require(number, kind, value)
            self._out += (_FLOAT if kind == "float" else _DOUBLE).pack(value)
        else:
            _require(isinstance(value, str), kind, value)
            self._bytes(value.encode("latin-1" if kind == "bytes" else "utf-8"))

    def _bytes(self, data: bytes) -> None:
        self._long(len(data))
        self._out += data

    def _long(self, value: int) -> None:
        rest = (value << 1) ^ (value >> 63)
        while rest > 0x7F:
            self._out.append(rest & 0x7F | 0x80)
            rest >>= 7
        self._out.append(rest)


def _require(holds: bool, wanted: str, value: Any) -> None:
    if not holds:
        raise AvroTextError(f"no {wanted}: {reprlib.repr(value)}")
