"""ack_set of the wire <-> one int. Bit k set: batch index k is still to be acknowledged. Pure.

The wire has the words of a Java BitSet: signed 64-bit, word 0 bit 0 is batch index 0, no trailing zero words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bits_to_words", "words_to_bits"]

_MASK = (1 << 64) - 1
_WORD_BYTES = 8


def words_to_bits(words: Sequence[int]) -> int:
    """In time linear in the words: a peer may send many."""
    return int.from_bytes(b"".join([(word & _MASK).to_bytes(_WORD_BYTES, "little") for word in words]), "little")


def bits_to_words(bits: int) -> list[int]:
    size = -(-bits.bit_length() // 64) * _WORD_BYTES
    data = bits.to_bytes(size, "little")
    starts = range(0, size, _WORD_BYTES)
    return [int.from_bytes(data[at : at + _WORD_BYTES], "little", signed=True) for at in starts]
