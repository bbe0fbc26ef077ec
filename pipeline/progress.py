"""The display of a running job, for a person or a program.

bar    one line on a terminal, renewed:    export orders  [######------]  48 %  1.2 M messages  0.4 M/s  eta 0:12
plain  a line every few seconds where there is no terminal
json   one object per line:  {"job": "export", "done": 12, "of": 30, "messages": 1200000, "seconds": 3.1}
none   nothing
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

STYLES: Final = ("auto", "bar", "plain", "json", "none")
_BAR_PERIOD_S = 0.2
_LINE_PERIOD_S = 5.0
_BAR_WIDTH = 24


class Progress:
    """Progress of a job in a unit of work (weight) that the job chooses; not thread-safe.

    Args: style: one of STYLES; `auto` is a bar on a terminal, else plain lines.
    """

    def __init__(
        self, job: str, out: TextIO, *, style: str = "auto", now: Callable[[], float] = time.monotonic
    ) -> None:
        if style not in STYLES:
            raise ValueError(f"progress is {', '.join(STYLES)}, not {style!r}")
        self._style = ("bar" if out.isatty() else "plain") if style == "auto" else style
        self._job = job
        self._out = out
        self._now = now
        self._started = now()
        self._shown = self._started
        self._open = False
        self._done = 0.0
        self._of = 0.0
        self._messages = 0

    def begin(self, of: float) -> None:
        """Add work that is to be done."""
        self._of += of
        self._show(force=True)

    def advance(self, done: float, *, messages: int = 0) -> None:
        """Note finished work, with its number of messages."""
        self._done += done
        self._messages += messages
        self._show()

    def say(self, text: str) -> None:
        """Print a separate line; in the style json an object with `text`."""
        if self._style == "none":
            return
        self._end_line()
        line = json.dumps({"job": self._job, "text": text}) if self._style == "json" else text
        self._out.write(f"{line}\n")
        self._out.flush()

    def end(self) -> None:
        """Show the last state."""
        self._show(force=True)
        self._end_line()

    def _show(self, *, force: bool = False) -> None:
        now = self._now()
        period = _BAR_PERIOD_S if self._style == "bar" else _LINE_PERIOD_S
        if self._style == "none" or (not force and now - self._shown < period):
            return
        self._shown = now
        elapsed = max(now - self._started, 1e-9)
        if self._style == "json":
            found = {
                "job": self._job,
                "done": round(self._done, 3),
                "of": round(self._of, 3),
                "messages": self._messages,
                "seconds": round(elapsed, 3),
            }
            self._out.write(json.dumps(found) + "\n")
        elif self._style == "bar":
            self._out.write(f"\r\x1b[K{self._line(elapsed)}")
            self._open = True
        else:
            self._out.write(self._line(elapsed) + "\n")
        self._out.flush()

    def _line(self, elapsed: float) -> str:
        part = min(self._done / self._of, 1.0) if self._of else 0.0
        filled = round(part * _BAR_WIDTH)
        left = f"  eta {_clock(elapsed / part - elapsed)}" if 0 < part < 1 else ""
        count = f"  {_short(self._messages)} messages  {_short(self._messages / elapsed)}/s" if self._messages else ""
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        return f"{self._job}  [{bar}] {part * 100:3.0f} %{count}{left}"

    def _end_line(self) -> None:
        if self._open:
            self._out.write("\n")
            self._open = False


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f}"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return (
        f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        if whole >= 3600
        else f"{whole // 60}:{whole % 60:02d}"
    )
