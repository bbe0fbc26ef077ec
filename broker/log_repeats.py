"""Suppresses repeated log lines: on a full disk the broker refuses every reconnecting producer for the same reason
several times a second.
"""

import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

WINDOW_S: Final = 10.0
MOST_IN_WINDOW: Final = 5
_MOST_LINES: Final = 1000
_PLAIN: Final = (str, int, float, bool, type(None))


@dataclass(slots=True)
class _Seen:
    since_s: float
    count: int = 0
    left_out: int = 0


class Repeats:
    """A structlog processor: the same event with the same values passes five times in ten seconds. The first that
    passes after some were left out says how many, as `left_out`. It must come before the time is put in.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lines: dict[tuple[object, ...], _Seen] = {}

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Raises: structlog.DropEvent, which makes structlog leave the event out."""
        now_s = self._now_s()
        key = tuple((name, value) for name, value in event.items() if isinstance(value, _PLAIN))
        seen = self._lines.get(key)
        if seen is None:
            seen = self._new(key, now_s)
        if now_s - seen.since_s >= WINDOW_S:
            if seen.left_out:
                event["left_out"] = seen.left_out
            self._lines[key] = seen = _Seen(now_s)
        seen.count += 1
        if seen.count > MOST_IN_WINDOW:
            seen.left_out += 1
            raise structlog.DropEvent
        return event

    def _new(self, key: tuple[object, ...], now_s: float) -> _Seen:
        if len(self._lines) >= _MOST_LINES:  # lines that do not repeat, for the greatest part
            self._lines = {each: seen for each, seen in self._lines.items() if now_s - seen.since_s < WINDOW_S}
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        seen = self._lines[key] = _Seen(now_s)
        return seen
