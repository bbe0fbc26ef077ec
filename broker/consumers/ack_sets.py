"""Batch-index ack sets: java BitSet words, a set bit is a message still to be consumed (MessageIdData.ack_set)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORD = (1 << 64) - 1


def remaining(words: Iterable[int]) -> int:
    """How many messages of the batch are still to be consumed. Words may be signed int64 as on the wire."""
    return sum((word & _WORD).bit_count() for word in words)


def is_empty(words: Iterable[int]) -> bool:
    """Whether nothing of the batch is left: the ack is one of the whole entry."""
    return not any(words)
