"""Message ids on the wire: u64 that Java reads as signed, so -1 travels as 2^64 - 1.

An ack set (MessageIdData.ack_set) has bit k set while batch index k is still to be acknowledged. The wire has the words
of a Java BitSet: signed 64-bit, word 0 bit 0 is batch index 0, no trailing zero words.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MASK = (1 << 64) - 1
_WORD_BYTES = 8


def signed(value: int) -> int:
    """Return the signed number that a u64 of the wire stands for."""
    return value - (1 << 64) if value >> 63 else value


def unsigned(value: int) -> int:
    """Return the u64 of the wire for a signed number."""
    return value & MASK


def words_to_bits(words: Sequence[int]) -> int:
    """Return the words as one int. Takes time linear in the number of words, because a peer may send many."""
    try:
        data = struct.pack(f"<{len(words)}q", *words)
    except struct.error:  # unsigned words
        data = b"".join([(word & MASK).to_bytes(_WORD_BYTES, "little") for word in words])
    return int.from_bytes(data, "little")


def bits_to_words(bits: int) -> list[int]:
    """Return the words of a Java BitSet for one int."""
    size = -(-bits.bit_length() // 64) * _WORD_BYTES
    return list(struct.unpack(f"<{size // _WORD_BYTES}q", bits.to_bytes(size, "little")))


def remaining(words: Sequence[int]) -> int:
    """Return how many messages of the batch are still to be acknowledged. Words may be signed as on the wire."""
    return words_to_bits(words).bit_count()


def is_empty(words: Iterable[int]) -> bool:
    """Whether no message of the batch is left to be acknowledged, so that the whole entry is acknowledged."""
    return not any(words)
