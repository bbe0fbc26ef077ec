"""Rates over the last full period, from counters that cost one addition per burst.

Apache Pulsar refreshes rates once a period (statsUpdateFrequencyInSecs); `roll` is that refresh. Until the next refresh
the rates are those of the last full period.
"""

from __future__ import annotations

from typing import NamedTuple


class Rate(NamedTuple):
    """The rates of a period, per second."""

    messages_per_second: float
    bytes_per_second: float
    average_size: float


ZERO_RATE = Rate(0.0, 0.0, 0.0)


class RateMeter:
    """Messages and bytes: totals since the start, and the messages and rates of the last period."""

    __slots__ = ("_last_bytes", "_last_messages", "_rate", "last_messages", "total_bytes", "total_messages")

    def __init__(self) -> None:
        self.total_messages = 0
        self.total_bytes = 0
        self.last_messages = 0
        self._last_messages = 0
        self._last_bytes = 0
        self._rate = ZERO_RATE

    def add(self, messages: int, size: int) -> None:
        self.total_messages += messages
        self.total_bytes += size

    def roll(self, seconds: float) -> None:
        """End a period of `seconds`."""
        messages, size = self.total_messages - self._last_messages, self.total_bytes - self._last_bytes
        self.last_messages = messages
        self._last_messages, self._last_bytes = self.total_messages, self.total_bytes
        if seconds <= 0 or not messages:
            self._rate = ZERO_RATE
        else:
            self._rate = Rate(messages / seconds, size / seconds, size / messages)

    def rates(self) -> Rate:
        return self._rate
