"""Conversions in worker processes ("flights"); subscriptions that need the same entry share a flight.

A finished flight whose result no cache keeps (identities, declined entries, results too large for the cache) stays for
KEPT_S seconds. Otherwise a subscription that comes back for the result would start the conversion again, and a slow
conversion would never reach it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from magnetar.broker.foreign_entries.frames import Answer

Key = tuple[int, int, str]
"""Ledger id, entry id, tag of the converter."""
KEPT_S: Final = 10.0


class Flight:
    """One conversion; `answer` is None until the conversion ends."""

    __slots__ = ("answer", "future", "started_s")

    def __init__(self, future: asyncio.Future[Answer], started_s: float) -> None:
        self.future = future
        self.started_s = started_s
        self.answer: Answer | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the answer is pending. A cancelled flight (the broker stops) never gets an answer."""
        return self.answer is None and not self.future.cancelled()


class Flights:
    """All flights of one broker."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._flights: dict[Key, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def get(self, key: Key) -> Flight | None:
        return self._flights.get(key)

    def launch(self, key: Key, future: asyncio.Future[Answer], landed: Callable[[Answer, float], bool]) -> Flight:
        """Start a flight. `landed(answer, seconds)` records the result and returns whether it is kept elsewhere."""
        flight = self._flights[key] = Flight(future, self._clock())

        def done(_: asyncio.Future[Answer]) -> None:
            if future.cancelled():
                self._forget(key, flight)
                return
            flight.answer = future.result()
            if landed(flight.answer, self._clock() - flight.started_s):
                self._forget(key, flight)
            else:
                future.get_loop().call_later(KEPT_S, self._forget, key, flight)

        future.add_done_callback(done)
        return flight

    def _forget(self, key: Key, flight: Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
