"""The outside world as the engine needs it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.storage.embedded.direct_reader import open_direct_reader
from magnetar.storage.embedded.files import FileSystem, RealFiles
from magnetar.storage.embedded.journal.busy_poll import open_poll
from magnetar.storage.embedded.journal.frame_writer import open_frame_writer
from magnetar.storage.embedded.lanes import RealThreads
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.read_turns import ReadTurns

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.direct_reader import DirectReader
    from magnetar.storage.embedded.journal.busy_poll import Poll
    from magnetar.storage.embedded.journal.frame_writer import FrameWriter
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.metadata.node_tree import NodeTree
    from magnetar.storage.interfaces import Clock, MetadataStore, Scheduler

__all__ = ["EngineEnvironment"]


def _read_format_1(path: str) -> NodeTree:
    """Import the reader only when a database of format 1 exists, so that no other start loads SQLite."""
    from magnetar.storage.embedded.metadata.format_1 import read_format_1  # noqa: PLC0415 - see above

    return read_format_1(path)


@dataclass(slots=True)
class EngineEnvironment:
    """Disk, clock, threads and timers of the engine. Tests give a simulated disk, inline threads and a manual clock."""

    files: FileSystem
    clock: Clock
    threads: Threads
    scheduler: Scheduler
    entropy: Callable[[int], bytes] = os.urandom
    metadata: MetadataStore | None = None
    """None: the engine opens and closes metadata in the data directory. The engine does not close metadata that the
    caller gives here.
    """
    read_format_1: Callable[[str], NodeTree] = _read_format_1
    frame_writer: Callable[[], FrameWriter | None] = lambda: None
    """Makes the writer of journal frames that needs no Python thread; its result None: a Python thread writes frames.
    The engine calls it once, at its start.
    """

    poll: Callable[[], Poll | None] = lambda: None
    """Makes the poll of the running loop; its result None: the loop sleeps until its next event. The engine calls it
    once, at its start.
    """

    direct_reader: Callable[[], DirectReader | None] = lambda: None
    """Makes the reader that needs no thread; its result None: threads read all pieces. The engine calls it once, at its
    start.
    """

    turns: ReadTurns = field(default_factory=ReadTurns)
    """The engine holds the reading of producers through this object."""

    @classmethod
    def real(cls) -> EngineEnvironment:
        """Return the environment of this process and its running loop."""
        return cls(
            RealFiles(),
            SystemClock(),
            RealThreads(),
            asyncio.get_running_loop(),
            frame_writer=open_frame_writer,
            poll=open_poll,
            direct_reader=open_direct_reader,
        )
