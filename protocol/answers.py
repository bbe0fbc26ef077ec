"""Cutting what a broker says into commands: the client's side of the frames (`cut` in speed.py is the broker's).

frame = u32 totalSize | u32 commandSize | BaseCommand | headers and payload (MESSAGE only)
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import MalformedAnswerError

MAX_FRAME_BYTES = 128 * 1024 * 1024
"""Far above any maxMessageSize: whoever announces more speaks another protocol."""


class Answer(NamedTuple):
    """One command, and the bytes that follow it in its frame."""

    command: pb.BaseCommand
    entry: bytes


class AnswerCutter:
    """Feed it bytes as they come; it gives the commands that are whole."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> list[Answer]:
        """Raises: MalformedAnswerError; nothing can be cut after that."""
        buffer, start = self._buffer, 0
        buffer += data
        answers: list[Answer] = []
        while len(buffer) - start >= 8:
            total = int.from_bytes(buffer[start : start + 4], "big")
            size = int.from_bytes(buffer[start + 4 : start + 8], "big")
            if not size + 4 <= total <= self._max_frame_bytes:
                raise MalformedAnswerError(f"a frame of {total} bytes with a command of {size} bytes")
            end = start + 4 + total
            if len(buffer) < end:
                break
            body = bytes(buffer[start + 8 : end])
            answers.append(Answer(_parsed(body[:size]), body[size:]))
            start = end
        del buffer[:start]
        return answers


def _parsed(data: bytes) -> pb.BaseCommand:
    try:
        command = pb.BaseCommand.FromString(data)
    except DecodeError as error:
        raise MalformedAnswerError(f"a command that cannot be parsed: {error}") from error
    if not command.IsInitialized():
        raise MalformedAnswerError("a command without its required fields")
    return command
