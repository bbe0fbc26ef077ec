"""The messages that a consumer may still get: permits, unacked messages and the block between them. Arithmetic only.

Permits are counted in messages (CommandFlow.messagePermits) and may go negative: an entry is sent whole even if its
batch exceeds the remaining permits. A consumer of a Shared or Key_Shared subscription that holds ``max_unacked``
unacked messages is *blocked*: it gets nothing, and permits that arrive meanwhile are *parked*. It is released at half
of the limit.
"""

from __future__ import annotations

_MOST = (1 << 31) - 1
"""More permits than an int32 holds turn negative, as in Apache Pulsar."""
_TURN = 1 << 32


class Permits:
    """Permits and unacked messages of one consumer. ``max_unacked`` 0 means that unacked messages never block it."""

    __slots__ = ("available", "blocked", "max_unacked", "parked", "unacked")

    def __init__(self, max_unacked: int = 0) -> None:
        self.max_unacked = max_unacked
        self.available = 0
        self.parked = 0
        self.unacked = 0
        self.blocked = False

    @property
    def usable(self) -> int:
        """Messages that may be sent now; 0 or less when none."""
        return 0 if self.blocked else self.available

    @property
    def unacked_room(self) -> int:
        """Messages until the block, or a number beyond any permits when there is no limit."""
        return max(self.max_unacked - self.unacked, 0) if self.max_unacked > 0 else 1 << 62

    def flow(self, messages: int) -> bool:
        """Add the permits of a FLOW. Return whether the consumer can use them now."""
        if 0 < self.max_unacked <= self.unacked:
            self.blocked = True
        if self.blocked:
            self.parked += messages
            return False
        self.available += messages
        if self.available > _MOST:
            self.available -= _TURN
        return True

    def sent(self, messages: int, unacked: int) -> None:
        """Use ``messages`` permits and add ``unacked`` messages that the consumer has to acknowledge."""
        self.available -= messages
        self.unacked += unacked
        if 0 < self.max_unacked <= self.unacked:
            self.blocked = True

    def acked(self, messages: int) -> bool:
        """Remove acknowledged messages. Return whether this released the consumer, whose parked permits then count."""
        self.unacked = max(self.unacked - messages, 0)
        if self.blocked and self.unacked <= self.max_unacked // 2:
            self._release()
            return True
        return False

    def given_back(self, messages: int) -> None:
        """Remove messages that the client returned for redelivery; release the consumer when it is below the limit."""
        self.unacked = max(self.unacked - messages, 0)
        if not 0 < self.max_unacked <= self.unacked:
            self._release()

    def set_max_unacked(self, max_unacked: int) -> None:
        """Apply a changed limit: block a consumer at or above it, release a blocked consumer at or below half of it."""
        self.max_unacked = max_unacked
        if 0 < max_unacked <= self.unacked:
            self.blocked = True
        elif self.blocked and (max_unacked <= 0 or self.unacked <= max_unacked // 2):
            self._release()

    def _release(self) -> None:
        self.blocked = False
        self.available += self.parked
        self.parked = 0
        if self.available > _MOST:
            self.available -= _TURN


class UnackedLimit:
    """Unacked messages of all consumers of a subscription: dispatch stops at the limit and goes on below half of it, as
    in Apache Pulsar. Dispatch also goes on when no message is unacked; Apache Pulsar with a limit of 1 does not go on.
    """

    __slots__ = ("blocked", "limit", "total")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.total = 0
        self.blocked = False

    def add(self, messages: int) -> None:
        self.total += messages
        if 0 < self.limit <= self.total:
            self.blocked = True

    def remove(self, messages: int) -> bool:
        """Returns whether this released the subscription."""
        self.total = max(self.total - messages, 0)
        return self._check_release()

    def set_limit(self, limit: int) -> bool:
        """Apply a changed limit. Return whether this released the subscription."""
        self.limit = limit
        return self._check_release()

    def _check_release(self) -> bool:
        if self.blocked and (self.limit <= 0 or self.total < max(self.limit // 2, 1)):
            self.blocked = False
            return True
        return False
