"""Back-pressure on publishers: decides which connections keep reading from their sockets.

There are two limits (Pulsar's maxPendingPublishRequestsPerConnection and maxMessagePublishBufferSizeInMB): the entries
of a connection without receipts, and the bytes of all connections that are not on disk yet. Reading pauses when the
bytes reach their limit, and with the first run that arrives while the entries are at their limit. If reading paused
when the entries reach the limit, a client whose window equals the limit (1000 is the usual value of both) would cause a
pause for each window, and each pause costs two system calls. Reading resumes at half of a limit, so that a connection
near the limit does not pause with every entry.
"""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.network.gone import GONE


class Pausable(Protocol):
    """The part of a connection that the gate needs."""

    def hold_reading(self, reason: str) -> None: ...

    def release_reading(self, reason: str) -> None: ...


class PublishBudget:
    """Bytes of publishes in flight in the whole broker."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.in_flight_bytes = 0
        self.held: dict[PublishGate, None] = {}
        """Connections that wait for room, in the order in which they resume reading."""

    def hold(self, gate: PublishGate) -> None:
        """Pause the reading of this connection, because the limit of bytes is reached."""
        if gate not in self.held:
            self.held[gate] = None
            gate.owner.hold_reading("publish-bytes")

    def release(self) -> None:
        """Resume the waiting connections once half of the limit is free."""
        if self.in_flight_bytes <= self.max_bytes // 2:
            held, self.held = self.held, {}
            for gate in held:
                gate.owner.release_reading("publish-bytes")

    def forget(self, gate: PublishGate) -> None:
        self.held.pop(gate, None)


class PublishGate:
    """Publishes in flight of one connection."""

    def __init__(self, owner: Pausable, budget: PublishBudget, max_entries: int) -> None:
        self.owner: Pausable = owner
        self.pending_entries = 0
        self._budget = budget
        self._max_entries = max_entries
        self._holding = False

    def started(self, entries: int, size: int) -> None:
        most, pending = self._max_entries, self.pending_entries
        self.pending_entries = pending + entries
        budget = self._budget
        budget.in_flight_bytes += size
        if 0 < budget.max_bytes <= budget.in_flight_bytes:
            budget.hold(self)
        if 0 < most <= pending and not self._holding:
            self._holding = True
            self.owner.hold_reading("publish-entries")

    def finished(self, entries: int, size: int) -> None:
        self.pending_entries -= entries
        budget = self._budget
        budget.in_flight_bytes -= size
        if budget.held:
            budget.release()
        if self._holding and self.pending_entries <= self._max_entries // 2:
            self._holding = False
            self.owner.release_reading("publish-entries")

    def close(self) -> None:
        """End the connection's part; receipts may still follow."""
        self._budget.forget(self)
        self.owner = GONE
