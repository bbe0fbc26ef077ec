"""Zstandard; the size of the output is bounded before decompression.

    frame = 28 b5 2f fd | descriptor | [window] | [dictionary id] | [content size] | { block }* | [checksum]
    block = uint24 LE: bit 0 last, bits 1-2 type (0 raw, 1 run-length, 2 compressed), bits 3-23 size | bytes

Java writes frames without content size. Walking the block headers still bounds the output: a raw or run-length block
declares its size, a compressed block holds at most 128 KiB (or the window, if smaller). Source: RFC 8878 §3.1.1.
"""

from __future__ import annotations

import cramjam

from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_MAX_BLOCK = 128 * 1024
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_BYTES = (0, 1, 2, 4)


def decompress(data: bytes | memoryview, max_bytes: int) -> bytes:
    """Decompress all frames in `data`.

    Raises: DecompressedTooLargeError, CorruptRecordError, cramjam.DecompressionError (mapped by the caller).
    """
    frames = bytes(data)
    bound = upper_bound(frames)
    out = bytearray(min(bound, max_bytes))
    try:
        written = cramjam.zstd.decompress_into(frames, out)
    except cramjam.DecompressionError as error:
        if bound > max_bytes and "whole buffer" in str(error):
            raise DecompressedTooLargeError(max_bytes) from error
        raise
    return bytes(memoryview(out)[:written])


def upper_bound(frames: bytes) -> int:
    """Return an upper bound for the decompressed size of `frames`.

    Raises: CorruptRecordError when the frame or block headers do not add up.
    """
    pos = bound = 0
    try:
        while pos < len(frames):
            magic = int.from_bytes(frames[pos : pos + 4], "little")
            if magic & 0xFFFFFFF0 == _SKIPPABLE:
                pos += 8 + int.from_bytes(frames[pos + 4 : pos + 8], "little")
                continue
            if magic != _MAGIC:
                raise CorruptRecordError("no zstd frame")
            pos, size = _walk_frame(frames, pos + 4)
            bound += size
    except IndexError as error:
        raise CorruptRecordError("zstd frame ends early") from error
    if pos != len(frames) or not frames:
        raise CorruptRecordError("zstd frame ends early")
    return bound


def _walk_frame(frames: bytes, pos: int) -> tuple[int, int]:
    """Read the headers of one frame whose descriptor is at `pos`; return the position after the frame and the bound of
    its content.
    """
    descriptor = frames[pos]
    single_segment = descriptor & 0x20
    pos += 1 if single_segment else 2
    pos += _DICTIONARY_BYTES[descriptor & 0x03]
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    content = int.from_bytes(frames[pos : pos + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    pos += size_bytes
    bound, last = 0, False
    while not last:
        header = frames[pos] | frames[pos + 1] << 8 | frames[pos + 2] << 16
        last, kind, size = bool(header & 1), header >> 1 & 0x03, header >> 3
        pos += 3
        match kind:
            case 0:
                bound, pos = bound + size, pos + size
            case 1:
                bound, pos = bound + size, pos + 1
            case 2:
                bound, pos = bound + _MAX_BLOCK, pos + size
            case _:
                raise CorruptRecordError("reserved zstd block type")
    if descriptor & 0x04:
        pos += 4
    return pos, min(bound, content) if size_bytes else bound
