"""Entries a consumer holds: sent to it and not yet acknowledged (Shared and Key_Shared only).

Kept compactly, per ledger: a bitmap of the entries of one message without a key hash (the usual entries; a run of them
costs a single call), and a dict ``entry id -> unacked messages << 17 | key hash`` for batches and for Key_Shared.
"""

from __future__ import annotations

from collections import Counter
from itertools import compress, repeat
from operator import rshift
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from magnetar.storage.position import Position

_HASH_BITS = 17
_HASH_MASK = (1 << _HASH_BITS) - 1
_ONE_UNACKED = 1 << _HASH_BITS


class PendingAck(NamedTuple):
    """One held entry: how many of its messages are unacked, and its sticky key hash (0 = none)."""

    ledger_id: int
    entry_id: int
    unacked: int
    key_hash: int


class HeldOfLedger(NamedTuple):
    """All entries of one ledger that a consumer held."""

    ledger_id: int
    entry_ids: BitMap
    key_hashes: dict[int, int]
    """Key hashes by entry, in order, of the entries with a hash."""
    messages: int
    """Unacked messages of all of them."""


class _Ledger:
    __slots__ = ("packed", "plain")

    def __init__(self) -> None:
        self.plain: BitMap = BitMap()
        self.packed: dict[int, int] = {}


