"""The entries of a consumer session that wait for their redelivery: after a negative acknowledgement, for an
acknowledgement that may come too late, and after a failed publication to the dead letter topic.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from magnetar.broker.websocket.outstanding import Redeliveries

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.websocket.outstanding import Place

FAILURE_PAUSE_S: Final = 1.0
"""The pause before the redelivery of an entry that the session could not publish to the dead letter topic."""
_DUE_IN_A_TURN: Final = 4096
"""Entries of each kind that a session has redelivered in one turn."""


def _drop(_places: list[Place], _late: list[Place]) -> None:
    """Take the place of the session's function when the session is closed."""


class DueEntries:
    """See the module. The delays are in seconds; `timeout_s` 0: entries have no timeout.

    on_due: called with the entries whose delay is over, and with those that were not acknowledged in time.
    """

    def __init__(self, nack_s: float, timeout_s: float, on_due: Callable[[list[Place], list[Place]], None]) -> None:
        self.nacks = Redeliveries(nack_s)
        self.timeouts = Redeliveries(timeout_s)
        self._failures = Redeliveries(FAILURE_PAUSE_S)
        self._queues = self.nacks, self.timeouts, self._failures
        self._has_timeouts = timeout_s > 0
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_s = 0.0
        """The time of the timer; uvloop returns a handle without a time for an entry that is due at once."""
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def given(self, place: Place) -> None:
        """The client has a message of the entry: its timeout starts again."""
        if self._has_timeouts:
            self.timeouts.restart(place, self._loop.time())
            self._arm()

    def negative(self, place: Place) -> None:
        """The client acknowledged negatively: the entry has no timeout until it is delivered again."""
        self.timeouts.discard(place)
        self.nacks.add(place, self._loop.time())
        self._arm()

    def failed(self, place: Place) -> None:
        """The entry could not be published to the dead letter topic."""
        self._failures.add(place, self._loop.time())
        self._arm()

    def discard(self, place: Place) -> None:
        """Remove an acknowledged entry."""
        for queue in self._queues:
            queue.discard(place)

    def forget(self, part: int) -> None:
        """Remove the entries of a part, which the broker redelivers by itself or never."""
        for queue in self._queues:
            queue.forget(part)

    def close(self) -> None:
        """Call `on_due` no more."""
        self._closed = True
        self._on_due = _drop
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        """Set the timer to the time when the next entry is due."""
        times = [at_s for queue in self._queues if (at_s := queue.next_s) is not None]
        if not times or self._closed:
            return
        if self._timer is not None:
            if self._rings_s <= min(times):
                return
            self._timer.cancel()
        self._rings_s = min(times)
        self._timer = self._loop.call_at(self._rings_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        over = [*islice(self._failures.take(now_s), _DUE_IN_A_TURN), *islice(self.nacks.take(now_s), _DUE_IN_A_TURN)]
        late = list(islice(self.timeouts.take(now_s), _DUE_IN_A_TURN))
        if over or late:  # the entry of the timer may have gone meanwhile
            self._on_due(over, late)
        self._arm()
