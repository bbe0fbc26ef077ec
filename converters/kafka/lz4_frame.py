"""The LZ4 frames of Kafka.

    04 22 4d 18 | FLG | BD | [int64 LE content size] | HC | { uint32 LE size | block | [block checksum] }* | 0 |
    [checksum]

    FLG: bits 6-7 version 01, 5 blocks are independent, 4 block checksums, 3 content size present, 2 content checksum,
         0 dictionary id present.   BD: bits 4-6 block size 4..7 = 64 KiB, 256 KiB, 1 MiB, 4 MiB.
    HC:  second byte of xxh32 over FLG..content size.   Block size: high bit set = stored uncompressed.

Three rules are special to Kafka: magic 0 producers computed HC over the magic number too, so readers of magic 0 must
not verify it (KAFKA-3160), and writers compute it alike; dependent blocks are refused, because Java consumers cannot
read them; there is exactly one frame, because Java stops at the first end mark and would miss the second.
"""

from __future__ import annotations

import struct

import cramjam

from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError

_MAGIC = b"\x04\x22\x4d\x18"
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_INDEPENDENT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_STORED = 0x80000000
_U32_MASK = 0xFFFFFFFF


def compress(data: bytes, *, legacy_checksum: bool) -> bytes:
    """Return one frame with independent 64 KiB blocks; `legacy_checksum` writes the header checksum of magic 0."""
    header = bytes([0x40 | _INDEPENDENT, 0x40])
    checked = _MAGIC + header if legacy_checksum else header
    parts = [_MAGIC, header, bytes([_header_checksum(checked)])]
    size = _BLOCK_BYTES[4]
    for start in range(0, len(data), size):
        raw = data[start : start + size]
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts += (_U32.pack(len(block)), block)
        else:
            parts += (_U32.pack(len(raw) | _STORED), raw)
    parts.append(_U32.pack(0))
    return b"".join(parts)


def decompress(data: bytes | memoryview, max_bytes: int, *, ignore_checksum: bool) -> bytes:
    """Decompress the only frame in `data`.

    Raises: DecompressedTooLargeError, CorruptRecordError, cramjam.DecompressionError (mapped by the caller).
    """
    frame = bytes(data)
    header_end, bound = _measure(frame)
    if ignore_checksum:
        right = bytes([_header_checksum(frame[4 : header_end - 1])])
        frame = frame[: header_end - 1] + right + frame[header_end:]
    out = bytearray(min(bound, max_bytes))
    try:
        written = cramjam.lz4.decompress_into(frame, out)
    except cramjam.DecompressionError as error:
        if bound > max_bytes and "whole buffer" in str(error):
            raise DecompressedTooLargeError(max_bytes) from error
        raise
    return bytes(memoryview(out)[:written])


def _measure(frame: bytes) -> tuple[int, int]:
    """Read all block headers; return the end of the frame header and an upper bound of the decompressed size."""
    if len(frame) < 7 or frame[:4] != _MAGIC:
        raise CorruptRecordError("no LZ4 frame")
    flags, block_bytes = frame[4], _BLOCK_BYTES.get(frame[5] >> 4 & 0x07)
    if flags & 0xC0 != 0x40 or flags & _DICTIONARY or block_bytes is None:
        raise CorruptRecordError("unsupported LZ4 frame header")
    if not flags & _INDEPENDENT:
        raise CorruptRecordError("LZ4 frame with dependent blocks: Kafka allows independent blocks only")
    pos = header_end = 15 if flags & _CONTENT_SIZE else 7
    trailer = 4 if flags & _BLOCK_CHECKSUM else 0
    bound = 0
    while True:
        if len(frame) - pos < 4:
            raise CorruptRecordError("LZ4 frame ends early")
        (size,) = _U32.unpack_from(frame, pos)
        pos += 4
        if size == 0:
            break
        length = size & ~_STORED
        bound += length if size & _STORED else block_bytes
        pos += length + trailer
    if flags & _CONTENT_CHECKSUM:
        pos += 4
    if pos != len(frame):
        raise CorruptRecordError("LZ4 data does not end with its first frame")
    if flags & _CONTENT_SIZE:
        bound = min(bound, _U64.unpack_from(frame, 6)[0])
    return header_end, bound


def _header_checksum(data: bytes) -> int:
    return _xxh32_short(data) >> 8 & 0xFF


def _xxh32_short(data: bytes) -> int:
    """Return xxHash-32 with seed 0 of fewer than 16 bytes; every frame header is shorter than that."""
    prime2, prime3, prime4, prime5 = 2246822519, 3266489917, 668265263, 374761393
    acc = prime5 + len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        acc = acc + _U32.unpack_from(data, start)[0] * prime3 & _U32_MASK
        acc = (acc << 17 | acc >> 15) * prime4 & _U32_MASK
    for byte in data[whole:]:
        acc = acc + byte * prime5 & _U32_MASK
        acc = (acc << 11 | acc >> 21) * 2654435761 & _U32_MASK
    acc = (acc ^ acc >> 15) * prime2 & _U32_MASK
    acc = (acc ^ acc >> 13) * prime3 & _U32_MASK
    return acc ^ acc >> 16
