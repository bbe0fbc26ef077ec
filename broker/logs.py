"""Logs of the process: events with their values on standard error, INFO and above; nothing is logged per message."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog

from magnetar.broker.log_bounds import bounded, bounded_traceback
from magnetar.broker.log_repeats import Repeats


def configure_logs(level: int = logging.INFO) -> None:
    """Lines a person can read on a terminal, logfmt when standard error is a file or a pipe."""
    terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.LogfmtRenderer(key_order=_FIRST)
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
    """Standard error that loses lines it cannot write: a full disk under the log changes nothing else."""

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
