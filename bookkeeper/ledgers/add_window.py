"""Determines for the writer which entries have their ack quorum. Pure.

The window keeps acknowledgements by replica (a bookie over one connection, at one place of the ensemble), never by
place alone: a new replica at a place begins without acknowledgements; those of the replica before it do not count. A
replica nearly always acknowledges in the order of entries, so its state is one number and a rarely used set.

A replica is *trusted* once the ledger's metadata were confirmed after one of its acknowledgements (``confirmation``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.bookkeeper.ledgers.quorum import holds, write_set

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AddWindow", "ReplicaAcks"]


class ReplicaAcks:
    """The entries after entry `begin` that a bookie has acknowledged over one connection."""

    __slots__ = ("ahead", "delivered", "place", "through", "trusted")

    def __init__(self, place: int, begin: int) -> None:
        self.place = place
        self.through = begin
        """Every entry of this place from ``begin + 1`` to ``through`` is acknowledged."""
        self.ahead: set[int] = set()
        """Entries above ``through`` that the bookie has acknowledged out of order."""
        self.delivered = False
        """Whether at least one acknowledgement of this ledger arrived over this connection."""
        self.trusted = False

    def has(self, entry_id: int) -> bool:
        return entry_id <= self.through or entry_id in self.ahead


class AddWindow:
    """The entries of one ledger that wait for their ack quorum: ``confirmed + 1 .. pushed``."""

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        self.ensemble_size, self.write_quorum, self.ack_quorum = ensemble_size, write_quorum, ack_quorum
        self.confirmed = -1
        """Last add confirmed: this entry and all entries before it have their quorum, and their adds are resolved."""
        self.pushed = -1
        self.replicas: list[ReplicaAcks | None] = [None] * ensemble_size
        self._striped = ensemble_size > write_quorum

    def join(self, place: int) -> ReplicaAcks:
        """Return a new replica for this place, without acknowledgements of unconfirmed entries, even if its bookie
        holds such entries.
        """
        replica = self.replicas[place] = ReplicaAcks(place, self.confirmed)
        return replica

    def leave(self, place: int) -> None:
        self.replicas[place] = None

    def added(self, replica: ReplicaAcks, first: int, last: int) -> None:
        """The replica acknowledges ``first .. last``. Entries not appended yet, or of other places, do not count."""
        replica.delivered = True
        last = min(last, self.pushed)
        if self._striped:
            for entry_id in range(first, last + 1):
                if holds(replica.place, entry_id, self.ensemble_size, self.write_quorum):
                    self._added_one(replica, entry_id)
        elif first <= replica.through + 1 and not replica.ahead:
            replica.through = max(replica.through, last)
        else:
            for entry_id in range(first, last + 1):
                self._added_one(replica, entry_id)

    def complete(self, *, trusted_only: bool) -> int:
        """Return the last entry that has its ack quorum together with all entries before it.

        trusted_only: count the acknowledgements of trusted replicas only.
        """
        replicas = [r for r in self.replicas if r is not None and (r.trusted or not trusted_only)]
        if len(replicas) < self.ack_quorum:
            return self.confirmed
        last = self.confirmed
        if not self._striped:
            last = max(last, sorted((r.through for r in replicas), reverse=True)[self.ack_quorum - 1])
            if not any(r.ahead for r in replicas):
                return last
        while last < self.pushed and self._has_quorum(last + 1, replicas):
            last += 1
        return last

    def _added_one(self, replica: ReplicaAcks, entry_id: int) -> None:
        if entry_id <= replica.through:
            return
        replica.ahead.add(entry_id)
        following = self._next_of(replica, replica.through)
        while following in replica.ahead:
            replica.ahead.discard(following)
            replica.through = following
            following = self._next_of(replica, following)

    def _next_of(self, replica: ReplicaAcks, entry_id: int) -> int:
        """Return the first entry after `entry_id` that goes to the replica's place."""
        entry_id += 1
        while not holds(replica.place, entry_id, self.ensemble_size, self.write_quorum):
            entry_id += 1
        return entry_id

    def _has_quorum(self, entry_id: int, replicas: Sequence[ReplicaAcks]) -> bool:
        places = write_set(entry_id, self.ensemble_size, self.write_quorum)
        return sum(r.place in places and r.has(entry_id) for r in replicas) >= self.ack_quorum
