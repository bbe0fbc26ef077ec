"""Back-pressure on publishers: decides which connections keep reading from their sockets.

Two limits (Pulsar's maxPendingPublishRequestsPerConnection and maxMessagePublishBufferSizeInMB): entries of a
connection without receipts, and bytes of all connections together that are not yet on the disk. Reading pauses at the
limit of bytes, and with the first run that comes while the limit of entries is reached: a client whose window is that
limit (1000 is the usual value of both) would pause with each window else, at two system calls a time. Reading resumes
at half of a limit, so that a connection near the limit does not flip with every entry.
"""

from __future__ import annotations

from typing import Protocol


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
        """Connections that wait for room, in the order in which they go on."""

    def hold(self, gate: PublishGate) -> None:
        """The limit is reached, or was before: this connection waits."""
        if gate not in self.held:
            self.held[gate] = None
            gate.owner.hold_reading("publish-bytes")

    def release(self) -> None:
        """Connections go on once half of the limit is free."""
        if self.in_flight_bytes <= self.max_bytes // 2:
            held, self.held = self.held, {}
            for gate in held:
                gate.owner.release_reading("publish-bytes")

    def forget(self, gate: PublishGate) -> None:
        self.held.pop(gate, None)


class PublishGate:
    """Publishes in flight of one connection."""

    def __init__(self, owner: Pausable, budget: PublishBudget, max_entries: int) -> None:
        self.owner = owner
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
        self._budget.forget(self)
