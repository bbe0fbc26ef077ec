"""Snappy as Kafka clients write it: the xerial block stream, or one raw block.

    xerial = 82 53 4e 41 50 50 59 00 | int32 version | int32 compatible version | { int32 length | raw snappy block }*

Java, kafka-python and aiokafka write xerial with 32 KiB of input a block; librdkafka writes one raw block. Only the
first eight bytes decide, because some producers write the two versions little-endian. The header may recur inside a
stream that was joined from two streams. A raw snappy block starts with its uncompressed length; the reader checks this
bound.
"""

from __future__ import annotations

import struct

import cramjam

from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_LENGTH = struct.Struct(">i")
_BLOCK_BYTES = 32 * 1024


def compress(data: bytes) -> bytes:
    """Compress into a xerial stream of 32 KiB blocks."""
    parts = [_HEADER]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _BLOCK_BYTES]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(data: bytes | memoryview, max_bytes: int) -> bytes:
    """Decompress a xerial stream or one raw block.

    Raises: DecompressedTooLargeError, CorruptRecordError, cramjam.DecompressionError (mapped by the caller).
    """
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        return _raw_block(data, max_bytes, max_bytes)
    view = memoryview(data)
    parts: list[bytes] = []
    room = max_bytes
    pos = 0
    while pos < len(view):
        if view[pos : pos + len(_MAGIC)] == _MAGIC:
            if len(view) - pos < len(_HEADER):
                raise CorruptRecordError("xerial header is cut off")
            pos += len(_HEADER)
            continue
        if len(view) - pos < _LENGTH.size:
            raise CorruptRecordError("xerial block length is cut off")
        (length,) = _LENGTH.unpack_from(view, pos)
        pos += _LENGTH.size
        if not 0 < length <= len(view) - pos:
            raise CorruptRecordError(f"xerial block of {length} bytes does not fit")
        parts.append(_raw_block(view[pos : pos + length], room, max_bytes))
        room -= len(parts[-1])
        pos += length
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _raw_block(block: bytes | memoryview, room: int, limit: int) -> bytes:
    # Check the declared length first: the decoder would allocate as many bytes.
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise DecompressedTooLargeError(limit)
    return bytes(cramjam.snappy.decompress_raw(block))
