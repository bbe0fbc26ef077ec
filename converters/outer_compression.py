"""The compression of a whole entry payload (MessageMetadata.compression), bounded by its declared size.

LZ4 and SNAPPY are raw blocks, ZLIB a zlib stream, ZSTD a frame; all decompress to exactly `uncompressed_size` bytes.
"""

from __future__ import annotations

import zlib

import cramjam
from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar.converters.errors import ConversionError, ConversionTooLargeError
from magnetar.protocol.pulsar_api_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, MessageMetadata

COMPRESS_FROM_BYTES = 64 * 1024
"""Smaller outputs are not worth compressing again."""
_COMPRESSION_FIELD = 8


def is_known(metadata: MessageMetadata) -> bool:
    """Whether this module implements the codec of the entry. Protobuf keeps an unknown enum value as an unknown field
    and reads NONE.
    """
    unknown = UnknownFieldSet(metadata)
    return all(unknown[index].field_number != _COMPRESSION_FIELD for index in range(len(unknown)))


def decompress(metadata: MessageMetadata, payload: memoryview, limit: int) -> memoryview:
    """Return the decompressed payload; `payload` itself when it is not compressed.

    Raises: ConversionTooLargeError when the declared size passes `limit`; ConversionError when the data does not
            decompress to exactly that size.
    """
    codec, size = metadata.compression, metadata.uncompressed_size
    if codec == NONE:
        return payload
    if size > limit:
        raise ConversionTooLargeError(f"the payload declares {size} bytes uncompressed, {limit} are allowed")
    try:
        plain = _decompress(codec, payload, size)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise ConversionError(f"the payload cannot be decompressed: {error}") from error
    if len(plain) != size:
        raise ConversionError(f"the payload decompresses to {len(plain)} bytes, {size} are declared")
    return memoryview(plain)


def _decompress(codec: int, payload: memoryview, size: int) -> bytes | bytearray:
    if codec == ZLIB:
        worker = zlib.decompressobj()
        return worker.decompress(payload, size + 1)
    if codec == SNAPPY:
        if cramjam.snappy.decompress_raw_len(payload) != size:
            raise ConversionError(f"the snappy block does not declare {size} bytes")
        return bytes(cramjam.snappy.decompress_raw(payload))
    out = bytearray(size or 1)  # the decoders refuse an empty buffer
    assert codec in (LZ4, ZSTD), "callers check is_known before"
    into = cramjam.lz4.decompress_block_into if codec == LZ4 else cramjam.zstd.decompress_into
    written = into(payload, out)
    return out[:written]


def compress_lz4(metadata: MessageMetadata, payload: bytes | bytearray | memoryview) -> bytes | None:
    """Compress `payload` and set `metadata` accordingly; return the LZ4 block, or None when it would not be smaller."""
    block = bytes(cramjam.lz4.compress_block(payload, store_size=False))
    if len(block) >= len(payload):
        return None
    metadata.compression = LZ4
    metadata.uncompressed_size = len(payload)
    return block
