"""The history of the simulated clients: their messages, receipts, deliveries and acknowledgements.

Clients write the history while they act, and the checker reads it; it survives crashes of the broker. No part of it
comes from the state of the broker, except where an administrator's command moved a cursor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.storage.position import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.position import Position


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass(eq=False)
class Sent:
    """One entry of a producer."""

    producer: str
    sequence_id: int
    count: int
    """num_messages: 0 is legal."""
    body: bytes
    sent_s: float
    deliver_at_ms: int = 0
    position: Position | None = None
    """The position in the receipt; None without a receipt."""
    key: str = ""
    newest: bytes = b""
    """The payload of the last message."""
    copies: int = 0
    """How often it was sent."""


@dataclass(eq=False)
class SubscriptionHistory:
    """A durable subscription since it was created."""

    name: str
    since_s: float = float("inf")
    """When the broker confirmed the subscription: it must deliver entries sent later."""
    begins_at_start: bool = False
    """Whether it was created at the earliest position of a topic that drops nothing: it must deliver every entry."""
    acked: set[Position] = field(default_factory=set)
    """Positions for which a consumer has sent an individual acknowledgement, answered or not."""
    acked_up_to: Position = (-1, -1)
    """The highest position of a cumulative acknowledgement, or of an administrator's move of the cursor."""
    sure: dict[Position, float] = field(default_factory=dict)
    """Position -> when the broker answered its acknowledgement, which survives every crash from then on."""
    sure_up_to: list[tuple[Position, float]] = field(default_factory=list)
    """(position, time) of answered cumulative acknowledgements, ascending."""
    moves: int = 0
    """Commands under way that may move the cursor anywhere."""
    seeks: int = 0
    """How many seeks by time and resets to a time began."""
    moved: bool = False
    """Whether the outcome of such a command is unknown, and so is the state of earlier acknowledgements."""
    expiries: list[float] = field(default_factory=list)
    """For each request to expire messages the latest stamp (s) of a message that is old enough; inf: under way."""
    passed_s: float = -1.0
    """The latest stamp (s) of a message that a request or seek passed before the last seek: the log may have dropped the
    message meanwhile.
    """
    evicted: set[Position] = field(default_factory=set)
    """Positions that a backlog quota may have evicted."""
    epoch: int = 0
    """How often its deletion was requested or ended; the answer to a SUBSCRIBE of an earlier epoch has no meaning."""

    requested: int = 0
    """SUBSCRIBE commands that consumers sent."""

    def may_be_acked(self, position: Position) -> bool:
        return position <= self.acked_up_to or position in self.acked

    absent: bool = True
    """The next SUBSCRIBE creates it."""

    @property
    def state(self) -> tuple[int, int, int]:
        """Of an ACK whose answer comes in another state no effect is certain: a seek may have come behind the ACK."""
        return self.moves, self.seeks, self.epoch

    @property
    def exists(self) -> bool:
        return self.since_s < float("inf")

    def deleted(self, *, surely: bool) -> None:
        """The subscription is unknown until the answer to a SUBSCRIBE; ``surely``: that SUBSCRIBE creates it."""
        self.epoch += 1
        self.absent = surely
        self.since_s, self.begins_at_start, self.moved = float("inf"), False, False
        self.acked.clear()
        self.evicted.clear()
        self.sure.clear()
        self.sure_up_to.clear()
        self.acked_up_to = (-1, -1)

    def was_surely_acked(self, position: Position, at_s: float) -> bool:
        """Whether its acknowledgement was answered before that time."""
        if self.moved or self.moves:
            return False
        return self.sure.get(position, at_s) < at_s or any(
            position <= up_to and since_s < at_s for up_to, since_s in self.sure_up_to
        )

    def may_be_expired(self, earliest_stamp_s: float) -> bool:
        """Whether a message with this stamp or a later stamp was old enough for any of the requests."""
        return any(earliest_stamp_s <= latest_s for latest_s in self.expiries)

    def owes(self, entry: Sent) -> bool:
        """Whether it may not lose this entry before it is acknowledged."""
        return self.exists and (self.begins_at_start or entry.sent_s >= self.since_s)


