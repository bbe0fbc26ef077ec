"""The bytes between the broker and a worker process.

    broker -> worker    u32 size | Hello as JSON       once, first
                        u32 size | entry               then one frame for each conversion
    worker -> broker    u32 size | Welcome as JSON     once, when the chain is loaded or refused
                        u8 kind | u32 messages | u32 holes | u32 size | u32 hole ... | bytes    for each entry

    kind 0 declined   no converter takes the entry              no bytes
         1 converted                                            the new entry
         2 identity   a converter leaves the entry unchanged    no bytes
         3 failed                                               Failed as JSON

All integers are big-endian. One request is under way at a time.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import Final

import msgspec

from magnetar.converters.interface import ExpansionLimits
from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason

SIZE: Final = Struct(">I")
ANSWER: Final = Struct(">BIII")
MAX_TEXT: Final = 1000
"""Limit of a failure's message; foreign code may produce texts of any length."""


class Kind(enum.IntEnum):
    """First byte of an answer."""

    DECLINED = 0
    CONVERTED = 1
    IDENTITY = 2
    FAILED = 3


class Hello(msgspec.Struct):
    """The data from which every worker builds the same chain."""

    specs: list[str]
    values: dict[str, str]
    optional: bool
    memory_bytes: int
    max_entry_bytes: int
    max_ratio: int
    free_bytes: int
    path: list[str]

    @property
    def limits(self) -> ExpansionLimits:
        return ExpansionLimits(self.max_entry_bytes, self.max_ratio, self.free_bytes)


class Described(msgspec.Struct):
    """One converter of the chain that a worker loaded."""

    name: str
    tag: str
    entry_formats: list[str] | None
    builtin: bool


class Welcome(msgspec.Struct):
    """The first answer of a worker. `refusal` is the reason when the worker cannot load the chain, else None."""

    converters: list[Described] = []
    problems: list[str] = []
    refusal: str | None = None


class Failed(msgspec.Struct):
    """A ConversionFailure."""

    reason: str
    converter: str
    message: str
    defect: bool


class Declined:
    """No converter takes the entry after all: the broker sends the entry as it is stored."""


DECLINED: Final = Declined()
Answer = Converted | ConversionFailure | Declined
_FAILED = msgspec.json.Decoder(Failed)


class FrameError(Exception):
    """A worker sent bytes that are not an answer."""


def encode_answer(answer: Answer) -> list[bytes]:
    """Return the parts of an answer, which the caller writes in order."""
    if isinstance(answer, Declined):
        return [ANSWER.pack(Kind.DECLINED, 0, 0, 0)]
    if isinstance(answer, ConversionFailure):
        text = answer.message[:MAX_TEXT].encode("utf-8", "replace").decode()
        data = msgspec.json.encode(Failed(answer.reason, answer.converter, text, answer.defect))
        return [ANSWER.pack(Kind.FAILED, 0, 0, len(data)), data]
    if answer.identity:
        return [ANSWER.pack(Kind.IDENTITY, answer.messages, 0, 0)]
    head = ANSWER.pack(Kind.CONVERTED, answer.messages, len(answer.holes), len(answer.entry))
    return [head, b"".join(map(SIZE.pack, answer.holes)), answer.entry]


def rest_of_answer(head: bytes, limit: int) -> int:
    """The number of bytes that follow the head. Raises: FrameError when the number exceeds the limit."""
    kind, _, holes, size = ANSWER.unpack(head)
    if kind > max(Kind) or holes * SIZE.size > limit or size > limit:
        raise FrameError(f"no answer: kind {kind}, {holes} holes, {size} bytes")
    return int(holes * SIZE.size + size)


def decode_answer(head: bytes, rest: bytes, asked: bytes) -> Answer:
    """Decode the answer to the request `asked`. Raises: FrameError."""
    kind, messages, hole_count, _ = ANSWER.unpack(head)
    if kind == Kind.DECLINED:
        return DECLINED
    if kind == Kind.IDENTITY:
        return Converted(asked, messages, identity=True)
    if kind == Kind.FAILED:
        try:
            failed = _FAILED.decode(rest)
            return ConversionFailure(FailureReason(failed.reason), failed.converter, failed.message, failed.defect)
        except (msgspec.DecodeError, ValueError) as error:
            raise FrameError(f"no failure: {error}") from error
    holes = tuple(each for (each,) in SIZE.iter_unpack(rest[: hole_count * SIZE.size]))
    return Converted(rest[hole_count * SIZE.size :], messages, holes)
