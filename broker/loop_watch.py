"""Watches the event loop: a callback that holds it for more than 50 ms is counted and logged with its place.

A periodic timer on the loop (the beat) measures its own delay. A thread watches the beat, and samples the stack of the
loop's thread while a beat is late. The frame of the running callback is the same object in all samples of one call, so
the samples distinguish a single long callback from many short callbacks of the same turn. Time in which the machine ran
other work on this thread's processor does not count. Callbacks have no extra cost; beat and thread take about 0.4 % of
a core. The watch certainly finds a callback that takes longer than 50 ms plus the interval of the beat; whether it
finds a callback between 50 ms and that time depends on when the callback begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pathlib
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

log = structlog.get_logger(__name__)
SLOW_S: Final = 0.050
BEAT_S: Final = 0.040
_SAMPLE_S: Final = 0.005
_IDLE_SHARE: Final = 0.1
"""A delay without samples in which the thread used a smaller share of a processor is no call that computes."""
_HANDLE_RUN: Final = asyncio.Handle._run.__code__  # noqa: SLF001 - to know it in a stack
_ROOMS: Final = tuple(
    f"{os.sep}{room}{os.sep}"
    for room in ("broker", "protocol", "bookkeeper", "storage", "delayed", "converters", "client")
)


@dataclass(slots=True)
class LoopFigures:
    """Figures since the start. A slow callback is a single long callback; a long turn consists of many callbacks."""

    slow_callbacks: int = 0
    slow_callback_ms: float = 0.0
    longest_callback_ms: float = 0.0
    long_turns: int = 0


class Stall:
    """The samples of one late beat."""

    def __init__(self, base: FrameType | None) -> None:
        self._base = base
        self._frame: FrameType | None = None
        self._since_s = 0.0
        self._places: Counter[str] = Counter()
        self.callbacks = 0
        self.longest_s = 0.0
        self.place = ""

    def saw(self, stack: FrameType | None, now_s: float) -> None:
        """Add a sample of the loop's thread; in a stack without a callback the loop itself is at work."""
        frame = outermost(stack, self._base)
        if frame is not self._frame or frame is None:
            self._frame, self._since_s, self._places = frame, now_s, Counter()
            self.callbacks += frame is not None
        if frame is None or stack is None:
            return
        self._places[place_of(stack)] += 1
        if now_s - self._since_s >= self.longest_s:
            self.longest_s = now_s - self._since_s
            self.place = self._places.most_common(1)[0][0]

    def forget_frames(self) -> None:
        self._frame = None


class LoopWatch:
    """Watches the loop on which `start` was called, until `stop`."""

    def __init__(self) -> None:
        self.figures = LoopFigures()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._beat_s = 0.0
        self._waited_s = 0.0
        self._used_s = 0.0
        self._schedstat = -1
        self._stall: Stall | None = None
        self._base: FrameType | None = None
        self._ended = False

    def start(self) -> None:
        """Start the watch. Precondition: the caller runs on the loop's thread."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        try:
            self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            self._schedstat = -1  # not Linux: every delay counts
        self._beat_s, self._waited_s, self._used_s = time.perf_counter(), self._machine_wait_s(), time.thread_time()
        self._timer = self._loop.call_later(BEAT_S, self._beat)
        self._thread = threading.Thread(target=self._look_on, name="loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; safe to call twice."""
        self._ended = True
        self._base = None
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    # --- on the loop ----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._base is None:
            self._base = sys._getframe().f_back  # noqa: SLF001 - the caller of this callback runs the loop
        now_s, waited_s, used_s = time.perf_counter(), self._machine_wait_s(), time.thread_time()
        held_s = now_s - self._beat_s - BEAT_S - (waited_s - self._waited_s)
        busy_s = used_s - self._used_s
        self._beat_s, self._waited_s, self._used_s = now_s, waited_s, used_s
        stall, self._stall = self._stall, None
        if held_s > SLOW_S:
            self._report(held_s, busy_s, stall)
        assert self._loop is not None
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _report(self, held_s: float, busy_s: float, stall: Stall | None) -> None:
        """Count and log a slow callback, unless the samples show many callbacks: then count a long turn."""
        if stall is not None and stall.callbacks > 1 and stall.longest_s < held_s / 2:
            self.figures.long_turns += 1
            return
        held_ms = round(held_s * 1000, 1)
        self.figures.slow_callbacks += 1
        self.figures.slow_callback_ms += held_ms
        self.figures.longest_callback_ms = max(self.figures.longest_callback_ms, held_ms)
        if stall is not None and stall.place:
            place = stall.place
        elif busy_s < held_s * _IDLE_SHARE:
            place = "unknown: the process was stopped, or a call waited without releasing the interpreter"
        else:
            place = "unknown: it did not release the interpreter"
        log.warning("loop.slow_callback", ms=held_ms, cpu_ms=round(busy_s * 1000, 1), place=place)

    def _machine_wait_s(self) -> float:
        """Return how long the loop's thread has waited for a processor since its start, in seconds."""
        if self._schedstat < 0:
            return 0.0
        return int(os.pread(self._schedstat, 128, 0).split()[1]) / 1e9

    # --- in the thread --------------------------------------------------------------------------------------------

    def _look_on(self) -> None:
        stall: Stall | None = None
        while not self._ended:
            time.sleep(BEAT_S if stall is None else _SAMPLE_S)  # an event with a timeout costs several times as much
            now_s = time.perf_counter()
            if now_s - self._beat_s < 2 * BEAT_S:
                if stall is not None:
                    stall.forget_frames()
                stall = None
                continue
            if stall is None:
                stall = self._stall = Stall(self._base)
            with _no_collections():
                stall.saw(sys._current_frames().get(self._loop_thread), now_s)  # noqa: SLF001 - its purpose


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """No collection of garbage begins within the block, where this thread reads frames of another.

    A step outwards (``f_back``) may make an object for the outer frame. With Python 3.11 this may begin a collection,
    whose finalizers may let the other thread run and leave that frame: the step then ends with a segmentation fault.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def outermost(stack: FrameType | None, base: FrameType | None) -> FrameType | None:
    """Return the frame of the running callback that the loop has called; None when the loop itself is at work.

    base: the frame that runs the loop. The loop of the standard library calls through a frame per callback instead.
    """
    found = None
    while stack is not None and stack is not base and stack.f_code is not _HANDLE_RUN:
        found, stack = stack, stack.f_back
    return found if stack is not None else None


def place_of(stack: FrameType) -> str:
    """Return file, line and function of the innermost frame of this project, else of the innermost frame."""
    frame: FrameType | None = stack
    while frame is not None and not any(room in frame.f_code.co_filename for room in _ROOMS):
        frame = frame.f_back
    frame = frame or stack
    path = pathlib.PurePath(frame.f_code.co_filename).parts
    return f"{'/'.join(path[-3:])}:{frame.f_lineno} {frame.f_code.co_name}"
