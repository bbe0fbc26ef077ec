"""Which partition a message of a producer session goes to, as Apache Pulsar's Java client chooses."""

from __future__ import annotations

import random
from typing import Final

from magnetar.protocol.key_hash import murmur3_32

_MASK: Final = 0xFFFFFFFF


def java_string_hash(text: str) -> int:
    """Java's String.hashCode with the sign bit cleared."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & _MASK
    return value & 0x7FFFFFFF


class Router:
    """By key where a message has one; else one partition by chance for all, or one after the other."""

    def __init__(self, partitions: int, routing: str, hashing: str, chance: random.Random | None = None) -> None:
        self._partitions = partitions
        self._murmur = hashing == "Murmur3_32Hash"
        self._round_robin = routing == "RoundRobinPartition"
        self._next = (chance or random.Random()).randrange(partitions)  # noqa: S311 - a choice of partition is no secret

    def partition(self, key: str | None) -> int:
        if key is not None:
            value = murmur3_32(key.encode()) if self._murmur else java_string_hash(key)
            return value % self._partitions
        chosen = self._next
        if self._round_robin:
            self._next = (chosen + 1) % self._partitions
        return chosen
