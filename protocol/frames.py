"""Frames of simple commands: ``u32 totalSize | u32 commandSize | BaseCommand``."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.protocol import pulsar_api_pb2 as pb

_HEAD = struct.Struct(">II")


def encode_command(base: pb.BaseCommand, payload: bytes | memoryview = b"") -> bytes:
    """Return a whole frame: the command and, for MESSAGE, headers and payload."""
    command = base.SerializeToString()
    return b"".join((_HEAD.pack(4 + len(command) + len(payload), len(command)), command, payload))
