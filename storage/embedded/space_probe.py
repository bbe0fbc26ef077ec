"""After the disk was full, tries again to use it, first soon, then less often, until the disk has space."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.embedded.append_path import AppendPath
    from magnetar.storage.embedded.checkpoints import Checkpointer
    from magnetar.storage.embedded.health import Health
    from magnetar.storage.interfaces import Scheduler, Timer

__all__ = ["SpaceProbe"]

_LONGEST_WAIT_S = 5.0


class SpaceProbe:
    """Watches ``Health`` and makes the parts that ran out of space try again."""

    def __init__(
        self, health: Health, scheduler: Scheduler, appends: AppendPath, checkpointer: Checkpointer, first_wait_s: float
    ) -> None:
        self._health, self._scheduler = health, scheduler
        self._appends, self._checkpointer = appends, checkpointer
        self._first_wait_s = self._wait_s = first_wait_s
        self._timer: Timer | None = None
        self._closed = False
        health.on_change(self._on_change)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_change(self) -> None:
        if self._health.full is None:
            self._wait_s = self._first_wait_s
        elif self._timer is None and not self._closed:
            self._timer = self._scheduler.call_later(self._wait_s, self._probe)

    def _probe(self) -> None:
        self._timer = None
        sources = list(self._health.full_sources)
        if not sources or self._health.failed is not None or self._closed:
            return
        self._wait_s = min(self._wait_s * 2, _LONGEST_WAIT_S)
        self._timer = self._scheduler.call_later(self._wait_s, self._probe)
        if "journal" in sources:
            self._appends.try_resume()
            self._checkpointer.catch_up()
        if "write-behind" in sources:
            self._checkpointer.nudge()
        if "checkpoint" in sources:
            self._checkpointer.start()
