"""Keeps full collections of the garbage collector short, whatever the number of loaded topics.

A full collection holds the loop while it walks through all objects: 0.2 s with 20,000 loaded topics. So survivors of a
collection that took long are frozen: later collections walk only through newer objects. Frozen objects without
references are freed as ever; cycles among them stay. To find those, an idle broker looks through all objects when half
as many have been frozen since the last such look, a busy broker when three times as many have.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LONG_S", "Collector"]

log = structlog.get_logger(__name__)
LONG_S: Final = 0.010
_OLDEST: Final = 2
_MORE_WHEN_IDLE: Final = 1.5
_MORE_WHEN_BUSY: Final = 4.0


class Collector:
    """Between ``start`` and ``stop``. ``look`` comes from time to time."""

    def __init__(self, now_s: Callable[[], float] = time.thread_time) -> None:
        self._now_s = now_s
        self._began_s = 0.0
        self._known = 0
        """Frozen objects after the last look through all."""

    def start(self) -> None:
        self._known = gc.get_freeze_count()
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Safe to call twice, and without ``start``."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def look(self, *, idle: bool) -> None:
        """Look through all objects if many have been frozen since the last time."""
        frozen = gc.get_freeze_count()
        if frozen < self._known * (_MORE_WHEN_IDLE if idle else _MORE_WHEN_BUSY):
            return
        began_s = self._now_s()
        gc.unfreeze()
        freed = gc.collect()
        gc.freeze()
        self._known = gc.get_freeze_count()
        log.debug("collector.looked", objects=self._known, freed=freed, ms=round((self._now_s() - began_s) * 1000))

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            self._began_s = self._now_s()
        elif self._now_s() - self._began_s > LONG_S:
            gc.freeze()
