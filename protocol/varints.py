"""Protobuf's encoding of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["varint", "varints"]

_U64 = (1 << 64) - 1
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
_MORE = [bytes((value | 0x80,)) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Return the varint of a number; a negative number counts as its 64 bits."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if 0 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    value &= _U64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varints(values: Iterable[int]) -> list[bytes]:
    """Return the varint of each value; faster for values that are close together."""
    high: dict[int, bytes] = {}  # value without its low seven bits -> the bytes behind these bits
    out = []
    for value in values:
        if 0 <= value < 0x80:
            out.append(_ONE_BYTE[value])
            continue
        following = high.get(value >> 7)
        if following is None:
            following = high[value >> 7] = varint((value & _U64) >> 7)
        out.append(_MORE[value & 0x7F] + following)
    return out
