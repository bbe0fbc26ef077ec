"""Avro's binary form as plain values, and back. Pure.

    record   dict of every field            array   list
    map      dict                           enum    its symbol
    union    the value of its branch; when encoding, None selects the null branch and any other value the first other
    branch

The bytes to decode come from a peer, so decoding stops at a limit of values, whatever number of items the bytes claim.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from magnetar.broker.schemas.avro_names import NamedTypes

__all__ = ["MOST_VALUES", "AvroValueError", "AvroValues"]

MOST_VALUES: Final = 100_000
"""Limit of the values in a message, including nested values."""
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_MOST_SHIFT: Final = 63


class AvroValueError(ValueError):
    """The bytes or the value do not fit the schema."""


class AvroValues:
    """Decodes and encodes values of a schema that `parse_schema` accepted; reusable."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._names = NamedTypes(schema)

    def decode(self, data: bytes) -> Any:
        """Decode one message. Raises AvroValueError."""
        reading = _Reading(self._names, data)
        try:
            value = reading.value(self._schema, "")
        except (RecursionError, UnicodeDecodeError, struct.error, KeyError) as error:
            raise AvroValueError(f"not a value of the schema: {type(error).__name__}") from error
        if reading.at != len(data):
            raise AvroValueError(f"{len(data) - reading.at} bytes follow the value")
        return value

    def encode(self, value: Any) -> bytes:
        """Return the binary form. Raises AvroValueError."""
        out = bytearray()
        try:
            self._write(out, self._schema, "", value)
        except (TypeError, KeyError, AttributeError, OverflowError, struct.error, RecursionError) as error:
            raise AvroValueError(f"no value of the schema: {error!r}") from error
        return bytes(out)

    def _write(self, out: bytearray, schema: Any, namespace: str, value: Any) -> None:
        schema, inside = self._names.resolve(schema, namespace)
        if isinstance(schema, list):
            index = next((i for i, each in enumerate(schema) if (each == "null") == (value is None)), None)
            if index is None:
                raise AvroValueError("the union has no branch for the value")
            out += _long(index)
            self._write(out, schema[index], inside, value)
        elif isinstance(schema, str):
            out += _primitive(schema, value)
        elif schema["type"] in ("record", "error"):
            for field in schema["fields"]:
                self._write(out, field["type"], inside, value[field["name"]])
        elif schema["type"] == "enum":
            if value not in schema["symbols"]:
                raise AvroValueError(f"{value!r} is none of the symbols of {schema['name']}")
            out += _long(schema["symbols"].index(value))
        elif schema["type"] == "array":
            self._write_items(out, schema["items"], inside, [(None, each) for each in value])
        elif schema["type"] == "map":
            self._write_items(out, schema["values"], inside, list(value.items()))
        else:
            raise AvroValueError(f"values of type {schema['type']} are not encoded")

    def _write_items(self, out: bytearray, kind: Any, namespace: str, items: list[tuple[str | None, Any]]) -> None:
        if items:
            out += _long(len(items))
        for key, value in items:
            if key is not None:
                out += _primitive("string", key)
            self._write(out, kind, namespace, value)
        out += _long(0)


class _Reading:
    """The decoding of one message."""

    def __init__(self, names: NamedTypes, data: bytes) -> None:
        self.at = 0
        self._names, self._data = names, data
        self._left = MOST_VALUES

    def value(self, schema: Any, namespace: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise AvroValueError(f"more than {MOST_VALUES} values")
        schema, inside = self._names.resolve(schema, namespace)
        if isinstance(schema, list):
            index = self._long()
            if not 0 <= index < len(schema):
                raise AvroValueError(f"a union has no branch {index}")
            return self.value(schema[index], inside)
        if isinstance(schema, str):
            return self._primitive(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return {field["name"]: self.value(field["type"], inside) for field in schema["fields"]}
        if kind == "enum":
            index = self._long()
            if not 0 <= index < len(schema["symbols"]):
                raise AvroValueError(f"{schema['name']} has no symbol {index}")
            return schema["symbols"][index]
        if kind == "fixed":
            return self._take(schema["size"])
        if kind == "array":
            return [self.value(schema["items"], inside) for _ in self._items()]
        if kind == "map":
            return {self._primitive("string"): self.value(schema["values"], inside) for _ in self._items()}
        raise AvroValueError(f"there is no type {kind!r}")

    def _items(self) -> Any:
        """Yield once for each item of all blocks."""
        while count := self._long():
            if count < 0:
                self._long()  # bytes of the block
                count = -count
            for _ in range(count):
                yield None

    def _primitive(self, kind: str) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return self._take(1) != b"\0"
        if kind in ("int", "long"):
            return self._long()
        if kind == "float":
            return _FLOAT.unpack(self._take(4))[0]
        if kind == "double":
            return _DOUBLE.unpack(self._take(8))[0]
        if kind in ("bytes", "string"):
            taken = self._take(self._long())
            return taken if kind == "bytes" else taken.decode()
        raise AvroValueError(f"there is no type {kind!r}")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise AvroValueError("the value ends early")
        taken = self._data[self.at : self.at + size]
        self.at += size
        return taken

    def _long(self) -> int:
        """A zig-zag number of seven bits a byte."""
        found = shift = 0
        while True:
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > _MOST_SHIFT:
                raise AvroValueError("a number is too long")


def _long(value: int) -> bytes:
    if isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise AvroValueError(f"{value!r} is no number of 64 bits")
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _primitive(kind: str, value: Any) -> bytes:
    if kind == "null":
        return b""
    if kind == "boolean":
        return b"\1" if value else b"\0"
    if kind in ("int", "long"):
        return _long(value)
    if kind == "float":
        return _FLOAT.pack(value)
    if kind == "double":
        return _DOUBLE.pack(value)
    if kind in ("bytes", "string"):
        data = value.encode() if kind == "string" else bytes(value)
        return _long(len(data)) + data
    raise AvroValueError(f"there is no type {kind!r}")
