"""The outcomes of an attempt to convert an entry."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.foreign_entries.failures import Failed
from magnetar.broker.foreign_entries.flights import Flight
from magnetar.broker.foreign_entries.frames import Declined
from magnetar.converters.outcome import Converted


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The converter's breaker is open; ask again in `wait_ms`."""

    wait_ms: int


Outcome = Converted | Declined | Failed | Unavailable | Flight
