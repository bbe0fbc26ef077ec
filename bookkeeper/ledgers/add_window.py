"""Which entries have their ack quorum: the decider of the writer. Pure.

Acknowledgements are kept by replica (a bookie over one connection, at one place of the ensemble), never by place alone:
a bookie that takes a place begins without acknowledgements; those of its predecessor do not count. A replica
acknowledges in the order of entries, nearly always, so it is one number and a rarely used set.

A replica is *trusted* once the ledger's metadata were confirmed after one of its acknowledgements (``confirmation``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.bookkeeper.ledgers.quorum import holds, write_set

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AddWindow", "ReplicaAcks"]


class ReplicaAcks:
    """The entries that a bookie has acknowledged over one connection, above its first entry."""

    __slots__ = ("ahead", "delivered", "place", "through", "trusted")

    def __init__(self, place: int, begin: int) -> None:
        self.place = place
        self.through = begin
        """Every entry of this place from ``begin + 1`` to ``through`` is acknowledged."""
        self.ahead: set[int] = set()
        """Acknowledged out of order."""
        self.delivered = False
        """Whether at least one acknowledgement of this ledger arrived over this connection."""
        self.trusted = False

    def has(self, entry_id: int) -> bool:
        return entry_id <= self.through or entry_id in self.ahead


class AddWindow:
    """Entries ``confirmed + 1 .. pushed`` of one ledger wait for their quorum."""

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        self.ensemble_size, self.write_quorum, self.ack_quorum = ensemble_size, write_quorum, ack_quorum
        self.confirmed = -1
        """Last add confirmed: it and all before it have their quorum and were resolved in order."""
        self.pushed = -1
        self.replicas: list[ReplicaAcks | None] = [None] * ensemble_size
        self._striped = ensemble_size > write_quorum

    def join(self, place: int) -> ReplicaAcks:
        """A new replica at this place. It counts no unconfirmed entry, even if its bookie has them."""
        replica = self.replicas[place] = ReplicaAcks(place, self.confirmed)
        return replica

    def leave(self, place: int) -> None:
        self.replicas[place] = None

    def added(self, replica: ReplicaAcks, first: int, last: int) -> None:
        """The replica acknowledges ``first .. last``. Entries that it was not sent do not count."""
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
        """The last entry that has, with all before it, its quorum."""
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
        """The next entry of the replica's place."""
        entry_id += 1
        while not holds(replica.place, entry_id, self.ensemble_size, self.write_quorum):
            entry_id += 1
        return entry_id

    def _has_quorum(self, entry_id: int, replicas: Sequence[ReplicaAcks]) -> bool:
        places = write_set(entry_id, self.ensemble_size, self.write_quorum)
        return sum(r.place in places and r.has(entry_id) for r in replicas) >= self.ack_quorum
