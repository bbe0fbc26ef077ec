"""Keeps full collections of the garbage collector short, whatever the number of loaded topics.

A full collection holds the loop while it walks through all objects: 1 s with 20,000 topics that have a producer. So the
survivors of each full collection are frozen: the next walks only through newer objects. Frozen objects are freed with
their last reference as ever; a cycle of frozen objects stays. Closed connections, sessions, subscriptions and topics
leave no cycles (`network.gone`, `storage.managed.cut_cycles`), so few stay. To find those few, the collector walks
through all objects behind much growth: in an idle process behind half a million new objects, in a busy process behind
four million, and four times as many as there were. A busy process whose walk frees next to nothing waits four times as
long for the next walk: the walk holds the loop for nothing.

No walk begins that would hold the loop for longer than LONGEST_S, by the memory blocks of the process and the time of
the last walk for each block: a process with more than about half a million objects keeps its frozen cycles. An idle
process is no exception: the next request would wait for the walk. An exception bounds the memory that cycles could
fill: a process with eight times the blocks of such a walk walks once, and then each time that its blocks have doubled.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from magnetar.broker.process_load import process_cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LONGEST_S", "LOOK_S", "NEW_OBJECTS", "Collector", "Garbage", "Meter"]

log = structlog.get_logger(__name__)
LOOK_S: Final = 60.0
"""Seconds between two decisions about a walk through all objects."""
_YOUNG: Final = 2_000
_YOUNG_A_MIDDLE: Final = 3
_MIDDLE_A_FULL: Final = 3
NEW_OBJECTS: Final = _YOUNG * (_YOUNG_A_MIDDLE + 1) * (_MIDDLE_A_FULL + 1)
"""New objects, less freed objects, behind which a full collection comes."""
_OLDEST: Final = 2
_IDLE_PART: Final = 0.01
"""The part of a core below which the process counts as idle."""
_FEW: Final = 500_000 // NEW_OBJECTS
"""Full collections behind which an idle process walks through all objects."""
_MANY: Final = 4_000_000 // NEW_OBJECTS
"""The least full collections behind which a busy process does."""
_GROWTH: Final = 4
_WORTH_PART: Final = 0.01
"""The part of all objects that a walk has to free; else the next walk of a busy process comes later."""
_LATER: Final = 4
_LATEST: Final = 256
LONGEST_S: Final = 0.1
"""The longest time that a walk may be expected to hold the loop."""
_TOO_MANY: Final = 8
"""A walk that is expected to take so many times LONGEST_S comes: cycles must not fill the memory without a bound."""
_BLOCK_S: Final = 200e-9
"""The time of a walk for each memory block before the first walk; 90 ns were measured."""


class Garbage(Protocol):
    """The functions of the module ``gc``."""

    def freeze(self) -> None: ...
    def unfreeze(self) -> None: ...
    def collect(self) -> int: ...
    def get_freeze_count(self) -> int: ...


class Meter(NamedTuple):
    """Measurements of the process."""

    cpu_s: Callable[[], float] = process_cpu_s
    loop_s: Callable[[], float] = time.thread_time
    """The processor time of the loop's thread."""
    blocks: Callable[[], int] = sys.getallocatedblocks
    """The memory blocks of the interpreter: counted in microseconds, objects only one by one. With PYTHONMALLOC=malloc
    the interpreter counts no blocks: then only the time of the last walk bounds the next walk.
    """


class Collector:
    """Between `start` and `stop`. Loop only."""

    def __init__(self, garbage: Garbage = gc, meter: Meter = Meter()) -> None:  # noqa: B008 - immutable
        self._garbage = garbage
        self._meter = meter
        self._cpu_s = cpu_s = meter.cpu_s
        self._block_s = _BLOCK_S
        """The time of the last walk for each memory block."""
        self._long_walk_blocks = 0
        """The blocks before the last walk that was expected to take longer than LONGEST_S."""
        self._used_s = cpu_s()
        self._freezes = 0
        """Full collections since the last walk through all objects."""
        self._enough = _MANY
        self._delay = 1
        """How many times as late as at first the next walk of a busy process comes."""
        self._walks = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Set the thresholds of the process, and freeze the survivors of each full collection from now on."""
        gc.set_threshold(_YOUNG, _YOUNG_A_MIDDLE, _MIDDLE_A_FULL)
        gc.callbacks.append(self.on_collection)
        self._wait()

    def stop(self) -> None:
        """Safe to call twice, and without `start`."""
        if self.on_collection in gc.callbacks:
            gc.callbacks.remove(self.on_collection)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Freeze the survivors of a full collection. The interpreter calls this at the begin and end of each."""
        if phase == "stop" and info["generation"] == _OLDEST and not self._walks:
            self._freezes += 1
            self._garbage.freeze()

    def look(self) -> None:
        """Walk through all objects if the process is idle and some were frozen, or if many were."""
        before, self._used_s = self._used_s, self._cpu_s()
        idle = self._used_s - before < _IDLE_PART * LOOK_S
        if self._freezes >= (_FEW if idle else self._enough):
            blocks = max(self._meter.blocks(), 1)
            expected_s = blocks * self._block_s
            if expected_s <= LONGEST_S:
                self._walk(blocks)
            elif expected_s >= _TOO_MANY * LONGEST_S and blocks >= 2 * self._long_walk_blocks:
                self._long_walk_blocks = blocks
                self._walk(blocks)

    def _walk(self, blocks: int) -> None:
        garbage, began_s = self._garbage, self._meter.loop_s()
        self._walks = True
        try:
            garbage.unfreeze()
            freed = garbage.collect()
            garbage.freeze()
            garbage.collect()  # nothing is left: the next full collection does not wait for a quarter of all objects
        finally:
            self._walks = False
        objects = garbage.get_freeze_count()
        took_s = self._meter.loop_s() - began_s
        self._block_s = took_s / blocks
        self._delay = 1 if freed > objects * _WORTH_PART else min(self._delay * _LATER, _LATEST)
        self._freezes, self._enough = 0, max(_MANY, _GROWTH * objects // NEW_OBJECTS) * self._delay
        log.debug("collector.walked", objects=objects, freed=freed, ms=round(took_s * 1000))

    def _again(self) -> None:
        self.look()
        self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._again)
