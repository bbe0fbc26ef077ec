"""Metadata values that Pulsar may compress (managedLedgerInfoCompressionType, managedCursorInfoCompressionType). Pure.

::

    u16 0x4778 | u32 size of the header | CompressedInfo {compressionType 1, uncompressedSize 2} | compressed value

Bytes without this header are the value itself. Magnetar writes values without compression, which every Pulsar reads.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING

import cramjam
from google.protobuf.message import DecodeError

from magnetar.protocol.compression import expand_zlib
from magnetar.protocol.errors import CompressionError
from magnetar.storage.errors import LedgerListError
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressedInfo

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["expanded"]

_HEADER = Struct(">HI")
_MAGIC = 0x4778
_LARGEST_BYTES = 64 << 20
"""The largest expanded value. ZooKeeper accepts up to 1 MiB of a compressed value."""


def _lz4(data: bytes, size: int) -> bytes:
    room = bytearray(size)
    return bytes(room[: cramjam.lz4.decompress_block_into(data, room)])


def _zstd(data: bytes, size: int) -> bytes:
    """Expand to at most the size in the header, because the compressed frame may claim any size."""
    room = bytearray(size)
    return bytes(room[: cramjam.zstd.decompress_into(data, room)])


_EXPAND: dict[int, Callable[[bytes, int], bytes]] = {
    NONE: lambda data, _size: data,
    LZ4: _lz4,
    ZLIB: expand_zlib,
    ZSTD: _zstd,
    SNAPPY: lambda data, _size: bytes(cramjam.snappy.decompress_raw(data)),
}


def expanded(value: bytes) -> bytes:
    """Return the protobuf message of a stored value. Raises LedgerListError."""
    if len(value) < _HEADER.size or _HEADER.unpack_from(value)[0] != _MAGIC:
        return value
    size = _HEADER.unpack_from(value)[1]
    try:
        info = CompressedInfo.FromString(value[_HEADER.size : _HEADER.size + size])
        if not info.IsInitialized():
            raise LedgerListError("a compressed value whose header is damaged")
        if not 0 <= info.uncompressedSize <= _LARGEST_BYTES:
            raise LedgerListError(f"a compressed value of {info.uncompressedSize} bytes")
        data = _EXPAND[info.compressionType](value[_HEADER.size + size :], info.uncompressedSize)
    except (DecodeError, KeyError, CompressionError, zlib.error, cramjam.DecompressionError, ValueError) as error:
        raise LedgerListError(f"a compressed value that cannot be expanded: {error}") from error
    if len(data) != info.uncompressedSize:
        raise LedgerListError(f"a compressed value of {len(data)} bytes that says {info.uncompressedSize}")
    return data
