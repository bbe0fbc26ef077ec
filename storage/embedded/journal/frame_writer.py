"""Writes frames to segments with a single write and sync, without a Python thread. A reported frame is durable.

The loop plans a frame that needs only its write (``Journal.plan``) and gives the frame to a ``FrameWriter``, which
reports on the loop: a turn of the loop from the socket to the disk, and a turn back. ``CompiledFrameWriter`` uses
``_frame_writer.c``; where this module was not built, or the file system is not real, the journal's lane does all the
work in its thread.

The helper has a thread, which sleeps until its frame is durable. A frame whose only producer waits for the receipt goes
by the system's asynchronous I/O instead: no thread has to wake up for it, which is a fifth of the latency on a
machine whose processors sleep in between (docs/performance.md). The system ends such a write in a worker of the kernel
that is bound to the processor of the disk's interrupt, and while a client computes on that processor, the worker waits,
for up to 4 ms; so the thread writes all other frames. The thread may run on any processor, and its short time slice
(``broker/time_slices.py``) lets it run before the client.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.storage.embedded.files import NO_DESCRIPTOR, RealFile
from magnetar.storage.embedded.journal.format import encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.storage.embedded.files import Buffer, File

__all__ = ["CompiledFrameWriter", "Frame", "FrameWriter", "open_frame_writer"]

_FORBIDDEN = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})
"""Errors of a sandbox that forbids the calls of the compiled writer."""
_PACE_S = 0.001
"""At most 1,000 small frames a second: a frame, its reads, receipts and deliveries cost some 0.2 ms of processor time,
however few messages the frame has.
"""


class Frame(NamedTuple):
    """A frame and its place. ``payload``: the buffers of its slabs, unchanged until the frame is written."""

    file: File
    offset: int
    prefix: bytes
    """Bytes written before the frame: none, or the first page of the segment."""
    generation: int
    salt: int
    sequence: int
    written_ms: int
    metadata_sequence: int
    payload: Sequence[Buffer]
    checksums: Sequence[int] = ()
    """The CRC-32C of each buffer of ``payload``, -1 where the checksum is not known; empty: no checksum is known."""

    def buffers(self) -> list[Buffer]:
        """The bytes to write at ``offset``."""
        encoded = encode_frame(
            self.generation, self.salt, self.sequence, self.payload, self.written_ms, self.metadata_sequence
        )
        return [self.prefix, *encoded] if self.prefix else encoded


class FrameWriter(Protocol):
    """Writes one frame at a time."""

    pace_s: float
    """The least seconds between the beginnings of small frames of producers that do not wait for receipts; 0: none."""

    def write(self, frame: Frame, done: Callable[[OSError | None, float], None], *, is_awaited: bool = False) -> None:
        """Write the frame; the loop calls ``done(error, seconds)`` later, never within this call. ``is_awaited``: the
        frame is small, and its only producer computes nothing until the receipt comes.

        Without error the frame is on stable storage. The writer does not repeat a failed sync. An exception from this
        call means that the write did not begin; then the writer does not call ``done``.
        """
        ...

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds for the end of the frame under way, without sleeping. Return whether the frame
        has ended; then its ``done`` has been called. Call ``wait`` from a callback of the loop.
        """
        ...

    def call_after(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` on the loop in ``delay_s`` seconds, as exactly as the system can. A later call of
        ``call_after`` replaces a callback whose time has not come.
        """
        ...

    def close(self) -> None:
        """Close the writer; no frame may be under way. Idempotent."""
        ...


class CompiledFrameWriter:
    """The frame writer of ``_frame_writer.c``. Needs real files and an event loop that watches descriptors."""

    pace_s = _PACE_S

    def __init__(self, *, is_async: bool = True) -> None:
        from magnetar.storage.embedded.journal._frame_writer import Writer  # noqa: PLC0415 - not built everywhere

        self.is_async = is_async
        """Whether awaited frames may go by the system's asynchronous I/O."""
        self._writer = Writer(is_async)
        self._file: File | None = None
        """The file of the last frame, whose descriptors follow; None: not known."""
        self._fd = self._direct_fd = -1
        self._done: Callable[[OSError | None, float], None] | None = None
        self._after: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._writer.fileno(), self._on_wake)
        self._loop.add_reader(self._writer.timer_fileno(), self._on_timer)
        self._closed = False

    def write(self, frame: Frame, done: Callable[[OSError | None, float], None], *, is_awaited: bool = False) -> None:
        file = frame[0]
        direct_fd = self._direct_fd if file is self._file else self._open(file)
        self._writer.write(self._fd, direct_fd, *frame[1:], is_awaited)
        self._done = done

    def _open(self, file: File) -> int:
        """Note the descriptors of the file; returns the descriptor for writes past the cache, -1: there is none."""
        self._file = None
        if not isinstance(file, RealFile):
            raise TypeError("the compiled writer is for real files")
        self._fd = file.fileno()
        try:
            self._direct_fd = file.direct_fileno()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            return -1  # this frame goes through the cache
        self._file = file
        return self._direct_fd

    def wait(self, seconds: float) -> bool:
        found = self._writer.reap_within(seconds)
        if found is None:
            return False
        self._ended(*found)
        return True

    def call_after(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._after = callback
        self._writer.set_timer(delay_s)

    def submitted(self) -> int:
        """The number of frames that went to asynchronous I/O; the thread may have written some of them in the end."""
        return self._writer.submitted()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._file = None
            self._loop.remove_reader(self._writer.fileno())
            self._loop.remove_reader(self._writer.timer_fileno())
            self._writer.close()

    def _on_wake(self) -> None:
        found = self._writer.reap()
        if found is not None:
            self._ended(*found)

    def _ended(self, number: int, seconds: float) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(OSError(number, os.strerror(number)) if number else None, seconds)

    def _on_timer(self) -> None:
        if self._writer.timer_ended() and self._after is not None:
            callback, self._after = self._after, None
            callback()


def open_frame_writer() -> FrameWriter | None:
    """The compiled writer; None where the writer was not built, where ``MAGNETAR_PURE`` is set, or where the loop
    watches no descriptors.

    A preloaded library (a fault injector, a sandbox) sees only calls of libc, and asynchronous I/O does not go through
    libc: with ``LD_PRELOAD`` the helper's thread writes each frame by pwritev2 of libc.
    """
    if os.environ.get("MAGNETAR_PURE"):
        return None
    try:
        return CompiledFrameWriter(is_async=not os.environ.get("LD_PRELOAD"))
    except (ImportError, NotImplementedError):
        return None
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        return None
