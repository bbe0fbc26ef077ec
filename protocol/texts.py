"""Texts of a command that are no texts: protobuf's runtime hands out `bytes` for a string that is not UTF-8.

Apache Pulsar reads such a string as Java does, with U+FFFD for invalid bytes; this broker reads them alike. Time grows
with the number of texts, never with unknown fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

__all__ = ["repair_texts"]

# Of a message, the fields that are texts or hold some: name, whether repeated, whether a message.
_Plan = tuple[tuple[str, bool, bool], ...]
_plans: dict[type[Message], _Plan] = {}


def repair_texts(message: Message) -> bool:
    """Put U+FFFD in every text, also of messages within it, for each part that is not UTF-8; returns whether there was
    such a part.
    """
    plan = _plans.get(type(message))
    if plan is None:
        kind: Any = message.DESCRIPTOR
        plan = _plans[type(message)] = _plan(kind)
    repaired = False
    for name, repeated, nested in plan:
        if nested:
            if repeated:
                for each in getattr(message, name):
                    repaired |= repair_texts(each)
            elif message.HasField(name):
                repaired |= repair_texts(getattr(message, name))
        elif repeated:
            texts = getattr(message, name)
            for index, text in enumerate(texts):
                if not isinstance(text, str):
                    texts[index], repaired = text.decode(errors="replace"), True
        elif not isinstance(text := getattr(message, name), str):
            setattr(message, name, text.decode(errors="replace"))
            repaired = True
    return repaired


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
