"""Bitmaps of entries as bit sets (bit i of the bytes, little-endian, is entry i) and back. Pure.

A cursor may have millions of acknowledged entries behind its mark-delete position, and every save stores all of them.
So both directions use the portable format of Roaring bitmaps, in which a dense part of a bitmap is a bit set already:
the cost depends on the number of parts, of 65,536 entries each.

::

    u32 12346, u32 parts        or with runs: u16 12347, u16 parts - 1, then a bit per part: the part consists of runs
    u16 number, u16 entries - 1 for each part
    u32 offset                  for each part; left out with runs and fewer than 4 parts
    the parts                   runs: u16 count, then (u16 start, u16 length - 1) each; else up to 4,096 entries: u16
                                each; else 8,192 bytes of bits
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from pyroaring import BitMap

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bitmap_of_bits", "bits_of_bitmap", "parts_of_bitmap"]

_NO_RUNS: Final = 12346
_FEW_PARTS: Final = 4
_PART_BYTES: Final = 8192
_MOST_LISTED: Final = 4096
"""The most entries that a part lists one by one."""
_BITS: Final = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


def bits_of_bitmap(held: BitMap) -> bytes:
    """Return the bits of a bitmap with at least one entry; the last byte is not 0."""
    bits = bytearray(((held.max() >> 16) + 1) * _PART_BYTES)
    for number, part in parts_of_bitmap(held):
        bits[number * _PART_BYTES : (number + 1) * _PART_BYTES] = part
    return bytes(memoryview(bits)[: held.max() // 8 + 1])


def bitmap_of_bits(bits: bytes) -> BitMap:
    """Return the bitmap of these bits."""
    heads, parts = [], []
    for number in range(-(-len(bits) // _PART_BYTES)):
        part = bits[number * _PART_BYTES : (number + 1) * _PART_BYTES]
        count = int.from_bytes(part, "little").bit_count()
        if count:
            heads.append(struct.pack("<HH", number, count - 1))
            parts.append(_listed(part) if count <= _MOST_LISTED else part.ljust(_PART_BYTES, b"\0"))
    at = 8 + 8 * len(parts)
    offsets = []
    for part in parts:
        offsets.append(struct.pack("<I", at))
        at += len(part)
    return BitMap.deserialize(b"".join([struct.pack("<II", _NO_RUNS, len(parts)), *heads, *offsets, *parts]))


def parts_of_bitmap(held: BitMap) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bits) of each part that has entries, in order."""
    data = held.serialize()
    cookie, at = int.from_bytes(data[:4], "little"), 8
    if cookie == _NO_RUNS:
        size, are_runs = int.from_bytes(data[4:8], "little"), 0
    else:
        size = (cookie >> 16) + 1
        at = 4 + (size + 7) // 8
        are_runs = int.from_bytes(data[4:at], "little")
    heads = struct.unpack_from(f"<{2 * size}H", data, at)
    at += 4 * size
    if not are_runs or size >= _FEW_PARTS:
        at += 4 * size
    for index in range(size):
        count = heads[2 * index + 1] + 1
        if are_runs >> index & 1:
            (runs,) = struct.unpack_from("<H", data, at)
            part = _of_runs(struct.unpack_from(f"<{2 * runs}H", data, at + 2))
            at += 2 + 4 * runs
        elif count <= _MOST_LISTED:
            part = _of_list(struct.unpack_from(f"<{count}H", data, at))
            at += 2 * count
        else:
            part = data[at : at + _PART_BYTES]
            at += _PART_BYTES
        yield heads[2 * index], part


def _of_runs(pairs: tuple[int, ...]) -> bytes:
    bits = 0
    for start, more in zip(pairs[::2], pairs[1::2], strict=True):
        bits |= (1 << more + 1) - 1 << start
    return bits.to_bytes(_PART_BYTES, "little")


def _of_list(entries: tuple[int, ...]) -> bytes:
    bits = bytearray(_PART_BYTES)
    for entry in entries:
        bits[entry >> 3] |= 1 << (entry & 7)
    return bytes(bits)


def _listed(part: bytes) -> bytes:
    found = [at * 8 + bit for at, byte in enumerate(part) if byte for bit in _BITS[byte]]
    return struct.pack(f"<{len(found)}H", *found)
