"""The in-memory tracker: one heap per subscription, filled by its reads (Pulsar InMemoryDelayedDeliveryTracker).

Simple and exact; memory grows with the number of delayed entries each subscription has read, and after a restart
everything is read again. Selected by `delayedDeliveryTrackerFactoryClassName`; also the twin that the bucket tracker is
tested against.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from magnetar.delayed.delay_settings import LONGEST_WAIT_S, DelayPolicy, is_due
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from pyroaring import BitMap

    from magnetar.storage.interfaces import CallLater, Timer

_ENTRY_BYTES = 24
"""The bytes that Pulsar counts for an index entry: time, ledger, entry."""


class MemoryDelayView:
    """Delayed entries of one Shared or Key_Shared subscription."""

    def __init__(
        self,
        policy: DelayPolicy,
        now_ms: Callable[[], int],
        call_later: CallLater,
        wake: Callable[[], None],
        lookahead: int = 0,
    ) -> None:
        self._policy = policy
        self._lookahead = lookahead
        self._highest_ms = 0
        self._ascending = True
        self._now_ms = now_ms
        self._call_later = call_later
        self._wake = wake
        self._heap: list[tuple[int, Position]] = []
        self._timer: Timer | None = None
        self._armed_for_ms = 0

    # --- calls of dispatch (DelayView) ---------------------------------------------------------------------------

    def pending(self, _ledger_id: int) -> BitMap | None:
        """Return None: this tracker meets entries when cursors read them, so reads skip no entries."""
        return None

    def offer(self, ledger_id: int, entries: Sequence[tuple[int, int]]) -> Container[int]:
        """Hold back the entries that are not due, and return their ids; the others are to be delivered now."""
        now_ms, tick_ms, held = self._now_ms(), self._policy.tick_ms, set()
        for entry_id, deliver_at_ms in entries:
            if is_due(deliver_at_ms, now_ms, self._policy):
                continue
            if deliver_at_ms < self._highest_ms - tick_ms:
                self._ascending = False
            self._highest_ms = max(self._highest_ms, deliver_at_ms)
            heapq.heappush(self._heap, (deliver_at_ms, Position(ledger_id, entry_id)))
            held.add(entry_id)
        if held:
            self._arm()
        return held

    def holds_none(self, latest_ms: int, _ledger_id: int, _first: int, _last: int) -> bool:
        """Whether all of these entries are due."""
        return is_due(latest_ms, self._now_ms(), self._policy)

    def has_due(self) -> bool:
        return bool(self._heap) and is_due(self._heap[0][0], self._now_ms(), self._policy)

    def take_due(self, max_entries: int) -> list[Position]:
        """Return at most that many due entries, in the order of (time, position)."""
        out: list[Position] = []
        while len(out) < max_entries and self.has_due():
            out.append(heapq.heappop(self._heap)[1])
        if not self._heap:
            self._highest_ms, self._ascending = 0, True
        self._arm()
        return out

    may_repeat = False
    """The tracker meets an entry again only after the dispatcher has given it up."""

    @property
    def pauses_reading(self) -> bool:
        """Whether reading pauses. With a fixed delay later entries are due later than the held entries, so the
        subscription reads no further while it holds enough entries (delayedDeliveryFixedDelayDetectionLookahead). As in
        Pulsar, other messages behind it wait as well.
        """
        return self._ascending and 0 < self._lookahead <= len(self._heap) and not self.has_due()

    @property
    def pending_count(self) -> int:
        return len(self._heap)

    def clear(self) -> None:
        """Forget all entries: the cursor moves, and its reads meet the entries again."""
        self._heap.clear()
        self._highest_ms, self._ascending = 0, True
        self._disarm()

    # --- calls of the topic --------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        return len(self._heap) * _ENTRY_BYTES

    def set_policy(self, policy: DelayPolicy) -> None:
        """Follow changed policies; switched off, everything is due."""
        if policy != self._policy:
            self._policy = policy
            self.clock_moved()

    def clock_moved(self) -> None:
        """The wall clock or its meaning changed: fire due entries at once."""
        self._disarm()
        if self.has_due():
            self._wake()
        self._arm()

    def close(self) -> None:
        self.clear()

    # --- the timer -----------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer to the time when the earliest entry is due, at most once a tick."""
        if not self._heap:
            self._disarm()
            return
        due_ms = self._heap[0][0] if self._policy.active else 0
        if self._timer is not None and self._armed_for_ms <= due_ms:
            return
        self._disarm()
        self._armed_for_ms = due_ms
        wait_ms = due_ms - self._now_ms()
        if wait_ms <= 0:
            wait_ms = self._policy.tick_ms  # due, but no dispatcher has taken it: check again after a tick
        self._timer = self._call_later(min(wait_ms / 1000, LONGEST_WAIT_S), self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self.has_due():
            self._wake()
        else:
            self._arm()


class MemoryDelayIndex:
    """The in-memory trackers of one topic: a view for each subscription, nothing shared, nothing stored."""

    def __init__(
        self,
        policy: DelayPolicy,
        now_ms: Callable[[], int],
        call_later: CallLater,
        lookahead: int = 0,
    ) -> None:
        self._policy = policy
        self._now_ms = now_ms
        self._call_later = call_later
        self._lookahead = lookahead
        self._views: dict[str, MemoryDelayView] = {}

    def view(self, name: str, _cursor: object, wake: Callable[[], None]) -> MemoryDelayView:
        """The view of a subscription; `wake` is called when entries become due."""
        view = MemoryDelayView(self._policy, self._now_ms, self._call_later, wake, self._lookahead)
        self._views[name] = view
        return view

    def remove_view(self, name: str) -> None:
        view = self._views.pop(name, None)
        if view is not None:
            view.close()

    def published(self, _run: object, _pieces: object) -> None:
        """Entries were stored: this tracker takes them up when a cursor reads them."""

    def set_policy(self, policy: DelayPolicy) -> None:
        self._policy = policy
        for view in self._views.values():
            view.set_policy(policy)

    def clock_moved(self) -> None:
        """The wall clock jumped."""
        for view in self._views.values():
            view.clock_moved()

    @property
    def memory_bytes(self) -> int:
        return sum(view.memory_bytes for view in self._views.values())

    async def close(self) -> None:
        """Stop the timers; the tracker stores nothing."""
        for name in list(self._views):
            self.remove_view(name)

    async def delete(self) -> None:
        await self.close()