@dataclass(eq=False)
class TopicHistory:
    """One topic."""

    name: str
    keeps_all: bool
    deduplicates: bool
    by_body: dict[bytes, Sent] = field(default_factory=dict)
    by_sequence: dict[tuple[str, int], Sent] = field(default_factory=dict)
    """The same entries by producer and sequence id."""
    receipts: dict[Position, Sent] = field(default_factory=dict)
    seen: dict[Position, bytes] = field(default_factory=dict)
    """The payload that consumers got at a position."""
    index: dict[Position, int] = field(default_factory=dict)
    """Broker index seen at a position."""
    subscriptions: dict[str, SubscriptionHistory] = field(default_factory=dict)
    keeps_s: float = 0.0
    """The topic keeps an entry for so many seconds, acknowledged or not."""
    cancelled: set[Position] = field(default_factory=set)
    """Positions whose delivery an administrator may have cancelled."""
    former: dict[Position, Sent] = field(default_factory=dict)
    """Receipts from before a deletion of the topic, whatever its outcome."""
    gone: set[Position] = field(default_factory=set)
    """The part of ``former`` whose deletions were answered."""
    until_s: float = -1.0
    """Receipts that the broker wrote until then are among these; inf while a deletion is under way."""

    def may_go(self) -> None:
        """A deletion of the topic begins, or ends: the earlier entries may be gone with all subscriptions."""
        self.former |= self.receipts
        self.receipts.clear()
        self.index.clear()

    def unstamped_up_to(self, is_old: Callable[[Sent], bool]) -> Position:
        """The last position that an old entry with the stamp of its producer may have: the broker stamps no entry whose
        SEND names no messages, and an entry that is sent again keeps its stamp. A search for old entries by bisection
        takes the younger entries in front along.
        """
        old = [entry for entry in self.by_body.values() if not entry.count and is_old(entry)]
        if any(entry.position is None for entry in old):
            return LATEST
        return max((entry.position for entry in old if entry.position is not None), default=EARLIEST)

    def sends(self, entry: Sent) -> None:
        self.by_body[entry.body] = entry
        self.by_sequence[entry.producer, entry.sequence_id] = entry

    def receipted(self, entry: Sent, position: Position, written_s: float) -> None:
        known = self.receipts.get(position)
        if known is not None and known is not entry:
            raise ViolationError(f"{self.name} {position}: receipts of {known.body!r} and of {entry.body!r}")
        if entry.position not in (None, position) and self.deduplicates:
            raise ViolationError(f"{self.name}: {entry.body!r} has receipts at {entry.position} and {position}")
        self._same(position, entry.body)
        entry.position = position
        (self.receipts if written_s > self.until_s else self.former)[position] = entry

    def got(self, position: Position, body: bytes, index: int | None) -> Sent:
        """A consumer received this; the entry as it was sent."""
        entry = self.by_body.get(body)
        if entry is None:
            raise ViolationError(f"{self.name} {position}: {body!r} was never sent")
        self._same(position, body)
        if index is not None and self.index.setdefault(position, index) != index:
            raise ViolationError(f"{self.name} {position}: index {index}, before {self.index[position]}")
        return entry

    def got_part(self, position: Position, producer: str, sequence_id: int, newest: bytes) -> Sent:
        """A consumer received the rest of an entry behind a compaction; the entry as it was sent."""
        entry = self.by_sequence.get((producer, sequence_id))
        if entry is None or entry.newest != newest:
            raise ViolationError(f"{self.name} {position}: {newest!r} of {producer} {sequence_id} was never sent")
        self._same(position, entry.body)
        return entry

    def _same(self, position: Position, body: bytes) -> None:
        known = self.receipts[position].body if position in self.receipts else self.seen.get(position, body)
        if known != body:
            raise ViolationError(f"{self.name} {position}: {body!r}, before {known!r}")
        self.seen[position] = body


class History:
    """Everything, and a digest by which two runs of one seed are compared."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicHistory] = {}
        self.lines: list[str] = []
        self.counts: dict[str, int] = {}

    def note(self, now_s: float, what: str) -> None:
        self.lines.append(f"{now_s:10.4f} {what}")
        kind = what.split(" ", 1)[0]
        self.counts[kind] = self.counts.get(kind, 0) + 1
