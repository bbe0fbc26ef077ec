"""The display of a running import, and the figures at its end."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TERMINAL_PERIOD_S = 0.2
_PLAIN_PERIOD_S = 5.0
_MIB = 1024 * 1024


@dataclass(slots=True)
class FileReport:
    """Figures of one file.

    entries, messages, bytes: stored by this run (a dry run: would be stored on an empty topic).
    entries_before: entries of an earlier run that this run sent again and the broker confirmed as stored.
    resumed_after: the sequence id behind which this run continued, -1 for a first run.
    aborted_messages: records of aborted transactions, left out.
    doubtful_transactions: number of transactions of the file's partition whose end marker may be lost in damage.
    waits_at: position of the first batch that waits for the end of an open transaction; None when no batch waits.
    kept_by: the subscription or retention policy that keeps the entries in the topic; None without protection.
    damage: skipped stretches, each with position, next position and reason.
    torn_at: position of the batch that the end of the file cuts; None when the last batch is complete.
    """

    file: str
    producer: str
    size: int
    sequence_ids: str
    resumed_after: int = -1
    entries: int = 0
    messages: int = 0
    bytes: int = 0
    entries_before: int = 0
    aborted_messages: int = 0
    doubtful_transactions: int = 0
    waits_at: int | None = None
    kept_by: str | None = None
    damage: list[dict[str, Any]] = field(default_factory=list)
    torn_at: int | None = None
    complete: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Progress:
    """Shows the progress: on a terminal, one line that is rewritten; elsewhere, a new line every five seconds; with
    `quiet`, only warnings and errors.
    """

    def __init__(self, out: TextIO, *, quiet: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._quiet = quiet
        self._now = now
        self._terminal = out.isatty()
        self._period = _TERMINAL_PERIOD_S if self._terminal else _PLAIN_PERIOD_S
        self._started = self._shown = now()
        self._line_open = False

    def say(self, text: str) -> None:
        """Write a line of its own, unless quiet."""
        if not self._quiet:
            self._end_line()
            self._out.write(f"{text}\n")
            self._out.flush()

    def complain(self, level: str, text: str) -> None:
        """Write a warning or an error, also when quiet."""
        self._end_line()
        self._out.write(f"magnetar: {level}: {text}\n")
        self._out.flush()

    def start(self) -> None:
        """Begin a file: its rate is measured from now on."""
        self._started = self._shown = self._now()

    def advance(self, report: FileReport, position: int) -> None:
        """Show how far the file is imported, at most once a period."""
        now = self._now()
        if self._quiet or now - self._shown < self._period:
            return
        self._shown = now
        percent = 100.0 * position / max(report.size, 1)
        rate = report.bytes / max(now - self._started, 1e-9) / _MIB
        self._show(
            f"{report.file}: {percent:.0f} % ({position} of {report.size} bytes), {report.messages} messages stored, "
            f"{rate:.1f} MiB/s"
        )

    def surveying(self, path: Path, position: int, size: int) -> None:
        """Show how far the file has been read for its transactions, at most once a period."""
        now = self._now()
        if not self._quiet and now - self._shown >= self._period:
            self._shown = now
            self._show(f"{path}: reading its transactions: {100.0 * position / max(size, 1):.0f} %")

    def reading(self, entries: int) -> None:
        """Show how many entries of the topic have been searched for earlier imports, at most once a period."""
        now = self._now()
        if not self._quiet and now - self._shown >= self._period:
            self._shown = now
            self._show(f"reading the topic for earlier imports: {entries} entries")

    def _show(self, text: str) -> None:
        if self._terminal:
            self._out.write(f"\r\x1b[K{text}")
            self._line_open = True
        else:
            self._out.write(f"{text}\n")
        self._out.flush()

    def _end_line(self) -> None:
        if self._line_open:
            self._out.write("\r\x1b[K")
            self._line_open = False
