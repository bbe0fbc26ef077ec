"""One place of the ensemble, as the writer sees it: the bookie, the connection, the sent entries and their times."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.bookkeeper.bookies.connection import BookieConnection
    from magnetar.bookkeeper.ledgers.add_window import ReplicaAcks

__all__ = ["Replica"]


class Replica:
    """A replica is down (has no connection) until ``join``, and again after ``leave``."""

    __slots__ = ("acks", "bookie_id", "connection", "place", "reconnects", "retry_s", "sent", "sent_at")

    def __init__(self, place: int, bookie_id: str) -> None:
        self.place, self.bookie_id = place, bookie_id
        self.connection: BookieConnection | None = None
        self.acks: ReplicaAcks | None = None
        self.sent = -1
        """The connection has got the entries of this place up to this entry id of the ledger."""
        self.sent_at: deque[tuple[int, float]] = deque()
        """(last entry, time) of each write that may be unanswered."""
        self.reconnects = True
        """Whether the mender may reconnect to the same bookie at once: only the connection was lost, the bookie refused
        no add.
        """
        self.retry_s = 0.0
        """After a refusal, the loop time before which the mender does not reconnect to the same bookie."""

    def join(self, connection: BookieConnection, acks: ReplicaAcks) -> None:
        self.connection, self.acks = connection, acks
        self.sent = acks.through
        self.sent_at.clear()

    def leave(self) -> None:
        self.connection = self.acks = None
        self.sent_at.clear()

    def note_sent(self, last: int, last_of_place: int, now_s: float) -> None:
        """Note that the connection got all entries up to `last`; `last_of_place` is the last of them at this place."""
        self.sent = last
        self.sent_at.append((last_of_place, now_s))

    def waiting_since(self) -> float | None:
        """Return the time of the oldest unanswered write; None when the bookie has answered all writes."""
        through = self.acks.through if self.acks is not None else -1
        while self.sent_at and self.sent_at[0][0] <= through:
            self.sent_at.popleft()
        return self.sent_at[0][1] if self.sent_at else None
