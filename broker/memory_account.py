"""One account of the memory that peers make the broker hold, with shares per connection, per address and in total.

The account counts memory whose size a peer chooses and that stays longer than one turn of the event loop: the part of a
frame that has arrived, requests in progress, output that is not read, producers, consumers and topic watchers, HTTP
bodies and answers. Publishes on their way to the disk and the entry cache have budgets of their own
(`network.publish_gate`).

    limit                effect beyond it
    of a connection      the broker does not read its socket, so its next request waits
    of an address        the same for the connection that exceeded the limit
    of the broker        the same; connections continue in the order in which they began to wait

The last part of the broker's limit is for addresses that use little, and beyond the limit of an address its connections
that use little have a little more: so clients that fill a limit stop no client that needs a few KiB.

A caller sets the bytes per kind of memory, for example `set("frame", 70_000)`, so that a sum cannot drift. Callers use
the account once per socket read or request, never per message. Loop only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.broker.parsed_commands import ParsedCommands

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.parsed_commands import Place

__all__ = ["WAITING_COMMANDS", "MemoryAccount", "MemoryLimits", "MemoryShare"]

WAITING_COMMANDS = "rest"
"""The kind of memory of received commands that wait for a turn of their connection."""
_SMALL_CONNECTION, _SMALL_ADDRESS = 64, 4
"""A connection, or an address, uses little up to these parts of `for_small`."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits in bytes, for the broker, an address and a connection. `for_small`: the part of the total for addresses
    that use little.
    """

    total: int
    per_address: int
    per_connection: int
    for_small: int = 0

    @classmethod
    def of_total(cls, total: int, max_frame_bytes: int) -> MemoryLimits:
        """Return limits for this total: half for an address, an eighth for a connection, each at least two frames. An
        eighth of the total is for addresses that use little.
        """
        return cls(total, max(total // 2, 2 * max_frame_bytes), max(total // 8, 2 * max_frame_bytes), total // 8)

    def are_exceeded(self, of_connection: int, of_address: int, of_all: int) -> bool:
        """Whether a connection has to wait with these bytes of its own, of its address and of the broker."""
        per_address, total = self.per_address, self.total
        if of_connection <= self.for_small // _SMALL_CONNECTION:
            per_address += self.for_small // 2
        if of_address > self.for_small // _SMALL_ADDRESS:
            total -= self.for_small
        return of_connection > self.per_connection or of_address > per_address or of_all > total


_LOOKS = 64
_OF_PARSED = 4
"""Large commands that are parsed may take a quarter of a limit; clients have the rest of the limit."""


class _Address:
    __slots__ = ("shares", "used")

    def __init__(self) -> None:
        self.used = 0
        self.shares = 0


class MemoryAccount:
    """Accounts the memory that the broker holds for all peers together."""

    def __init__(self, limits: MemoryLimits) -> None:
        self.limits = limits
        self.used_bytes = 0
        self.most_bytes = 0
        """The maximum of ``used_bytes`` since the start."""
        self.waits = 0
        """How often a connection had to wait, since the start."""
        self.refusals = 0
        """How many requests and connections were refused because waiting would not have helped."""
        self._parsed = ParsedCommands(limits.per_address // _OF_PARSED, limits.total // _OF_PARSED)
        self._addresses: dict[str, _Address] = {}
        self._waiting: deque[MemoryShare] = deque()

    @property
    def waiting(self) -> int:
        """Connections that wait for memory now."""
        return sum(1 for share in self._waiting if share.is_waiting)

    def share(self, address: str, on_room: Callable[[], None] | None = None) -> MemoryShare:
        """Return the share of a new connection. After `wait` the account calls `on_room` when the connection may
        continue.
        """
        found = self._addresses.get(address)
        if found is None:
            found = self._addresses[address] = _Address()
        found.shares += 1
        return MemoryShare(self, address, found, on_room)

    def _changed(self, delta: int) -> None:
        self.used_bytes += delta
        if delta > 0:
            self.most_bytes = max(self.most_bytes, self.used_bytes)
        elif self._waiting:
            self._wake()

    def _wake(self) -> None:
        """Let waiting connections continue that are within all limits, in the order in which they began to wait. A
        connection beyond the limit of itself or of its address does not delay the connections after it. Each call
        examines at most _LOOKS connections, so that it takes little time.
        """
        for _ in range(min(len(self._waiting), _LOOKS)):
            if self.used_bytes > self.limits.total:
                return
            share = self._waiting.popleft()
            if not share.is_waiting:
                continue
            if share.is_over:
                self._waiting.append(share)
            else:
                share._go_on()  # noqa: SLF001 - the other half of this class

    def _closed(self, address: str, entry: _Address) -> None:
        entry.shares -= 1
        if entry.shares == 0:
            self._addresses.pop(address, None)


class MemoryShare:
    """Accounts the memory that the broker holds for one connection."""

    __slots__ = ("_account", "_address", "_address_name", "_closed", "_on_room", "_parts", "is_waiting", "used")

    def __init__(
        self, account: MemoryAccount, address_name: str, address: _Address, on_room: Callable[[], None] | None
    ) -> None:
        self._account = account
        self._address = address
        self._address_name = address_name
        self._on_room = on_room
        self._parts: dict[str, int] = {}
        self._closed = False
        self.used = 0
        self.is_waiting = False

    def set(self, kind: str, size: int) -> None:
        """Set the bytes of this kind that the connection holds; without effect after `close`."""
        delta = size - self._parts.get(kind, 0)
        if delta == 0 or self._closed:
            return
        self._parts[kind] = size
        self.used += delta
        self._address.used += delta
        self._account._changed(delta)  # noqa: SLF001 - the other half of this class

    def add(self, kind: str, delta: int) -> None:
        """Add `delta` to the bytes of this kind, for kinds that consist of single objects."""
        self.set(kind, self._parts.get(kind, 0) + delta)

    @property
    def is_over(self) -> bool:
        """Whether the connection, its address or the whole broker holds more than its limit."""
        return self._account.limits.are_exceeded(self.used, self._address.used, self._account.used_bytes)

    @property
    def is_over_own(self) -> bool:
        """Whether the connection by itself holds more than its limit, commands that wait for a turn left out: their
        handling frees their memory.
        """
        return self.used - self._parts.get(WAITING_COMMANDS, 0) > self._account.limits.per_connection

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes stay within all limits."""
        account = self._account
        return not account.limits.are_exceeded(self.used + size, self._address.used + size, account.used_bytes + size)

    def wait(self) -> None:
        """Wait for memory: the account calls `on_room` once, when no limit is exceeded any more. Safe to call twice."""
        if not self.is_waiting and not self._closed:
            self.is_waiting = True
            self._account.waits += 1
            self._account._waiting.append(self)  # noqa: SLF001 - the other half of this class

    def place(self, size: int, on_taken: Callable[[], None]) -> Place:
        """Return a place for a large command that takes so many bytes when it is parsed; see `ParsedCommands.place`."""
        return self._account._parsed.place(self._address_name, size, on_taken)  # noqa: SLF001 - the other half

    def refused(self) -> None:
        """Count a request that the broker refuses for lack of memory."""
        self._account.refusals += 1

    def close(self) -> None:
        """Release all memory of the connection; safe to call twice."""
        if self._closed:
            return
        used, self.used, self._closed, self.is_waiting = self.used, 0, True, False
        self._parts.clear()
        self._on_room = None
        self._address.used -= used
        self._account._closed(self._address_name, self._address)  # noqa: SLF001 - the other half of this class
        self._account._changed(-used)  # noqa: SLF001 - the same

    def _go_on(self) -> None:
        self.is_waiting = False
        if self._on_room is not None:
            self._on_room()
