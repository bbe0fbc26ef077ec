"""Broker side deduplication of a topic (Apache Pulsar MessageDeduplication).

Two maps by producer name hold the highest sequence id *pushed* (accepted for appending) and *persisted* (on the disk).
A SEND whose id is at or below `persisted` is a duplicate. Of a SEND between `persisted` and `pushed` the broker does
not know yet whether it will be stored: the client has to send it again. Of a batch the lowest id is compared and the
highest id is kept. Of a chunked message only the last chunk is compared. The durable cursor `pulsar.dedup` saves its
mark-delete position and the map of persisted ids in one write; after a crash the broker loads the map and replays the
entries behind the position, which restores the state at the crash.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from magnetar.broker.topics.names_room import NamesRoom
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.protocol.runs import EntryRun

CURSOR_NAME = "pulsar.dedup"
_PERHAPS_NOT_JUDGED = int(EntryFlag.NOT_LAST_CHUNK | EntryFlag.MARKER)
_HAS_HIGHEST = int(EntryFlag.HAS_HIGHEST)
MOST_ABSENT_BYTES: Final = 32 << 20
"""Memory of the names of producers that have left: ten thousand of the longest names, as many as a snapshot keeps by
default, or 120,000 of usual length.
"""
_NAME_COPIES: Final = 3
_NAME_BYTES: Final = 200
_WIDEST_BYTES: Final = 4
"""Memory of each character of a name with characters beyond ASCII, at most."""


def _is_judged(flags: int) -> bool:
    """Whether the entry is neither a marker nor a chunk before the last (CommandSend and metadata mark chunks)."""
    chunk = EntryFlag.CHUNK | EntryFlag.NOT_LAST_CHUNK
    return not flags & EntryFlag.MARKER and flags & chunk != chunk


class Verdict(enum.Enum):
    """The verdict about a SEND."""

    NEW = "new"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


class SequenceTable:
    """Highest sequence ids pushed and persisted, by producer name. Pure.

    room: that of the names of absent producers of the topic; None: the table has all room.
    """

    def __init__(self, room: NamesRoom | None = None) -> None:
        self.pushed: dict[str, int] = {}
        self.persisted: dict[str, int] = {}
        self.inactive_since_s: dict[str, float] = {}
        """Producers that have left, in the order in which they left."""
        self._room = room or NamesRoom()
        self.forgotten = 0
        """Producers that were forgotten before their time for lack of room, perhaps with entries under way."""

    def close(self) -> None:
        """Give up the room: the topic is closed, or its deduplication is turned off."""
        self._room.count(-self._room.used)
        self._room = NamesRoom()

    def judge(self, name: str, run: EntryRun) -> Iterator[tuple[int, int, Verdict]]:
        """Split a run into consecutive parts of one verdict; NEW parts are recorded as pushed."""
        pushed = self.pushed.get(name)
        if (
            run.ascending
            and not run.any_flags & _PERHAPS_NOT_JUDGED
            and (pushed is None or run.sequence(0) > pushed)
            and _no_overlap(run)
        ):
            self.pushed[name] = run.high(run.count - 1)
            yield 0, run.count, Verdict.NEW
            return
        flags = run.flag_view()
        start, current = 0, self._judge_one(name, run, 0, flags[0])
        for i in range(1, run.count):
            verdict = self._judge_one(name, run, i, flags[i])
            if verdict is not current:
                yield start, i, current
                start, current = i, verdict
        yield start, run.count, current

    def _judge_one(self, name: str, run: EntryRun, i: int, flags: int) -> Verdict:
        if not _is_judged(flags):
            return Verdict.NEW
        sequence, pushed = run.sequence(i), self.pushed.get(name)
        if pushed is None or sequence > pushed:
            self.pushed[name] = run.high(i)
            return Verdict.NEW
        persisted = self.persisted.get(name)
        return Verdict.DUPLICATE if persisted is not None and sequence <= persisted else Verdict.UNKNOWN

    def stored(self, name: str, run: EntryRun, count: int) -> None:
        """Record that the first `count` entries of the run are on the disk, unless the producer was forgotten. Entries
        that were under way when deduplication was turned on count as pushed, too.
        """
        if self.forgotten and name not in self.pushed:
            return
        if run.any_flags & _PERHAPS_NOT_JUDGED:
            flags = run.flag_view()
            highs = [run.high(i) for i in range(count) if _is_judged(flags[i])]
            if not highs:
                return
            high = max(highs)
        else:
            high = run.high(count - 1)
        if name not in self.persisted or high > self.persisted[name]:
            self.persisted[name] = high
        if name not in self.pushed or high > self.pushed[name]:
            self.pushed[name] = high

    def replayed(self, name: str, high: int) -> None:
        """Record an entry that recovery found behind the snapshot; of several entries of a producer the last counts."""
        self.pushed[name] = self.persisted[name] = high

    def admits(self, name: str) -> bool:
        """Whether a producer of this name may join: the table knows the name, or has room for it when it leaves."""
        return self._room.has_more() or name in self.pushed or name in self.inactive_since_s

    def reset_pushed(self) -> None:
        """Set `pushed` back to `persisted` after a failed append: clients send again the entries that were not stored.

        Precondition: no append is under way.
        """
        self.pushed = dict(self.persisted)

    def last_sequence_id(self, name: str) -> int:
        return self.pushed.get(name, -1)

    def joined(self, name: str) -> None:
        """Record that a producer is present."""
        if self.inactive_since_s.pop(name, None) is not None:
            self._room.count(-_cost(name))

    def left(self, name: str, now_s: float) -> None:
        """Record that a producer is absent since `now_s`. Beyond MOST_ABSENT_BYTES forget the producers that are absent
        for longest.
        """
        self.joined(name)
        self.inactive_since_s[name] = now_s
        self._room.count(_cost(name))
        while self._room.used > MOST_ABSENT_BYTES:
            self._forget_oldest()

    def found(self, name: str, high: int, now_s: float) -> None:
        """Record an absent producer at the load of the topic. No producer can be refused any more, so without room
        forget those whose last entries are the oldest.
        """
        self.replayed(name, high)
        self.left(name, now_s)
        while not self._room.has_more():
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self.forgotten += 1
        self._forget(next(iter(self.inactive_since_s)))

    def purge_inactive(self, before_s: float) -> int:
        """Forget producers that left before `before_s`; return the number of these producers."""
        gone = [name for name, since in self.inactive_since_s.items() if since < before_s]
        for name in gone:
            self._forget(name)
        return len(gone)

    def _forget(self, name: str) -> None:
        self.joined(name)
        self.pushed.pop(name, None)
        self.persisted.pop(name, None)

    def snapshot(self, max_producers: int) -> dict[str, int]:
        """The snapshot to save: persisted ids, of at most `max_producers` names."""
        names = list(self.persisted)[:max_producers] if max_producers > 0 else list(self.persisted)
        return {name: self.persisted[name] for name in names}


def _cost(name: str) -> int:
    """The approximate memory of a name: in the table, in the last snapshot, in its record."""
    return _NAME_BYTES + _NAME_COPIES * len(name) * (1 if name.isascii() else _WIDEST_BYTES)


def _no_overlap(run: EntryRun) -> bool:
    """Whether each entry begins above the end of the previous entry: without ranges of sequence ids an ascending run
    does from 0 on; below 0 an entry ends at NO_HIGHEST.
    """
    if not run.any_flags & _HAS_HIGHEST and (run.count == 1 or run.sequence(0) >= 0):
        return True
    return all(run.sequence(i) > run.high(i - 1) for i in range(1, run.count))
