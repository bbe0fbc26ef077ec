"""Hashes of keys: Murmur3 x86 32 bit with seed 0, which decides the consumer of a Key_Shared subscription, and Java's
String.hashCode, by which clients choose the partition of a key by default. Both are compiled, else the pure twins,
chosen as in `speed.py`: a peer chooses the size of a key, and the twins take 0.1 s for a MiB.
"""

from __future__ import annotations

import os
from codecs import utf_16_be_encode
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RANGE_SIZE = 65536
_M = 0xFFFFFFFF
_BLOCK = Struct("<I")


def pure_murmur3_32(data: bytes | memoryview) -> int:
    """Murmur3 x86 32 bit with seed 0, its sign bit cleared, as Pulsar's clients and broker compute it."""
    whole = len(data) & ~3
    return _finished(_mixed(0, data, whole), data[whole:], len(data))


def murmur3_32_with_each(prefix: bytes, suffixes: Iterable[bytes]) -> list[int]:
    """Return ``murmur3_32(prefix + suffix)`` for each suffix; the prefix is hashed only once."""
    whole = len(prefix) & ~3
    start, rest = _mixed(0, prefix, whole), prefix[whole:]
    found = []
    for suffix in suffixes:
        tail = rest + suffix
        blocks = len(tail) & ~3
        found.append(_finished(_mixed(start, tail, blocks), tail[blocks:], whole + len(tail)))
    return found


def _mixed(h: int, data: bytes | memoryview, whole: int) -> int:
    """Return the state after the first `whole` bytes, a multiple of four."""
    for (block,) in _BLOCK.iter_unpack(data[:whole]):
        k = block * 0xCC9E2D51 & _M
        h ^= (k << 15 | k >> 17) * 0x1B873593 & _M
        h = ((h << 13 | h >> 19) & _M) * 5 + 0xE6546B64 & _M
    return h


def _finished(h: int, tail: bytes | memoryview, size: int) -> int:
    """Return the hash, from the state, the last zero to three bytes and the size of all bytes."""
    if tail:
        k = int.from_bytes(tail, "little") * 0xCC9E2D51 & _M
        h ^= (k << 15 | k >> 17) * 0x1B873593 & _M
    h ^= size
    h = (h ^ h >> 16) * 0x85EBCA6B & _M
    h = (h ^ h >> 13) * 0xC2B2AE35 & _M
    return (h ^ h >> 16) & 0x7FFFFFFF


def pure_java_hash(text: str) -> int:
    """String.hashCode as an unsigned number of 32 bits, computed over UTF-16 code units."""
    units, _ = utf_16_be_encode(text, "surrogatepass")  # text.encode opens the codec's file at its first use
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _M
    return value


COMPILED = False
murmur3_32: Callable[[bytes | memoryview], int] = pure_murmur3_32
java_hash: Callable[[str], int] = pure_java_hash

if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.protocol import _key_hashes
    except ImportError:  # no compiler at install time: the twins are used
        pass
    else:
        COMPILED = True
        murmur3_32 = _key_hashes.murmur3_32
        java_hash = _key_hashes.java_hash


def sticky_hash(key: bytes | memoryview) -> int:
    """A key's place on the ring: 1..65535 (0 means unset and becomes 1)."""
    return murmur3_32(key) % RANGE_SIZE or 1


def java_string_hash(text: str) -> int:
    """String.hashCode with its sign bit cleared: the JavaStringHash of clients."""
    return java_hash(text) & 0x7FFFFFFF
