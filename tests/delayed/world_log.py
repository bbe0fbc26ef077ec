"""The log under a delayed index, in memory: entries with their times, slabs and cursors."""

from __future__ import annotations

import asyncio
from array import array
from types import SimpleNamespace

from pyroaring import BitMap

from magnetar.protocol.runs import EntryFlag, EntryRun
from magnetar.storage.errors import CorruptEntryError
from magnetar.storage.position import EARLIEST, Position


def run_of(times):
    """An EntryRun of entries with these deliver_at times (None: not delayed)."""
    count = len(times)
    flags = [int(EntryFlag.HAS_DELIVER_AT) if t is not None else 0 for t in times]
    any_flags, all_flags = 0, 0xFFFFFFFF
    for flag in flags:
        any_flags |= flag
        all_flags &= flag
    ones = array("q", [1] * count).tobytes()
    deliver_at = array("q", [t or 0 for t in times]).tobytes() if any_flags else None
    return EntryRun(
        1, count, b"x" * count, array("q", range(count + 1)).tobytes(), array("q", range(count)).tobytes(),
        array("q", [0] * count).tobytes(), ones, deliver_at, array("I", flags).tobytes(), any_flags, all_flags, count,
        True, count,
    )  # fmt: skip


class Slab:
    def __init__(self, ledger_id, first, times):
        self.ledger_id, self.first_entry_id = ledger_id, first
        delayed = int(EntryFlag.HAS_DELIVER_AT)
        flags = array("I", [0 if t is None else delayed for t in times])
        self._facts = SimpleNamespace(
            deliver_at=array("q", [t or 0 for t in times]).tobytes(),
            flags=flags.tobytes(),
            any_flags=max(flags, default=0),
        )

    def facts(self):
        return self._facts

    def position(self, k):
        return Position(self.ledger_id, self.first_entry_id + k)


class Log:
    """The log: ledger id -> deliver_at of each entry (None: not delayed)."""

    def __init__(self):
        self.ledgers = {0: []}
        self.unreadable = set()

    @property
    def current(self):
        return max(self.ledgers)

    @property
    def last_confirmed(self):
        full = [k for k, times in self.ledgers.items() if times]
        if full:
            return Position(max(full), len(self.ledgers[max(full)]) - 1)
        return EARLIEST if self.current == 0 else Position(self.current, -1)

    @property
    def first_position(self):
        full = [k for k, times in self.ledgers.items() if times]
        return Position(min(full), 0) if full else None

    def positions(self, after=EARLIEST):
        for ledger_id in sorted(self.ledgers):
            for k in range(len(self.ledgers[ledger_id])):
                if (ledger_id, k) > after:
                    yield Position(ledger_id, k)

    def time(self, position):
        return self.ledgers[position.ledger_id][position.entry_id]

    def entries_between(self, after, up_to):
        return sum(p <= up_to for p in self.positions(after))

    def append(self, times):
        """Append a run to the current ledger; return its piece."""
        ledger = self.ledgers[self.current]
        ledger += times
        return (self.current, len(ledger) - len(times), 0, len(times))

    def roll(self):
        if self.ledgers[self.current]:
            self.ledgers[self.current + 1] = []

    def trim(self, mark_deletes):
        floor = min(mark_deletes, default=EARLIEST)
        for ledger_id in sorted(self.ledgers):
            if ledger_id < self.current and (ledger_id, len(self.ledgers[ledger_id]) - 1) <= floor:
                del self.ledgers[ledger_id]

    def new_read_cursor(self, start):
        return ScanCursor(self, start)


class ScanCursor:
    def __init__(self, log, start):
        self._log, self._next, self.closed = log, start, False

    def read(self, max_entries, _max_bytes, upto=None):
        for position in self._log.positions(self._next.previous()):
            if upto is not None and position > upto:
                break
            self._next = position
            if position in self._log.unreadable:
                raise CorruptEntryError(position, "told so")
            times = self._log.ledgers[position.ledger_id]
            end = min(position.entry_id + min(max_entries, 3), len(times))
            if upto is not None and upto.ledger_id == position.ledger_id:
                end = min(end, upto.entry_id + 1)
            for k in range(position.entry_id + 1, end):
                if (position.ledger_id, k) in self._log.unreadable:
                    end = k
                    break
            slab = Slab(position.ledger_id, position.entry_id, times[position.entry_id : end])
            self._next = Position(position.ledger_id, end)
            return [SimpleNamespace(slab=slab, start=0, end=end - position.entry_id, entries=end - position.entry_id)]
        return []

    def move_to(self, position):
        self._next = position

    def close(self):
        self.closed = True


class Cursor:
    """A subscription's cursor as the index sees it; acknowledgements are durable at once."""

    def __init__(self, log, mark_delete):
        self._log = log
        self.mark_delete = mark_delete
        self.deleted = {}
        self.read_position = mark_delete.next()

    def is_deleted(self, position):
        return position <= self.mark_delete or position.entry_id in self.deleted.get(position.ledger_id, ())

    def deleted_in(self, ledger_id):
        return self.deleted.get(ledger_id)

    def ack_many(self, positions):
        for position in positions:
            if not self.is_deleted(position):
                self.deleted.setdefault(position.ledger_id, BitMap()).add(position.entry_id)
        for position in self._log.positions(self.mark_delete):
            if not self.is_deleted(position):
                break
            self.mark_delete = position
        return 1

    async def flush(self):
        await asyncio.sleep(0)

    def seek(self, position):
        before = [p for p in self._log.positions() if p < position]
        self.mark_delete = before[-1] if before else EARLIEST
        for ledger_id in list(self.deleted):
            if ledger_id > position.ledger_id:
                del self.deleted[ledger_id]
            elif ledger_id == position.ledger_id:
                self.deleted[ledger_id] = BitMap([e for e in self.deleted[ledger_id] if e < position.entry_id])
        self.ack_many(())
        self.read_position = position
