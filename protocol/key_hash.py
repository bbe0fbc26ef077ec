"""The sticky-key hash of Key_Shared: Murmur3 x86 32 bit, seed 0, of a key's bytes."""

from __future__ import annotations

RANGE_SIZE = 65536
_M = 0xFFFFFFFF


def murmur3_32(data: bytes | memoryview) -> int:
    """Murmur3 x86 32 bit with seed 0, its sign bit cleared, as Pulsar's clients and broker compute it."""
    size = len(data)
    h = 0
    whole = size & ~3
    for i in range(0, whole, 4):
        k = (data[i] | data[i + 1] << 8 | data[i + 2] << 16 | data[i + 3] << 24) * 0xCC9E2D51 & _M
        k = (k << 15 | k >> 17) * 0x1B873593 & _M
        h ^= k
        h = ((h << 13 | h >> 19) & _M) * 5 + 0xE6546B64 & _M
    k = 0
    for i in range(size - 1, whole - 1, -1):
        k = k << 8 | data[i]
    if size & 3:
        k = k * 0xCC9E2D51 & _M
        h ^= (k << 15 | k >> 17) * 0x1B873593 & _M
    h ^= size
    h = (h ^ h >> 16) * 0x85EBCA6B & _M
    h = (h ^ h >> 13) * 0xC2B2AE35 & _M
    return (h ^ h >> 16) & 0x7FFFFFFF


def sticky_hash(key: bytes | memoryview) -> int:
    """A key's place on the ring: 1..65535 (0 means unset and becomes 1)."""
    return murmur3_32(key) % RANGE_SIZE or 1
