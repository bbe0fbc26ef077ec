"""Payload compression of Pulsar messages. The size in the metadata bounds decompression.

LZ4 and SNAPPY are raw blocks, ZLIB a zlib stream that need not end, ZSTD a frame. A payload whose decompressed size
differs from this size is refused: decompression never takes more memory than the metadata announces.
The first use of a codec other than ZLIB loads its library, which takes 1.5 MB.
"""

from __future__ import annotations

import functools
import zlib
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import CompressionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_UNCOMPRESSED_BYTES = 128 * 1024 * 1024
"""No message is so large; decompression refuses larger sizes without reading the payload."""
_FLUSHED = b"\x00\x00\xff\xff"
"""The last bytes of a ZLIB stream that is flushed and does not end."""


def compress(codec: int, data: bytes | memoryview) -> bytes:
    """Return `data` as the payload of a message with `MessageMetadata.compression` = `codec`. Raises CompressionError
    for an unknown codec.
    """
    if codec == pb.NONE:
        return bytes(data)
    if codec == pb.ZLIB:  # as Apache Pulsar: without the end of the stream, and no bytes for no data
        worker = zlib.compressobj()
        return worker.compress(data) + worker.flush(zlib.Z_SYNC_FLUSH) if len(data) else b""
    import cramjam  # noqa: PLC0415 - most brokers compress nothing

    if codec == pb.LZ4:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    if codec == pb.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    if codec == pb.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    raise CompressionError(f"unknown codec {codec}")


def decompress(codec: int, data: bytes | memoryview, uncompressed_bytes: int) -> bytes:
    """Return exactly `uncompressed_bytes` bytes, or raise CompressionError."""
    if codec == pb.NONE:
        return bytes(data)
    if not 0 <= uncompressed_bytes <= MAX_UNCOMPRESSED_BYTES:
        raise CompressionError(f"claims {uncompressed_bytes} bytes")
    try:
        out = _decode(codec, data, uncompressed_bytes)
    except _failures() as e:
        raise CompressionError(f"codec {codec}: {e}") from e
    if len(out) != uncompressed_bytes:
        raise CompressionError(f"codec {codec}: {len(out)} bytes where {uncompressed_bytes} were claimed")
    return out


def expand_zlib(data: bytes | memoryview, most_bytes: int) -> bytes:
    """Return the content of a stream; more than `most_bytes` bytes when the content is larger.

    The stream has an end or is flushed: Apache Pulsar and its own clients write no end, and no bytes for no
    data. Raises CompressionError for a stream that is cut, zlib.error.
    """
    decoder = zlib.decompressobj()
    out = decoder.decompress(data, most_bytes + 1)
    if not decoder.eof and len(out) <= most_bytes and bytes(data[-4:]) not in {b"", _FLUSHED}:
        raise CompressionError("stream ends early")
    return out


def decompress_into(codec: int, data: bytes | memoryview, out: memoryview) -> None:
    """Decompress exactly ``len(out) - 1`` bytes into `out`, or raise CompressionError; the last byte reveals a longer
    payload.

    Bulk readers use this function, because it creates no payload object. Refuses codec NONE.
    """
    try:
        if codec == pb.ZLIB:
            plain = _decode(codec, data, len(out) - 1)
            written = len(plain)
            out[: len(plain)] = plain
        elif codec in _INTO:
            written = _decoders()[codec](data, out)
        else:
            raise CompressionError(f"unknown codec {codec}")
    except _failures() as e:
        raise CompressionError(f"codec {codec}: {e}") from e
    if written != len(out) - 1:
        raise CompressionError(f"codec {codec}: {written} bytes where {len(out) - 1} were claimed")


_INTO = frozenset({pb.LZ4, pb.ZSTD, pb.SNAPPY})


@functools.cache
def _decoders() -> Mapping[int, Callable[[Any, Any], int]]:
    import cramjam  # noqa: PLC0415 - most brokers decompress nothing

    return {
        pb.LZ4: cramjam.lz4.decompress_block_into,
        pb.ZSTD: cramjam.zstd.decompress_into,
        pb.SNAPPY: cramjam.snappy.decompress_raw_into,
    }


@functools.cache
def _failures() -> tuple[type[Exception], ...]:
    """The errors by which the codecs refuse a payload."""
    import cramjam  # noqa: PLC0415 - after a failure

    return ValueError, OSError, zlib.error, cramjam.DecompressionError


def _decode(codec: int, data: bytes | memoryview, size: int) -> bytes:
    if codec == pb.ZLIB:
        return expand_zlib(data, size)
    buffer = bytearray(size + 1)  # a byte more, to detect a payload that is larger than its claim
    if codec not in _INTO:
        raise CompressionError(f"unknown codec {codec}")
    written = _decoders()[codec](data, buffer)
    return bytes(memoryview(buffer)[:written])
