"""Compression of record sets: one table of codecs, and decompression that is bounded before it allocates.

| id | codec  | magics  | framing                                               | bound taken from                |
|----|--------|---------|-------------------------------------------------------|---------------------------------|
| 0  | none   | 0, 1, 2 | -                                                     | -                               |
| 1  | gzip   | 0, 1, 2 | one or more gzip members                              | counted while inflating         |
| 2  | snappy | 0, 1, 2 | xerial blocks (snappy_blocks.py) or one raw block     | declared length of each block   |
| 3  | lz4    | 0, 1, 2 | one LZ4 frame, independent blocks (lz4_frame.py)      | content size or count of blocks |
| 4  | zstd   | 2       | one or more zstd frames, with or without content size | content size or block headers   |

"Bounded" means: for any input, at most about `max_bytes` are allocated for the output, and a bomb raises
DecompressedTooLargeError (guarantee G10).
"""

from __future__ import annotations

import enum
import zlib

import cramjam

from magnetar.converters.kafka import lz4_frame, snappy_blocks, zstd_frame
from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError, UnsupportedCompressionError

MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""Default of every `max_decompressed_bytes` in this library; the broker passes a smaller limit."""

_GZIP_WBITS = 31
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_MAX_GZIP_MEMBERS = 256  # each member copies the bytes behind it: without a limit, tiny members cost quadratic time


class Codec(enum.IntEnum):
    """Codec ids, as in bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_BITS = 0x07
"""The bits of the codec id in the attributes."""

_BY_NUMBER = tuple(Codec)  # an enum call takes half a microsecond, and each message needs one lookup


def codec_of(attributes: int, magic: int) -> Codec:
    """Return the codec in `attributes`.

    Raises: UnsupportedCompressionError for ids 5-7, and for zstd below magic 2.
    """
    number = attributes & CODEC_BITS
    if number > Codec.ZSTD:
        raise UnsupportedCompressionError(f"unknown compression id {number}")
    if number == Codec.ZSTD and magic < 2:
        raise UnsupportedCompressionError(f"zstd needs magic 2, not {magic}")
    return _BY_NUMBER[number]


def compress(codec: Codec, data: bytes, *, magic: int = 2) -> bytes:
    """Compress `data` with the framing of the Java client, which every Kafka client can read."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            # mtime 0 keeps the output a pure function of the input.
            worker = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
            return worker.compress(data) + worker.flush()
        case Codec.SNAPPY:
            return snappy_blocks.compress(data)
        case Codec.LZ4:
            return lz4_frame.compress(data, legacy_checksum=magic == 0)
        case Codec.ZSTD:
            if magic < 2:
                raise UnsupportedCompressionError(f"zstd needs magic 2, not {magic}")
            return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))


def decompress(codec: Codec, data: bytes | memoryview, *, max_bytes: int, magic: int = 2) -> bytes:
    """Decompress the records part of a batch or the value of a wrapper message.

    Args:    magic: decides whether the LZ4 header checksum is verified; in magic 0 it is wrong (KAFKA-3160).
    Raises:  DecompressedTooLargeError beyond `max_bytes`; CorruptRecordError for anything undecodable.
    """
    try:
        match codec:
            case Codec.NONE:
                if len(data) > max_bytes:
                    raise DecompressedTooLargeError(max_bytes)
                return bytes(data)
            case Codec.GZIP:
                return _gunzip(data, max_bytes)
            case Codec.SNAPPY:
                return snappy_blocks.decompress(data, max_bytes)
            case Codec.LZ4:
                return lz4_frame.decompress(data, max_bytes, ignore_checksum=magic == 0)
            case Codec.ZSTD:
                return zstd_frame.decompress(data, max_bytes)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise CorruptRecordError(f"{codec.name.lower()} data cannot be decompressed: {error}") from error


def _gunzip(data: bytes | memoryview, max_bytes: int) -> bytes:
    """Decompress every gzip member; a single call of zlib would silently return only the first member."""
    parts: list[bytes] = []
    rest: bytes | memoryview = data
    room = max_bytes
    while rest:
        worker = zlib.decompressobj(_GZIP_WBITS)
        part = worker.decompress(rest, room + 1)
        if len(part) > room:
            raise DecompressedTooLargeError(max_bytes)
        if not worker.eof:
            raise CorruptRecordError("gzip stream ends early")
        if len(parts) == _MAX_GZIP_MEMBERS:
            raise CorruptRecordError(f"more than {_MAX_GZIP_MEMBERS} gzip members")
        parts.append(part)
        room -= len(part)
        rest = worker.unused_data
    if not parts:
        raise CorruptRecordError("gzip stream is empty")
    return parts[0] if len(parts) == 1 else b"".join(parts)
