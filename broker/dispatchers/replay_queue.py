"""Positions to be read again, in order. A client returned the entry, its consumer left, it became due, or no consumer
could take it.

A position stays in the queue until its entry is sent or acknowledged, so that nothing is lost between a failed read and
the next. Key_Shared also searches by sticky key hash: no earlier entry of the same hash may wait behind a sent entry.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar, cast

from pyroaring import BitMap

from magnetar.broker.dispatchers.ordered_positions import OrderedPositions
from magnetar.storage.empty_queue import NO_ITEMS
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

Owner = TypeVar("Owner")
_SPARE_PLACES = 64
_OWNERS_KNOWN = 8192
_SETTLED_IN_ONE_TURN = 8192
"""Positions that `settle` takes in, or puts into groups: some 10 ms at most."""
_FEW_HASHES = 1024
_ENTRY_IDS = 1 << 32
"""Entry ids that a bitmap can hold."""


class ReplayQueue(OrderedPositions):
    """An ordered set of positions, each with a sticky key hash (0 = not known)."""

    __slots__ = (
        "_aside",
        "_by_hash",
        "_gone",
        "_groups",
        "_hashes",
        "_incoming",
        "_known",
        "_looked_to",
        "_moved_early",
        "_owners",
        "_ungrouped",
        "additions",
    )

    def __init__(self) -> None:
        super().__init__()
        self._hashes: dict[tuple[int, int], int] = {}
        self._known: dict[int, BitMap] = {}
        """The positions of ``_hashes`` by ledger."""
        self._by_hash: dict[int, list[tuple[int, int]]] = {}  # heaps; removed entries are dropped lazily
        self._gone = 0
        """Bound of the positions in the heaps that ``discard_all`` has removed from the queue."""
        self._incoming: deque[tuple[int, Iterator[tuple[int, int]]]] = NO_ITEMS
        """By ledger the entries of ``add_held`` with their hashes, which are not yet in ``_hashes`` and the heaps."""
        self._groups: dict[Hashable, dict[int, BitMap]] = {}
        """For each owner of hashes its waiting entries by ledger; may still hold entries that have left the queue."""
        self._ungrouped: list[tuple[int, int]] | None = []
        """Positions with a hash that came since the last grouping; None: the groups are no longer valid."""
        self._aside: dict[int, tuple[Hashable, dict[int, BitMap]]] = {}
        """For each hash that waits its owner, and its entries by ledger, which are not in the group of the owner."""
        self._owners: dict[int, Hashable] = {}
        """Owners by hash, as the last groupings got them."""
        self._moved_early = False
        """Whether owners have changed since the groups were complete, before they were complete again."""
        self._looked_to = (0, 0)
        """The next position for ``choose_meanwhile``."""
        self.additions = 0
        """Grows when a position comes into the queue, or gets a hash."""

    def add(self, ledger_id: int, entry_id: int, key_hash: int = 0) -> bool:
        """Put a position into the queue; return False when the queue has it already. Note its hash in either case."""
        self.additions += 1
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = BitMap()
        known = entry_id in ledger
        if not known:
            ledger.add(entry_id)
            self.entries += 1
        position = (ledger_id, entry_id)
        if key_hash and (former := self._hashes.get(position)) != key_hash:
            self._hashes[position] = key_hash
            if ledger_id not in self._known:
                self._known[ledger_id] = BitMap()
            self._known[ledger_id].add(entry_id)
            heapq.heappush(self._by_hash.setdefault(key_hash, []), position)
            self._to_group([position])
            if former is not None:
                self.owners_moved()
        return not known

    def add_all(self, positions: Iterable[Position]) -> None:
        """Put positions into the queue whose hashes are not known."""
        self.additions += 1
        for ledger_id, of_ledger in groupby(positions, itemgetter(0)):
            ledger = self._ledgers.setdefault(ledger_id, BitMap())
            before = len(ledger)
            ledger.update([entry_id for _, entry_id in of_ledger])
            self.entries += len(ledger) - before

    def add_held(self, ledger_id: int, entry_ids: BitMap, key_hashes: Mapping[int, int]) -> None:
        """Put many entries of a ledger into the queue; `key_hashes`: the known hashes, also of other entries. The
        mapping must not change afterwards: ``settle`` notes the hashes later, or the next search by hash.
        """
        if not entry_ids:
            return
        self.additions += 1
        ledger = self._ledgers.setdefault(ledger_id, BitMap())
        before = len(ledger)
        ledger |= entry_ids
        self.entries += len(ledger) - before
        if key_hashes:
            self._incoming = self._incoming or deque()
            self._incoming.append((ledger_id, iter(key_hashes.items())))

    @property
    def knows_hashes(self) -> bool:
        """Whether all hashes are noted; a search by hash notes those that are left."""
        return not self._incoming

    def settle(
        self, owner_of: Callable[[int], Owner | None], waits: Callable[[int, Owner], bool] | None = None
    ) -> bool:
        """Note the hashes of some thousands of positions, or put as many into groups; return whether none are left for
        another turn. The arguments are those of ``choose``.
        """
        limit = _SETTLED_IN_ONE_TURN // 2 or 1 if self._moved_early else _SETTLED_IN_ONE_TURN
        left = limit - (self.take_in(limit) if self._incoming else 0)
        settled = left > 0 and self._group(owner_of, waits, left)
        if settled:
            self._moved_early = False
        return settled

    def take_in(self, limit: int = sys.maxsize) -> int:
        """Note the hashes of up to `limit` positions of ``add_held``; return how many. Positions that have left the
        queue since count, too.
        """
        taken, hashes, by_hash = 0, self._hashes, self._by_hash
        while self._incoming and taken < limit:
            ledger_id, pairs = self._incoming[0]
            some = list(islice(pairs, limit - taken))
            if not some:
                self._incoming.popleft()
                continue
            taken += len(some)
            waiting = self._ledgers.get(ledger_id) or BitMap()
            came, changed = [], False
            for entry_id, key_hash in some:
                if entry_id not in waiting:
                    continue
                position = (ledger_id, entry_id)
                former = hashes.get(position)
                if former != key_hash:
                    hashes[position] = key_hash
                    heapq.heappush(by_hash.setdefault(key_hash, []), position)
                    came.append(position)
                    changed |= former is not None
            self._to_group(came)
            self._note_known(ledger_id, [entry_id for _, entry_id in came])
            if changed:
                self.owners_moved()
        return taken

    def add_refused(self, ledger_id: int, entry_ids: Sequence[int], key_hashes: Sequence[int]) -> None:
        """Put entries of a ledger into the queue, with their hashes (none of them 0); at least one entry."""
        self.additions += 1
        ledger = self._ledgers.setdefault(ledger_id, BitMap())
        before = len(ledger)
        ledger.update(entry_ids)
        self.entries += len(ledger) - before
        hashes, by_hash = self._hashes, self._by_hash
        positions = [(ledger_id, entry_id) for entry_id in entry_ids]
        self._to_group(positions)
        self._note_known(ledger_id, entry_ids)
        for position, key_hash in zip(positions, key_hashes, strict=True):
            former = hashes.get(position)
            if former != key_hash:
                hashes[position] = key_hash
                if former is not None:
                    self.owners_moved()
                heap = by_hash.get(key_hash)
                if heap is None:
                    by_hash[key_hash] = [position]
                else:
                    heapq.heappush(heap, position)

    def discard_all(self, ledger_id: int, entry_ids: BitMap) -> bool:
        """Remove those of the entries that the queue has; return whether the hash of any of the entries was unknown."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return bool(entry_ids)
        found = ledger & entry_ids
        ledger -= found
        self.entries -= len(found)
        if not ledger:
            del self._ledgers[ledger_id]
        self._forget_known(ledger_id, found)
        hashes = self._hashes
        with_hash = len(hashes)
        if self._aside:
            for entry_id in found:
                self._leave_aside(hashes.pop((ledger_id, entry_id), 0), ledger_id, entry_id)
        else:
            for entry_id in found if hashes else ():
                hashes.pop((ledger_id, entry_id), None)
        self._gone += with_hash - len(hashes)
        if self._gone > 2 * len(hashes) + _SPARE_PLACES:
            self._make_heaps()
        return with_hash - len(hashes) < len(entry_ids)

    def _make_heaps(self) -> None:
        """Make the heaps again, without the positions that have left the queue."""
        self._gone = 0
        self._by_hash.clear()
        for position, key_hash in sorted(self._hashes.items()):
            self._by_hash.setdefault(key_hash, []).append(position)

    def discard_run(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Remove those of the consecutive entries that the queue has."""
        ledger = self._ledgers.get(ledger_id)
        if count == 1 or self._hashes or ledger is None:
            for entry_id in range(first_entry_id, first_entry_id + count):
                self.discard(ledger_id, entry_id)
            return
        before = len(ledger)
        ledger.remove_range(first_entry_id, first_entry_id + count)
        self.entries -= before - len(ledger)
        if not ledger:
            del self._ledgers[ledger_id]

    def discard(self, ledger_id: int, entry_id: int) -> bool:
        """Remove a position; return whether the queue had it."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or entry_id not in ledger:
            return False
        ledger.remove(entry_id)
        self.entries -= 1
        if not ledger:
            del self._ledgers[ledger_id]
        if self._hashes:
            key_hash = self._hashes.pop((ledger_id, entry_id), 0)
            if key_hash:
                with_hash = self._known[ledger_id]
                with_hash.remove(entry_id)
                if not with_hash:
                    del self._known[ledger_id]
                self._leave_aside(key_hash, ledger_id, entry_id)
                self._clean_heap(key_hash)
        return True

    def drop_up_to(self, position: Position) -> None:
        """Remove all positions up to this position."""
        for ledger_id in [each for each in self._ledgers if each <= position.ledger_id]:
            gone = self._ledgers[ledger_id].copy()
            if ledger_id == position.ledger_id:
                gone.remove_range(position.entry_id + 1, _ENTRY_IDS)
            self.discard_all(ledger_id, gone)
        if not self._ledgers:
            self._incoming = NO_ITEMS

    def _note_known(self, ledger_id: int, entry_ids: Sequence[int]) -> None:
        if entry_ids:
            self._known.setdefault(ledger_id, BitMap()).update(entry_ids)

    def _forget_known(self, ledger_id: int, entry_ids: BitMap) -> None:
        known = self._known.get(ledger_id)
        if known is not None:
            known -= entry_ids
            if not known:
                del self._known[ledger_id]

    def hash_of(self, ledger_id: int, entry_id: int) -> int:
        """The sticky key hash noted for a position, 0 when none."""
        if self._incoming:
            self.take_in()
        return self._hashes.get((ledger_id, entry_id), 0)

    @property
    def hashes(self) -> Mapping[int, object]:
        """A dict whose keys include the hashes of all entries in the queue; some keys may belong to no entry."""
        if self._incoming:
            self.take_in()
        return self._by_hash

    def first_of_hash(self, key_hash: int) -> tuple[int, int] | None:
        """The earliest position that waits with this hash."""
        if self._incoming:
            self.take_in()
        return self._clean_heap(key_hash)

    def _clean_heap(self, key_hash: int) -> tuple[int, int] | None:
        """Drop positions that have left the queue from the top of a heap; return the first of the others."""
        heap = self._by_hash.get(key_hash)
        while heap:
            if self._hashes.get(heap[0]) == key_hash:
                return heap[0]
            heapq.heappop(heap)
        self._by_hash.pop(key_hash, None)
        return None

    def choose(
        self,
        owner_of: Callable[[int], Owner | None],
        room_of: Callable[[Owner], int],
        limit: int,
        waits: Callable[[int, Owner], bool] | None = None,
    ) -> list[Position] | None:
        """Choose for each owner its first positions, as many as it has room for; return the first ``limit`` of all
        these, in order. The positions stay in the queue. None when the hash of a position is not known. Until
        ``additions`` grows, no other position of the queue precedes a chosen position of its hash.

        waits: whether no position of the hash may go to its owner now; None: all may. The caller calls ``owners_moved``
        after each change of the owners and when hashes begin to wait, ``may_go`` when a hash no longer waits.
        """
        if self._incoming:
            self.take_in()
        if len(self._hashes) != self.entries:
            return None
        return self._first_of_owners(owner_of, room_of, limit, waits)

    def choose_with_unknown(
        self,
        owner_of: Callable[[int], Owner | None],
        room_of: Callable[[Owner], int],
        limit: int,
        waits: Callable[[int, Owner], bool] | None = None,
    ) -> list[Position]:
        """Choose like ``choose`` among the positions with a hash, and each position whose hash is not known; return the
        first ``limit`` of all these, in order.
        """
        if self._incoming:
            self.take_in()
        unknown = self.head(limit, left_out=self._known)
        return sorted(unknown + self._first_of_owners(owner_of, room_of, limit, waits))[:limit]

    def _first_of_owners(
        self,
        owner_of: Callable[[int], Owner | None],
        room_of: Callable[[Owner], int],
        limit: int,
        waits: Callable[[int, Owner], bool] | None,
    ) -> list[Position]:
        """``choose``, among the positions whose hash is known."""
        self._group(owner_of, waits, sys.maxsize)
        chosen: dict[int, BitMap] = {}
        for owner, ledgers in self._groups.items():
            left = min(room_of(cast("Owner", owner)), limit)  # no further position is among the first of all
            for ledger_id in sorted(ledgers) if left > 0 else ():
                waiting = ledgers[ledger_id]
                waiting &= self._known.get(ledger_id) or BitMap()
                if not waiting:
                    del ledgers[ledger_id]
                    continue
                taken = waiting if len(waiting) <= left else BitMap(islice(waiting, left))
                chosen[ledger_id] = taken | chosen[ledger_id] if ledger_id in chosen else taken
                left -= len(taken)
                if left <= 0:
                    break
        positions: list[Position] = []
        for ledger_id in sorted(chosen):
            positions += map(Position, repeat(ledger_id), islice(chosen[ledger_id], limit - len(positions)))
        return positions

    def choose_meanwhile(
        self,
        owner_of: Callable[[int], Owner | None],
        room_of: Callable[[Owner], int],
        limit: int,
        waits: Callable[[int, Owner], bool] | None = None,
    ) -> list[Position]:
        """Choose like ``choose`` among the next thousands of positions, in a time when owners change so often that
        ``settle`` does not come to an end: each call looks at positions behind those of the last call. Empty when
        owners do not change so often, or the hash of a position is not known.
        """
        if not self._moved_early or self._incoming or len(self._hashes) != self.entries:
            return []
        start, looked, chosen = self._looked_to, 0, list[Position]()
        owners: dict[int, Owner | None] = {}
        left: dict[Owner, int] = {}
        for position in self._from(start):
            looked += 1
            if looked > _SETTLED_IN_ONE_TURN // 2 or len(chosen) >= limit:
                self._looked_to = position
                return chosen
            key_hash = self._hashes[position]
            if key_hash not in owners:
                first, owner = self._clean_heap(key_hash), owner_of(key_hash)
                if (
                    first is None
                    or first < start
                    or (owner is not None and waits is not None and waits(key_hash, owner))
                ):
                    owner = None
                owners[key_hash] = owner
            owner = owners[key_hash]
            if owner is None:
                continue
            room = left[owner] if owner in left else room_of(owner)
            left[owner] = room - 1
            if room > 0:
                chosen.append(position)
        self._looked_to = (0, 0)
        return chosen

    def owners_moved(self) -> None:
        """Discard the groups, because hashes have other owners or positions have other hashes."""
        self._moved_early |= bool((self._ungrouped is None and self._hashes) or self._ungrouped)
        self._ungrouped = None
        self._owners.clear()

    def all_may_go(self, key_hashes: Sequence[int]) -> None:
        """Do the same as ``may_go`` for many hashes."""
        if len(key_hashes) > _FEW_HASHES:
            self._ungrouped = None
        for key_hash in key_hashes if self._ungrouped is not None else ():
            self.may_go(key_hash)

    def may_go(self, key_hash: int) -> None:
        """Put the positions of a hash that waited until now into the group of its owner."""
        owner, ledgers = self._aside.pop(key_hash, (None, {}))
        if not ledgers or self._ungrouped is None:
            return
        of_owner = self._groups.setdefault(owner, {})
        for ledger_id, waiting in ledgers.items():
            of_owner[ledger_id] = waiting | of_owner[ledger_id] if ledger_id in of_owner else waiting

    def _leave_aside(self, key_hash: int, ledger_id: int, entry_id: int) -> None:
        """Note that a position has left the queue, if its hash waits."""
        _, ledgers = self._aside.get(key_hash, (None, {}))
        waiting = ledgers.get(ledger_id)
        if waiting is not None:
            waiting.discard(entry_id)
            if not waiting:
                del ledgers[ledger_id]

    def _to_group(self, positions: Sequence[tuple[int, int]]) -> None:
        """Note positions that came with a hash; when too many are noted, have the next call make the groups anew."""
        if self._ungrouped is not None:
            self._ungrouped += positions
            if len(self._ungrouped) > 2 * self.entries + _SPARE_PLACES:
                self._ungrouped = None

    def _group(
        self, owner_of: Callable[[int], Owner | None], waits: Callable[[int, Owner], bool] | None, limit: int
    ) -> bool:
        """Put up to `limit` of the positions that came with a hash into the group of their owner, or aside; return
        whether none are left.
        """
        if self._ungrouped is None:
            self._groups.clear()
            self._aside.clear()
            self._ungrouped = list(self._hashes)
        if not self._ungrouped:
            return True
        some, self._ungrouped = self._ungrouped[-limit:], self._ungrouped[:-limit]
        groups, hashes, owners = self._groups, self._hashes, self._owners
        if len(owners) > _OWNERS_KNOWN:
            owners.clear()
        for position in some:
            key_hash = hashes.get(position)
            if key_hash is None:
                continue
            owner = owners.get(key_hash)
            if owner is None:
                owner = owner_of(key_hash)
                if owner is None:
                    continue
                owners[key_hash] = owner
            if waits is not None and waits(key_hash, cast("Owner", owner)):
                ledgers = self._aside.setdefault(key_hash, (owner, {}))[1]
            else:
                ledgers = groups.setdefault(owner, {})
            group = ledgers.get(position[0])
            if group is None:
                group = ledgers[position[0]] = BitMap()
            group.add(position[1])
        return not self._ungrouped

    def clear(self) -> None:
        self._ledgers.clear()
        self._hashes.clear()
        self._known.clear()
        self._incoming = NO_ITEMS
        self._by_hash.clear()
        self._gone = 0
        self._groups.clear()
        self._aside.clear()
        self._owners.clear()
        self._moved_early = False
        self._ungrouped = []
        self.entries = 0
