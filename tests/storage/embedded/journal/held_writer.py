"""A store whose journal writes frames when the test calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.storage.engine_for_tests import TINY, World, append
from tests.storage.records_for_tests import slab_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.embedded.journal.busy_poll import Poll
    from magnetar.storage.embedded.journal.frame_writer import Frame
    from magnetar.storage.embedded.ledger_store import EmbeddedLedgerWriter


class HeldWriter:
    """A frame writer that keeps frames, and completes a write when the test calls."""

    def __init__(self, pace_s: float = 0.0) -> None:
        self.pace_s = pace_s
        self.frames: list[Frame] = []
        self.awaited: list[bool] = []
        """``is_awaited`` of each frame."""
        self.done: Callable[[OSError | None, float], None] | None = None
        self.delay_s = 0.0
        self.on_time: Callable[[], None] | None = None
        self.closed = False
        self.waits: list[float] = []
        self.seconds = 0.1
        """The time that the write of a frame takes, as the writer reports."""
        self.ends_in_wait = False
        """Whether the frame under way ends in a wait."""

    def write(self, frame: Frame, done: Callable[[OSError | None, float], None], *, is_awaited: bool = False) -> None:
        assert self.done is None, "one frame at a time"
        self.frames.append(frame)
        self.awaited.append(is_awaited)
        self.done = done

    def release(self, error: OSError | None = None) -> None:
        done, self.done = self.done, None
        assert done is not None
        if error is None:
            frame = self.frames[-1]
            frame.file.write(frame.buffers(), frame.offset, durable=True)
        done(error, self.seconds)

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if self.ends_in_wait and self.done is not None:
            self.release()
            return True
        return False

    def call_after(self, delay_s: float, callback: Callable[[], None]) -> None:
        assert self.on_time is None, "the lane has one timer"
        self.delay_s, self.on_time = delay_s, callback

    def ring(self) -> None:
        on_time, self.on_time = self.on_time, None
        assert on_time is not None
        on_time()

    def close(self) -> None:
        self.closed = True


async def opened(
    pace_s: float = 0.0, poll: Poll | None = None, **changes: Any
) -> tuple[EmbeddedStorage, HeldWriter, World]:
    world, writer = World(), HeldWriter(pace_s)
    world.frame_writer = lambda: writer
    world.poll = poll
    settings = replace(TINY, journal_segment_bytes=64 << 10, journal_first_segment_bytes=64 << 10, **changes)
    storage = await world.open(settings)
    return storage, writer, world


def push(writer: EmbeddedLedgerWriter, answers: list[object], name: object, body: bytes = b"x") -> None:
    slab = slab_of(writer.ledger_id, writer.last_add_pushed + 1, [body], writer.record_proof)
    writer.append(slab, lambda error: answers.append((name, type(error).__name__) if error else name))


async def first_segment(ledger: EmbeddedLedgerWriter) -> None:
    """The first append needs a segment: the thread's work."""
    await append(ledger, [b"first"])
