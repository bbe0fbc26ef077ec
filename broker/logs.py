"""Logs of the process: events with their values on standard error, INFO and above; nothing is logged per message."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import structlog

from magnetar.broker.log_bounds import bounded, bounded_traceback
from magnetar.terminal import shows_colours

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

WINDOW_S: Final = 10.0
MOST_IN_WINDOW: Final = 5
MOST_OF_PEERS: Final = 50
_OF_PEERS: Final = frozenset(
    {"connection.refused", "connection.lost", "request.refused", "tls.refused", "websocket.refused", "http.server"}
)
"""Events that a peer without a role can cause at will: repeated lines count as equal whatever their values, for example
the peer's port.
"""
_MOST_LINES: Final = 1000
_PLAIN: Final = (str, int, float, bool, type(None))


def configure_logs(level: int = logging.INFO) -> None:
    """Configure the log: readable lines on a terminal, logfmt when standard error is a file or a pipe."""
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(colors=shows_colours(sys.stderr))
        if sys.stderr.isatty()
        else structlog.processors.LogfmtRenderer(key_order=_FIRST)
    )
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        bounded,
        Repeats(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        bounded_traceback,
    ]
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _NeverFails(sys.stderr))),
        cache_logger_on_first_use=True,
    )


class _NeverFails:
    """Writes to standard error and drops lines that it cannot write, so that a full disk under the log stops
    nothing.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


_FIRST = ("timestamp", "level", "event")


@dataclass(slots=True)
class _Seen:
    since_s: float
    count: int = 0
    left_out: int = 0


class Repeats:
    """Suppresses repeated lines: on a full disk the broker refuses every reconnecting producer for the same reason
    several times a second.

    A structlog processor: the same event with the same values passes five times in ten seconds, an event of peers fifty
    times with any values. The first line that passes after suppressed lines has their number as `left_out`. The
    processor must precede the processor that adds the time.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lines: dict[tuple[object, ...], _Seen] = {}

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Raises: structlog.DropEvent, which makes structlog leave the event out."""
        now_s = self._now_s()
        key: tuple[object, ...]
        most = MOST_IN_WINDOW
        if event.get("event") in _OF_PEERS:
            most, key = MOST_OF_PEERS, (event["event"],)
        else:
            key = tuple((name, value) for name, value in event.items() if isinstance(value, _PLAIN))
        seen = self._lines.get(key)
        if seen is None:
            seen = self._new(key, now_s)
        if now_s - seen.since_s >= WINDOW_S:
            if seen.left_out:
                event["left_out"] = seen.left_out
            self._lines[key] = seen = _Seen(now_s)
        seen.count += 1
        if seen.count > most:
            seen.left_out += 1
            raise structlog.DropEvent
        return event

    def _new(self, key: tuple[object, ...], now_s: float) -> _Seen:
        if len(self._lines) >= _MOST_LINES:  # most of these lines do not repeat
            self._lines = {each: seen for each, seen in self._lines.items() if now_s - seen.since_s < WINDOW_S}
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        seen = self._lines[key] = _Seen(now_s)
        return seen


class _OfLibrary(logging.Handler):
    """Turns lines of a library into lines of the broker's log, bounded as all are."""

    def __init__(self, event: str) -> None:
        super().__init__(logging.WARNING)
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write(self._event, text=record.getMessage(), **({"exc_info": record.exc_info} if record.exc_info else {}))


def adopt_library(name: str, event: str) -> None:
    """Write warnings and errors of a library's logger to the broker's log, as this event. Safe to call twice."""
    theirs = logging.getLogger(name)
    if not any(isinstance(handler, _OfLibrary) for handler in theirs.handlers):
        theirs.addHandler(_OfLibrary(event))
        theirs.propagate = False
