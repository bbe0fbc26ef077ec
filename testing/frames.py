"""Whole frames of a stream of bytes, and the subject of a frame. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from typing import Any

_MOST_BYTES = 1 << 30


class FrameStream:
    """Takes bytes as they come and returns whole frames. Bytes that are no frame are returned unchanged."""

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        left = self._left
        left += data
        found, at = [], 0
        while len(left) - at >= 4:
            size = int.from_bytes(left[at : at + 4], "big")
            if size > _MOST_BYTES:
                found.append(bytes(left[at:]))
                at = len(left)
                break
            if len(left) - at < 4 + size:
                break
            found.append(bytes(left[at : at + 4 + size]))
            at += 4 + size
        del left[:at]
        return found


def parse_frame(frame: bytes) -> pb.BaseCommand | None:
    """The command of a frame; None for bytes that are no command."""
    size = int.from_bytes(frame[4:8], "big")
    try:
        return pb.BaseCommand.FromString(frame[8 : 8 + size])
    except DecodeError:
        return None


class Topics:
    """The topics of one connection's producers and consumers, taken from its commands."""

    def __init__(self) -> None:
        self._producers: dict[int, str] = {}
        self._consumers: dict[int, str] = {}

    def of(self, command: pb.BaseCommand, body: Any) -> str | None:
        """The full name of the topic of a command; None if it is unknown."""
        names = body.DESCRIPTOR.fields_by_name
        if "topic" in names:
            name = _full_name(body.topic)
            if name is not None and command.type == pb.BaseCommand.PRODUCER:
                self._producers[body.producer_id] = name
            elif name is not None and command.type == pb.BaseCommand.SUBSCRIBE:
                self._consumers[body.consumer_id] = name
            return name
        if "producer_id" in names:
            return self._producers.get(body.producer_id)
        return self._consumers.get(body.consumer_id) if "consumer_id" in names else None


def _full_name(text: object) -> str | None:
    try:
        return str(TopicName.parse(str(text)).base)
    except InvalidTopicNameError:
        return None
