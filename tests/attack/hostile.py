"""Values that no client library sends, for every field of a message, generated from its descriptor.

A case is bytes behind a valid message: a parser merges them into the message, so that the last value of a field counts.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIRE = {
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_FIXED64: FIXED64,
    FieldDescriptor.TYPE_SFIXED64: FIXED64,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_FIXED32: FIXED32,
    FieldDescriptor.TYPE_SFIXED32: FIXED32,
    FieldDescriptor.TYPE_STRING: BYTES,
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_MESSAGE: BYTES,
}
NUMBERS = {
    "0": 0,
    "2^31-1": 2**31 - 1,
    "2^31": 2**31,
    "2^32-1": 2**32 - 1,
    "2^63-1": 2**63 - 1,
    "2^63": 2**63,
    "-1": -1,
}
TEXTS = {
    "empty": b"",
    "invalid UTF-8": b"a\xff\xfe\xc0\x80",
    "control characters": b"a\x00\r\n\x1b[2J",
    "slashes": b"persistent://../../../%2e%2e/\xe2\x80\xae",
}
MESSAGES = {"empty": b"", "not a message": b"\xff" * 11, "a thousand groups": b"\x9b\x06" * 1000}
DEEPEST = 3


class Case(NamedTuple):
    """Bytes behind a valid message."""

    name: str
    raw: bytes


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def encoded(number: int, wire: int, value: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(value)) + value if wire == BYTES else value)


def _values(field: FieldDescriptor) -> dict[str, bytes]:
    wire = WIRE.get(field.type, VARINT)
    if wire == VARINT:
        return {name: varint(number) for name, number in NUMBERS.items()}
    if wire == BYTES:
        return MESSAGES if field.message_type is not None else TEXTS
    return {
        name: struct.pack("<Q", number & 2**64 - 1)[: 8 if wire == FIXED64 else 4] for name, number in NUMBERS.items()
    }


def _smallest(kind: Descriptor | None) -> bytes:
    """The smallest valid value of a message or a text."""
    found = b""
    for field in kind.fields if kind is not None else ():
        if field.is_required:
            wire = WIRE.get(field.type, VARINT)
            value = _smallest(field.message_type) if wire == BYTES else bytes({VARINT: 1, FIXED64: 8, FIXED32: 4}[wire])
            found += encoded(field.number, wire, value)
    return found


def _full(field: FieldDescriptor, size: int) -> bytes:
    """A field of about the given size: many values when it is repeated, else one long text; empty for other types."""
    wire = WIRE.get(field.type, VARINT)
    if field.is_repeated:
        value = _smallest(field.message_type) if wire == BYTES else varint(1)
        unit = encoded(field.number, wire, value)
        return unit * (size // len(unit))
    if wire == BYTES and field.message_type is None:
        return encoded(field.number, wire, b"x" * size)
    return b""


def _places(kind: Descriptor, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], FieldDescriptor]]:
    for field in kind.fields:
        yield path, field
        if field.message_type is not None and len(path) < DEEPEST:
            yield from _places(field.message_type, (*path, field.number))


def _within(path: tuple[int, ...], raw: bytes, parents: dict[tuple[int, ...], bytes]) -> bytes:
    """The bytes in messages within messages, of which each has its required fields."""
    for at in range(len(path), 0, -1):
        raw = encoded(path[at - 1], BYTES, parents[path[:at]] + raw)
    return raw


def cases(kind: Descriptor, size: int) -> Iterator[list[Case]]:
    """The hostile values of each field of the message and of the messages in it; a large value has about `size` bytes."""
    parents: dict[tuple[int, ...], bytes] = {}
    for path, field in _places(kind):
        if field.message_type is not None:
            parents[*path, field.number] = _smallest(field.message_type)
        found = {name: encoded(field.number, WIRE.get(field.type, VARINT), v) for name, v in _values(field).items()}
        found["of another type"] = encoded(field.number, VARINT if WIRE.get(field.type) == BYTES else BYTES, b"\x01")
        found["full"] = _full(field, size)
        name = ".".join((*map(str, path), field.name))
        yield [Case(f"{name} {label}", _within(path, raw, parents)) for label, raw in found.items() if raw]
