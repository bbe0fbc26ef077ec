"""The reader of a command's output, for a command that may wait for long before the next line."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ends_with_reader"]


@contextlib.contextmanager
def ends_with_reader(stream: TextIO) -> Iterator[None]:
    """End a wait on the event loop when the stream is a pipe whose reader is gone, as `head -1` is behind a line: no
    write would notice before the next line.

    Raises: BrokenPipeError, as the next write would.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    pipe = _pipe(stream)
    if pipe is None or task is None:
        yield
        return
    gone = False

    def closed() -> None:
        nonlocal gone
        gone = True
        loop.remove_reader(pipe)
        task.cancel()

    loop.add_reader(pipe, closed)  # the end for writing is never readable, but has an error
    try:
        yield
    except asyncio.CancelledError:
        if gone and task.uncancel() == 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        raise
    finally:
        loop.remove_reader(pipe)


def _pipe(stream: TextIO) -> int | None:
    """The descriptor of a stream that is a pipe."""
    try:
        descriptor = stream.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):  # another object took the place of the stream, or the stream is closed
        return None
