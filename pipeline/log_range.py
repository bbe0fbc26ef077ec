"""The stored log of a topic partition: its begin, its end and its ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.pipeline.offsets import Position
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.pipeline.offsets import Place

MADE_ANEW: Final = "the topic was deleted and created again; its present messages follow"


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """A ledger in a log; the last ledger may still grow."""

    ledger_id: int
    entries: int
    closed: bool


@dataclass(frozen=True, slots=True)
class LogRange:
    """The stored log of a topic partition at one moment.

    first_index, end_index: half-open range of the broker entry index; None when the entries have none.
    last: the last confirmed entry; its entry id is -1 before the first entry.
    ledgers: empty unless requested.
    first_ledger: the oldest ledger; None when the broker does not report it.
    open_from: the place of the first message that the broker withholds until an open transaction ends; None without
        such a transaction.
    """

    topic: str
    first_index: int | None
    end_index: int | None
    entries: int
    size_bytes: int
    last: Position
    ledgers: tuple[LedgerSpan, ...] = ()
    first_ledger: int | None = None
    open_from: Place | None = None

    @property
    def indexed(self) -> bool:
        """Whether places in this log are indexes."""
        return self.first_index is not None and self.end_index is not None

    @property
    def first(self) -> Place:
        """The first place that is stored."""
        if self.indexed:
            return self.first_index or 0
        stored = [ledger for ledger in self.ledgers if ledger.entries]
        return Position(stored[0].ledger_id, 0) if stored else self.end

    @property
    def end(self) -> Place:
        """The place behind the last confirmed message."""
        if self.indexed:
            return self.end_index or 0
        return Position(self.last.ledger_id, self.last.entry_id + 1)

    @property
    def readable_end(self) -> Place:
        """The place behind the last message that the broker sends now."""
        return self.end if self.open_from is None else self.open_from

    @property
    def partition(self) -> int:
        """Number of the partition; -1 for a topic that is no partition."""
        return TopicName.parse(self.topic).partition

    def is_another_than(self, place: Place, ledger_id: int | None) -> bool:
        """Whether a place was chosen in an earlier log of this name, which was deleted since.

        ledger_id: the newest ledger when the place was chosen, None when that is not known.
        """
        if not isinstance(place, int) or not self.indexed:
            return False
        assert isinstance(self.end, int)
        assert isinstance(self.first, int)
        if self.end < place:
            return True
        begun_later = ledger_id is not None and self.first_ledger is not None and ledger_id < self.first_ledger
        return begun_later and self.first < place

    def between(self, start: Place, end: Place) -> int:
        """How many messages (entries, if places are positions) are stored between two places."""
        if isinstance(start, int) and isinstance(end, int):
            return max(0, end - max(start, self.first_index or 0))
        return max(0, self.ordinal(end) - self.ordinal(start))

    def ordinal(self, place: Place) -> int:
        """How many stored entries lie before a position."""
        assert isinstance(place, Position), "indexes need no ordinals"
        before = 0
        for ledger in self.ledgers:
            if ledger.ledger_id > place.ledger_id:
                break
            same = ledger.ledger_id == place.ledger_id
            before += min(max(place.entry_id, 0), ledger.entries) if same else ledger.entries
        return before

    def position_at(self, ordinal: int) -> Position:
        """The stored entry that has this many stored entries before it; `end` when the log has no such entry."""
        for ledger in self.ledgers:
            if ordinal < ledger.entries:
                return Position(ledger.ledger_id, ordinal)
            ordinal -= ledger.entries
        return Position(self.last.ledger_id, self.last.entry_id + 1)

    def bytes_per(self) -> float:
        """Average stored bytes of one message (of one entry where there is no index); at least 1."""
        count = self.between(self.first, self.end)
        return max(1.0, self.size_bytes / count) if count else 1.0

    def entries_per(self) -> float:
        """Average number of entries that hold one message."""
        count = self.between(self.first, self.end)
        return self.entries / count if count else 1.0
