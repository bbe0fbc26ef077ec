"""Progress of commands that take longer than a second: a bar on a terminal, no output elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

_QUIET_S: Final = 1.0


class Progress:
    """`with Progress("copying", total, unit) as progress: progress.add(n)`. unit: bytes or a noun in the plural."""

    def __init__(
        self, label: str, total: int | None, unit: str = "bytes", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label, self._total, self._unit, self._clock = label, total, unit, clock
        self._done = 0
        self._begun = clock()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, amount: int) -> None:
        """Add work that is done."""
        self._done += amount
        if self._bar is None:
            if not sys.stderr.isatty() or self._clock() - self._begun < _QUIET_S:
                return
            self._start()
        self._bar.update(self._task, completed=self._done)

    def _start(self) -> None:
        from rich import progress  # noqa: PLC0415 - the same
        from rich.console import Console  # noqa: PLC0415 - only for a person at a terminal

        amount = progress.DownloadColumn(binary_units=True) if self._unit == "bytes" else progress.MofNCompleteColumn()
        text = progress.TextColumn("{task.description}")
        columns = (text, progress.BarColumn(), amount, progress.TimeRemainingColumn())
        self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self._label, total=self._total)