class PendingAcks:
    """The entries one consumer holds."""

    __slots__ = ("_ledgers", "entries")

    def __init__(self) -> None:
        self._ledgers: dict[int, _Ledger] = {}
        self.entries = 0

    def __len__(self) -> int:
        return self.entries

    def __contains__(self, position: tuple[int, int]) -> bool:
        ledger = self._ledgers.get(position[0])
        return ledger is not None and (position[1] in ledger.plain or position[1] in ledger.packed)

    def _ledger(self, ledger_id: int) -> _Ledger:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _Ledger()
        return ledger

    def add_run(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Hold ``count`` consecutive entries of one message each. None of them may be held already."""
        self._ledger(ledger_id).plain.add_range(first_entry_id, first_entry_id + count)
        self.entries += count

    def add(self, ledger_id: int, entry_id: int, unacked: int, key_hash: int = 0) -> None:
        """Hold one entry (again: its unacked messages are replaced)."""
        ledger = self._ledgers.get(ledger_id) or self._ledger(ledger_id)
        if entry_id in ledger.packed:
            self.entries -= 1
            if unacked == 1 and not key_hash:
                del ledger.packed[entry_id]
        elif entry_id in ledger.plain:
            self.entries -= 1
            ledger.plain.remove(entry_id)
        if unacked == 1 and not key_hash:
            ledger.plain.add(entry_id)
        else:
            ledger.packed[entry_id] = unacked << _HASH_BITS | key_hash
        self.entries += 1

    def add_keyed(self, ledger_id: int, entry_ids: Iterable[int], key_hashes: Iterable[int]) -> None:
        """Hold entries of one message each, with their hashes (none of them 0). None of them may be held already."""
        packed = self._ledger(ledger_id).packed
        before = len(packed)
        packed.update(zip(entry_ids, map(_ONE_UNACKED.__or__, key_hashes), strict=True))
        self.entries += len(packed) - before

    def remove_keyed(self, ledger_id: int, entry_ids: Iterable[int]) -> tuple[int, list[int]]:
        """Remove those of ``entry_ids`` that are held with a hash or as a batch.

        Returns (the number of their unacked messages, the others of ``entry_ids``).
        """
        entry_ids = list(entry_ids)
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return 0, entry_ids
        packed = ledger.packed
        before = len(packed)
        values = list(map(packed.pop, entry_ids, repeat(0)))
        removed = before - len(packed)
        self.entries -= removed
        if not packed and not ledger.plain:
            del self._ledgers[ledger_id]
        others = (
            []
            if removed == len(values)
            else [entry_id for entry_id, value in zip(entry_ids, values, strict=True) if not value]
        )
        return sum(map(rshift, values, repeat(_HASH_BITS))), others

    def get(self, ledger_id: int, entry_id: int) -> PendingAck | None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return None
        packed = ledger.packed.get(entry_id)
        if packed is not None:
            return PendingAck(ledger_id, entry_id, packed >> _HASH_BITS, packed & _HASH_MASK)
        return PendingAck(ledger_id, entry_id, 1, 0) if entry_id in ledger.plain else None

    def remove(self, ledger_id: int, entry_id: int) -> PendingAck | None:
        """Release the entry; returns its record, None if it was not held."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return None
        packed = ledger.packed.pop(entry_id, None)
        if packed is None:
            if entry_id not in ledger.plain:
                return None
            ledger.plain.remove(entry_id)
            packed = 1 << _HASH_BITS
        self.entries -= 1
        if not ledger.packed and not ledger.plain:
            del self._ledgers[ledger_id]
        return PendingAck(ledger_id, entry_id, packed >> _HASH_BITS, packed & _HASH_MASK)

    def remove_plain(self, ledger_id: int, entry_ids: BitMap) -> BitMap:
        """Remove those of ``entry_ids`` that are held as one message without a hash; return the removed entries."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return BitMap()
        found: BitMap = ledger.plain & entry_ids
        if found:
            ledger.plain -= found
            self.entries -= len(found)
            if not ledger.plain and not ledger.packed:
                del self._ledgers[ledger_id]
        return found

    def among(self, ledger_id: int, entry_ids: BitMap) -> list[int]:
        """Return those of ``entry_ids`` that are held."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return []
        plain, packed = ledger.plain & entry_ids, ledger.packed
        if len(packed) < len(entry_ids):
            return [*plain, *(entry_id for entry_id in packed if entry_id in entry_ids)]
        return [*plain, *(entry_id for entry_id in entry_ids if entry_id in packed)]

    def reduce(self, ledger_id: int, entry_id: int, unacked: int) -> int:
        """Note that ``unacked`` messages of a batch remain after a partial ack; return the number newly acked."""
        found = self.get(ledger_id, entry_id)
        if found is None or unacked >= found.unacked:
            return 0
        self.add(ledger_id, entry_id, unacked, found.key_hash)
        return found.unacked - unacked

    def by_hash(self, wanted: bytearray) -> Counter[int]:
        """Number of held entries by key hash, of the hashes whose byte in `wanted` is not 0; hash 0 for entries without
        a key hash. In the order of their first positions, except within a ledger hash 0, which comes first. The method
        makes no call for each entry.
        """
        found: Counter[int] = Counter()
        for ledger_id in sorted(self._ledgers):
            ledger = self._ledgers[ledger_id]
            if ledger.plain and wanted[0]:
                found[0] += len(ledger.plain)
            packed = ledger.packed
            entry_ids = sorted(packed)
            values = packed.values() if entry_ids == list(packed) else map(packed.__getitem__, entry_ids)
            hashes = list(map(_HASH_MASK.__and__, values))
            found.update(compress(hashes, map(wanted.__getitem__, hashes)))
        return found

    def drop_up_to(self, position: Position) -> list[HeldOfLedger]:
        """Remove all entries at or before ``position`` (the backlog was skipped or expired); return them in the order
        of ledgers. The method makes no call for each entry.
        """
        dropped: list[HeldOfLedger] = []
        for ledger_id in sorted([each for each in self._ledgers if each <= position.ledger_id]):
            ledger = self._ledgers.pop(ledger_id)
            if ledger_id == position.ledger_id:
                ledger, rest = _split(ledger, position.entry_id + 1)
                if rest.plain or rest.packed:
                    self._ledgers[ledger_id] = rest
            held = _all_of(ledger_id, ledger)
            self.entries -= len(held.entry_ids)
            dropped.append(held)
        return dropped

    def take_all(self) -> list[HeldOfLedger]:
        """Remove all held entries and return them in the order of ledgers.

        A consumer may hold 50,000 entries; the method makes no call for each entry.
        """
        held = [_all_of(ledger_id, self._ledgers[ledger_id]) for ledger_id in sorted(self._ledgers)]
        self.clear()
        return held

    def take(self, entries: Mapping[int, Sequence[int]]) -> list[HeldOfLedger]:
        """Remove those of the entries, given by ledger, that are held and return them in the order of ledgers. The
        method makes no call for each entry, and none for ledgers of which no entry is held.
        """
        return [
            self._take(ledger_id, BitMap(entries[ledger_id]))
            for ledger_id in sorted(entries.keys() & self._ledgers.keys())
        ]

    def _take(self, ledger_id: int, entry_ids: BitMap) -> HeldOfLedger:
        taken = _Ledger()
        taken.plain = self.remove_plain(ledger_id, entry_ids)
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None and ledger.packed:
            packed = ledger.packed
            taken.packed = {entry_id: packed.pop(entry_id) for entry_id in entry_ids if entry_id in packed}
            self.entries -= len(taken.packed)
            if not packed and not ledger.plain:
                del self._ledgers[ledger_id]
        return _all_of(ledger_id, taken)

    def clear(self) -> None:
        """Remove all held entries."""
        self._ledgers.clear()
        self.entries = 0

    def __iter__(self) -> Iterator[PendingAck]:
        """Yield in order of position; the entries must not change meanwhile."""
        for ledger_id in sorted(self._ledgers):
            ledger = self._ledgers[ledger_id]
            if not ledger.packed:
                for entry_id in ledger.plain:
                    yield PendingAck(ledger_id, entry_id, 1, 0)
                continue
            packed = ledger.packed
            for entry_id in sorted([*ledger.plain, *packed]):
                value = packed.get(entry_id, 1 << _HASH_BITS)
                yield PendingAck(ledger_id, entry_id, value >> _HASH_BITS, value & _HASH_MASK)


def _split(ledger: _Ledger, end: int) -> tuple[_Ledger, _Ledger]:
    """The entries before entry ``end``, and the others."""
    before, rest = _Ledger(), _Ledger()
    before.plain.add_range(0, end)
    before.plain &= ledger.plain
    rest.plain = ledger.plain - before.plain
    for entry_id, value in ledger.packed.items():
        (before if entry_id < end else rest).packed[entry_id] = value
    return before, rest


def _all_of(ledger_id: int, ledger: _Ledger) -> HeldOfLedger:
    """All entries of the ledger, whose bitmap the result takes over."""
    entry_ids, packed = ledger.plain, ledger.packed
    messages = len(entry_ids) + sum([value >> _HASH_BITS for value in packed.values()])
    hashes = {each: packed[each] & _HASH_MASK for each in sorted(packed) if packed[each] & _HASH_MASK}
    entry_ids.update(packed)
    return HeldOfLedger(ledger_id, entry_ids, hashes, messages)
