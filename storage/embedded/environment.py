"""What the engine touches of the world."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.storage.clock import SystemClock
from magnetar.storage.embedded.files import FileSystem, RealFiles
from magnetar.storage.embedded.lanes import RealThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.interfaces import Clock, MetadataStore, Scheduler

__all__ = ["EngineEnvironment"]


@dataclass(slots=True)
class EngineEnvironment:
    """Tests give a simulated disk, inline threads, a clock moved by hand."""

    files: FileSystem
    clock: Clock
    threads: Threads
    scheduler: Scheduler
    entropy: Callable[[int], bytes] = os.urandom
    metadata: MetadataStore | None = None
    """None: SQLite in the data directory. One given is not closed by the engine."""

    @classmethod
    def real(cls) -> EngineEnvironment:
        """Of this process and its running loop."""
        return cls(RealFiles(), SystemClock(), RealThreads(), asyncio.get_running_loop())
