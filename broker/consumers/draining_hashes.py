"""Hashes that moved to another consumer while their previous consumer still holds messages of them (PIP-379).

Until the old consumer has acknowledged (or given back) its last message of such a hash, the new owner gets no message
of the hash, which keeps the order of each key. The counts are of held entries.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

C = TypeVar("C")


class DrainingHash(NamedTuple):
    """A draining hash in the statistics: the entries still held, and the dispatch attempts that it blocked."""

    key_hash: int
    unacked_entries: int
    blocked_attempts: int


_row: Callable[[tuple[int, int, int]], DrainingHash] = partial(tuple.__new__, DrainingHash)
"""Makes a row in a third of the time that the class takes."""


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
        self._of: dict[C, dict[int, _Entry[C]]] = {}
        """The same entries by consumer."""
        self._cleared: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def drain(self, key_hash: int, consumer: C, held: int) -> None:
        """Start draining a hash that ``consumer`` lost while it holds ``held`` entries of the hash."""
        entry = self._entries.get(key_hash)
        if entry is None:
            entry = self._entries[key_hash] = self._of.setdefault(consumer, {})[key_hash] = _Entry(consumer)
        assert entry.consumer is consumer, "a hash drains from one consumer at a time"
        entry.held = held

    def _end(self, key_hash: int, consumer: C) -> None:
        del self._entries[key_hash]
        mine = self._of[consumer]
        del mine[key_hash]
        if not mine:
            del self._of[consumer]

    def blocks(self, key_hash: int, consumer: C) -> bool:
        """Whether an entry of the hash must not go to ``consumer`` now; a blocked attempt is counted.

        A hash that has returned to the consumer from which it drains stops draining.
        """
        entry = self._entries.get(key_hash)
        if entry is None:
            return False
        if entry.consumer is consumer:
            self._end(key_hash, consumer)
            return False
        entry.blocked_attempts += 1
        return True

    def is_blocked(self, key_hash: int, consumer: C) -> bool:
        """Like `blocks`, without side effects."""
        entry = self._entries.get(key_hash)
        return entry is not None and entry.consumer is not consumer

    def released(self, key_hash: int, consumer: C) -> bool:
        """Note that ``consumer`` released an entry of the hash. Return whether this freed the hash."""
        entry = self._entries.get(key_hash)
        if entry is None or entry.consumer is not consumer:
            return False
        entry.held -= 1
        if entry.held > 0:
            return False
        self._end(key_hash, consumer)
        self._cleared[id(consumer)] = self._cleared.get(id(consumer), 0) + 1
        return True

    def many_released(self, by_hash: Mapping[int, int], consumer: C) -> list[int]:
        """Note how many entries of each hash ``consumer`` released. Return the hashes that this freed."""
        freed = []
        for key_hash, entry in self._of.get(consumer, {}).items():
            if released := by_hash.get(key_hash, 0):
                entry.held -= released
                if entry.held <= 0:
                    freed.append(key_hash)
        for key_hash in freed:
            self._end(key_hash, consumer)
        if freed:
            self._cleared[id(consumer)] = self._cleared.get(id(consumer), 0) + len(freed)
        return freed

    def consumer_left(self, consumer: C) -> bool:
        """Free the draining hashes of a consumer that left; return whether there were any.

        Its held entries go to the replay queue.
        """
        mine = self._of.pop(consumer, {})
        for key_hash in mine:
            del self._entries[key_hash]
        self._cleared.pop(id(consumer), None)
        return bool(mine)

    def of(self, consumer: C) -> list[DrainingHash]:
        """Return the hashes that drain from a consumer, of which there may be tens of thousands."""
        mine = self._of.get(consumer, {}).items()
        return list(map(_row, [(key_hash, each.held, each.blocked_attempts) for key_hash, each in mine]))

    def cleared_total(self, consumer: C) -> int:
        """Number of hashes that a connected consumer freed by releasing its last entry of the hash."""
        return self._cleared.get(id(consumer), 0)

    def clear(self) -> None:
        self._entries.clear()
        self._of.clear()
        self._cleared.clear()
