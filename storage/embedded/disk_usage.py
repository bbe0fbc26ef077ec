"""Stops appends before the file system is full (diskUsageThreshold), so that room remains for the work that frees
space.

A thread measures the used part of the file system every few seconds, because a file system may take long to answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.errors import StorageFullError

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine_settings import EngineSettings
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.health import Health
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.interfaces import Scheduler, Timer

__all__ = ["DiskUsageWatch"]

log = structlog.get_logger(__name__)
_SOURCE = "disk-usage"


class DiskUsageWatch:
    """Makes appends fail with StorageFullError from the time more than ``disk_usage_threshold`` is used until at most
    ``disk_usage_warn_threshold`` is used. Loop only, except for the measurement itself.
    """

    def __init__(
        self,
        health: Health,
        files: FileSystem,
        root: str,
        scheduler: Scheduler,
        threads: Threads,
        settings: EngineSettings,
    ) -> None:
        self._health, self._files, self._root, self._scheduler = health, files, root, scheduler
        self._most, self._warn_at = settings.disk_usage_threshold, settings.disk_usage_warn_threshold
        self._every_s = settings.disk_usage_check_s
        self._lane = threads.lane("disk-usage", self._look, self._seen)
        self._timer: Timer | None = None
        self._warned = self._closed = False
        self.used_part: float | None = None
        """The used part of the file system at the last measurement, 0 to 1; None before the first measurement."""
        self._lane.submit(None)

    def _look(self, orders: list[None]) -> float:  # noqa: ARG002 - the lane's form
        return self._files.used_part(self._root)

    def _seen(self, orders: list[None], used: float | None, error: BaseException | None) -> None:  # noqa: ARG002 - the lane's form
        if self._closed:
            return
        if used is not None:
            self.used_part = used
            self._judge(used)
        else:
            log.warning(events.DISK_NOT_MEASURED, path=self._root, reason=str(error))
        self._timer = self._scheduler.call_later(self._every_s, lambda: self._lane.submit(None))

    def _judge(self, used: float) -> None:
        full = _SOURCE in self._health.full_sources
        if used > self._most and not full:
            text = f"{used:.2%} of the file system is used, diskUsageThreshold is {self._most:.2%}"
            log.error(events.DISK_OVER_THRESHOLD, path=self._root, used=used, threshold=self._most)
            self._health.set_full(StorageFullError(text), _SOURCE)
        elif full and used <= self._warn_at:
            log.info(events.DISK_UNDER_THRESHOLD, path=self._root, used=used, threshold=self._warn_at)
            self._health.set_full(None, _SOURCE)
        if used > self._warn_at and not self._warned:
            log.warning(events.DISK_NEARLY_FULL, path=self._root, used=used, threshold=self._warn_at)
        self._warned = used > self._warn_at

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._lane.close()
