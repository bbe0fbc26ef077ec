"""Cuts the bytes of a broker into commands, for clients (the broker cuts the bytes of clients with `speed.cut`).

frame = u32 totalSize | u32 commandSize | BaseCommand | headers and payload (MESSAGE only)
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import MalformedAnswerError

MAX_FRAME_BYTES = 128 * 1024 * 1024
"""Far above any maxMessageSize: a peer that announces a larger frame speaks another protocol."""


class Answer(NamedTuple):
    """One command, and the bytes that follow it in its frame."""

    command: pb.BaseCommand
    entry: bytes


class AnswerCutter:
    """Takes the received bytes in pieces of any size and returns the complete commands."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self.max_frame_bytes = max_frame_bytes

    def rest(self) -> bytes:
        """The received part of an incomplete frame."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> list[Answer]:
        """Return the commands that the bytes complete. Raises MalformedAnswerError; the cutter is unusable
        after that.
        """
        buffer, start = self._buffer, 0
        buffer += data
        answers: list[Answer] = []
        while (end := frame_end(buffer, start, self.max_frame_bytes)) is not None and end <= len(buffer):
            size = int.from_bytes(buffer[start + 4 : start + 8], "big")
            body = bytes(buffer[start + 8 : end])
            answers.append(Answer(_parsed(body[:size]), body[size:]))
            start = end
        del buffer[:start]
        return answers


def frame_end(buffer: bytes | bytearray, start: int, max_frame_bytes: int) -> int | None:
    """Return the end of the frame at `start`, which may lie behind the end of the buffer; None before its sizes have
    arrived. Raises MalformedAnswerError.
    """
    if len(buffer) - start < 8:
        return None
    total = int.from_bytes(buffer[start : start + 4], "big")
    size = int.from_bytes(buffer[start + 4 : start + 8], "big")
    if not size + 4 <= total <= max_frame_bytes:
        raise MalformedAnswerError(f"a frame of {total} bytes with a command of {size} bytes")
    return start + 4 + total


def _parsed(data: bytes) -> pb.BaseCommand:
    try:
        command = pb.BaseCommand.FromString(data)
    except DecodeError as error:
        raise MalformedAnswerError(f"a command that cannot be parsed: {error}") from error
    if not command.IsInitialized():
        raise MalformedAnswerError("a command without its required fields")
    return command
