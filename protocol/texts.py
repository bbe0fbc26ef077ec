"""Whether the texts of a command are texts: protobuf's runtime hands out `bytes` for a string that is not UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

__all__ = ["has_sound_texts"]

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
