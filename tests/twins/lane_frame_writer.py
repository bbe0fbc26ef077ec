"""A ``FrameWriter`` over any files and threads: the simulated disk has a frame writer like the real disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.journal.frame_writer import Frame
    from magnetar.storage.embedded.lanes import Threads

    Done = Callable[[OSError | None, float], None]

__all__ = ["LaneFrameWriter"]


class LaneFrameWriter:
    """Writes each frame as one piece of work of a lane."""

    def __init__(self, threads: Threads, pace_s: float = 0.0) -> None:
        self.pace_s = pace_s
        self._lane = threads.lane("journal-frames", self._work, self._worked)
        self._done: Done | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._began_s = 0.0
        """The loop's time, so that histories on a simulated loop do not depend on the machine."""
        self.frames = 0

    def write(self, frame: Frame, done: Done, *, is_awaited: bool = False) -> None:
        assert self._done is None, "one frame at a time"
        self._done = done
        self.frames += 1
        self._began_s = self._loop.time()
        self._lane.submit(frame)

    def wait(self, _seconds: float) -> bool:
        return False

    def call_after(self, delay_s: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, callback)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        assert self._done is None, "a frame is under way"

    def _work(self, frames: list[Frame]) -> None:
        (frame,) = frames
        frame.file.write(frame.buffers(), frame.offset, durable=True)

    def _worked(self, _frames: list[Frame], _nothing: None, error: BaseException | None) -> None:
        done, self._done = self._done, None
        assert done is not None
        assert error is None or isinstance(error, OSError)
        done(error, self._loop.time() - self._began_s)
