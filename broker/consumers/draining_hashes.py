"""Hashes that moved to another consumer while their previous consumer still holds messages of them (PIP-379).

Until the old consumer has acknowledged (or given back) its last message of such a hash, the new owner gets none of it:
the order of a key is kept. Counted by held entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")


class DrainingHash(NamedTuple):
    """A draining hash in the statistics: the entries still held, and the dispatch attempts that it blocked."""

    key_hash: int
    unacked_entries: int
    blocked_attempts: int


class _Entry(Generic[C]):
    __slots__ = ("blocked_attempts", "consumer", "held")

    def __init__(self, consumer: C) -> None:
        self.consumer = consumer
        self.held = 0
        self.blocked_attempts = 0


class DrainingHashes(Generic[C]):
    """Draining hashes of one subscription; object identity distinguishes the consumers."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[C]] = {}
        self._cleared: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def drain(self, key_hash: int, consumer: C, held: int) -> None:
        """``consumer`` lost the hash and holds ``held`` entries of it."""
        entry = self._entries.get(key_hash)
        if entry is None:
            entry = self._entries[key_hash] = _Entry(consumer)
        assert entry.consumer is consumer, "a hash drains from one consumer at a time"
        entry.held = held

    def blocks(self, key_hash: int, consumer: C) -> bool:
        """Whether an entry of the hash must not go to ``consumer`` now. A hash back at its own consumer is free."""
        entry = self._entries.get(key_hash)
        if entry is None:
            return False
        if entry.consumer is consumer:
            del self._entries[key_hash]
            return False
        entry.blocked_attempts += 1
        return True

    def is_blocked(self, key_hash: int, consumer: C) -> bool:
        """Like `blocks`, as a question only."""
        entry = self._entries.get(key_hash)
        return entry is not None and entry.consumer is not consumer

    def released(self, key_hash: int, consumer: C) -> bool:
        """``consumer`` no longer holds one entry of the hash. Returns whether this freed the hash."""
        entry = self._entries.get(key_hash)
        if entry is None or entry.consumer is not consumer:
            return False
        entry.held -= 1
        if entry.held > 0:
            return False
        del self._entries[key_hash]
        self._cleared[id(consumer)] = self._cleared.get(id(consumer), 0) + 1
        return True

    def consumer_left(self, consumer: C) -> bool:
        """Free all hashes of the consumer (its entries wait in the replay queue). Returns whether it had any."""
        mine = [key_hash for key_hash, entry in self._entries.items() if entry.consumer is consumer]
        for key_hash in mine:
            del self._entries[key_hash]
        self._cleared.pop(id(consumer), None)
        return bool(mine)

    def of(self, consumer: C) -> Iterator[DrainingHash]:
        for key_hash, entry in self._entries.items():
            if entry.consumer is consumer:
                yield DrainingHash(key_hash, entry.held, entry.blocked_attempts)

    def cleared_total(self, consumer: C) -> int:
        """How many hashes of a connected consumer were freed by acknowledgements."""
        return self._cleared.get(id(consumer), 0)

    def clear(self) -> None:
        self._entries.clear()
        self._cleared.clear()
