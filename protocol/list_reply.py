"""A reply with the names of many topics, encoded part by part, so that a caller may do other work between the parts."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.varints import varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

_HEAD = struct.Struct(">II")
_BYTES = 2


class ListReply:
    """Makes the same bytes as `frames.encode_command` for a command with all the names.

    base: the command without the names. field: the field of the command that has the names in its field `names`.
    """

    def __init__(self, base: pb.BaseCommand, field: str, names: str) -> None:
        self._type, self._names = base.type, names
        self._number = base.DESCRIPTOR.fields_by_name[field].number
        self._reply: Any = getattr(base, field)
        self._parts: list[bytes] = []

    def add(self, names: Sequence[str]) -> None:
        """Encode the next names."""
        part = type(self._reply)()
        getattr(part, self._names).extend(names)
        self._parts.append(part.SerializePartialToString())

    def frame(self) -> bytes:
        """Return the frame with all names that were added; the reply has its other fields by now."""
        at = self._reply.DESCRIPTOR.fields_by_name[self._names].number
        before, behind = type(self._reply)(), type(self._reply)()
        for field, value in self._reply.ListFields():
            setattr(before if field.number < at else behind, field.name, value)
        parts = (_encoded(before), *self._parts, _encoded(behind))
        size = sum(map(len, parts))
        head = _encoded(pb.BaseCommand(type=self._type)) + varint(self._number << 3 | _BYTES) + varint(size)
        size += len(head)
        return b"".join((_HEAD.pack(4 + size, size), head, *parts))


def _encoded(message: Message) -> bytes:
    return message.SerializePartialToString()
