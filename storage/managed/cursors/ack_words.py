"""ack_set of the wire <-> one int. Bit k set: batch index k is still to be acknowledged. Pure.

The wire has the words of a Java BitSet: signed 64-bit, word 0 bit 0 is batch index 0, no trailing zero words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bits_to_words", "words_to_bits"]

_MASK = (1 << 64) - 1


def words_to_bits(words: Sequence[int]) -> int:
    bits = 0
    for k, word in enumerate(words):
        bits |= (word & _MASK) << (64 * k)
    return bits


def bits_to_words(bits: int) -> list[int]:
    words = []
    while bits:
        word = bits & _MASK
        words.append(word - (1 << 64) if word >> 63 else word)
        bits >>= 64
    return words
