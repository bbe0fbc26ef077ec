"""Repairs string fields of a command that are not UTF-8: protobuf's runtime returns `bytes` for them.

Apache Pulsar reads such a string as Java does, with U+FFFD for invalid bytes; so does this broker. The time grows with
the number of texts, which is bounded, and not with unknown fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from magnetar.protocol.errors import TooManyPartsError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

__all__ = ["TextRepair", "repair_texts"]

MOST_PARTS: Final = 1 << 14
"""The most elements in all lists of texts, and of messages with texts, within a message. More key-value pairs do not
fit into the 64 KiB of metadata that a producer or subscription may have."""

# The fields of a message type that are or contain texts: name, whether repeated, whether a message.
_Plan = tuple[tuple[str, bool, bool], ...]
_plans: dict[type[Message], _Plan] = {}


def repair_texts(message: Message) -> bool:
    """Replace invalid UTF-8 with U+FFFD in every text of the message and of the messages in it; return whether a text
    was invalid. Raises TooManyPartsError.
    """
    if _plans.get(type(message)) == ():
        return False  # as for most commands: no field contains a text
    repair = TextRepair()
    repair.apply(message)
    return repair.repaired


class TextRepair:
    """Repairs the texts of several messages, with one bound for all of them together."""

    __slots__ = ("_most", "_parts", "repaired")

    def __init__(self, most_parts: int = MOST_PARTS) -> None:
        self._most = most_parts
        self._parts = 0
        self.repaired = False

    def apply(self, message: Message) -> None:
        """Repair the texts of a message and of the messages in it. Raises TooManyPartsError."""
        plan = _plans.get(type(message))
        if plan is None:
            kind: Any = message.DESCRIPTOR
            plan = _plans[type(message)] = _plan(kind)
        for name, repeated, nested in plan:
            if repeated:
                self._repair_list(getattr(message, name), nested)
            elif nested:
                if message.HasField(name):
                    self.apply(getattr(message, name))
            elif not isinstance(text := getattr(message, name), str):
                setattr(message, name, text.decode(errors="replace"))
                self.repaired = True

    def _repair_list(self, parts: Any, nested: bool) -> None:
        self._parts += len(parts)
        if self._parts > self._most:
            raise TooManyPartsError(f"has {self._parts} texts and pairs, at most {self._most} are allowed")
        for index, part in enumerate(parts):
            if nested:
                self.apply(part)
            elif not isinstance(part, str):
                parts[index] = part.decode(errors="replace")
                self.repaired = True


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
