"""Changes of metadata nodes as bytes: the content of a log frame and of a block of a snapshot. Pure.

A change holds the outcome of an operation, not the request, so a change may be applied twice. Bytes: MessagePack, an
array of ``[kind, path, number, value]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DELETE", "PUT", "SEQUENCE", "Change", "decode_changes", "encode_changes"]

PUT = 1
"""``number`` is the node's version."""
DELETE = 2
SEQUENCE = 3
"""``number`` is the next number of the sequence."""

Change = tuple[int, str, int, bytes]

_decoder = msgspec.msgpack.Decoder(list[tuple[Literal[1, 2, 3], str, int, bytes]])
_encoder = msgspec.msgpack.Encoder()


def encode_changes(changes: Sequence[Change]) -> bytes:
    """The payload of a frame or block."""
    return _encoder.encode(changes)


def decode_changes(data: bytes) -> list[Change]:
    """Decode the payload of a frame or block. Raises ValueError for bytes that ``encode_changes`` never makes."""
    try:
        return cast("list[Change]", _decoder.decode(data))
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
