"""Texts of a command that are no texts: protobuf's runtime hands out `bytes` for a string that is not UTF-8.

Apache Pulsar reads such a string as Java does, with U+FFFD for what cannot be read, and so do we.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.protocol._pure_records import varint

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

__all__ = ["has_sound_texts", "with_sound_texts"]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

# Of a message, the fields that are texts or hold some: name, whether repeated, whether a message.
_Plan = tuple[tuple[str, bool, bool], ...]
_plans: dict[type[Message], _Plan] = {}


def has_sound_texts(message: Message) -> bool:
    """False when a text in `message`, or in a message within it, is not UTF-8."""
    plan = _plans.get(type(message))
    if plan is None:
        kind: Any = message.DESCRIPTOR
        plan = _plans[type(message)] = _plan(kind)
    for name, repeated, nested in plan:
        if nested and not repeated and not message.HasField(name):
            continue
        value: Any = getattr(message, name)
        for each in value if repeated else (value,):
            if not (has_sound_texts(each) if nested else isinstance(each, str)):
                return False
    return True


def _plan(kind: Descriptor) -> _Plan:
    return tuple(
        (field.name, bool(field.is_repeated), field.message_type is not None)
        for field in kind.fields
        if field.type == field.TYPE_STRING or (field.message_type is not None and _holds_texts(field.message_type, ()))
    )


def _holds_texts(kind: Descriptor, above: tuple[str, ...]) -> bool:
    return any(
        field.type == field.TYPE_STRING
        or (
            field.message_type is not None
            and field.message_type.full_name not in above
            and _holds_texts(field.message_type, (*above, kind.full_name))
        )
        for field in kind.fields
    )


def with_sound_texts(data: bytes, kind: Descriptor) -> bytes:
    """The same serialized message with U+FFFD for every part of a text that is not UTF-8; `data` has been parsed."""
    fields, out, at = kind.fields_by_number, bytearray(), 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire != _LENGTH:
            at = _after_number(data, at, wire)
            out += data[start:at]
            continue
        size, at = _read_varint(data, at)
        value, at = data[at : at + size], at + size
        field = fields.get(tag >> 3)
        if field is not None and field.type == field.TYPE_STRING:
            value = value.decode(errors="replace").encode()
        elif field is not None and field.message_type is not None:
            value = with_sound_texts(value, field.message_type)
        out += varint(tag) + varint(len(value)) + value
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


def _after_number(data: bytes, at: int, wire: int) -> int:
    """Where the value ends that starts at `at`; the ends of a group have none."""
    if wire == _VARINT:
        return _read_varint(data, at)[1]
    return at + {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
