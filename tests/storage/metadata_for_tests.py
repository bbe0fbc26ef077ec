"""The metadata log in a folder of the real disk."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.metadata.format_1 import read_format_1
from magnetar.storage.embedded.metadata.log_writer import LogEnvironment
from magnetar.storage.embedded.metadata.logged_metadata import LoggedMetadataStore
from magnetar.storage.embedded.metadata.opening import open_metadata
from magnetar.storage.interfaces import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from magnetar.storage.embedded.lanes import Threads


def open_log(folder: Path, threads: Threads, log_bytes: int = 64 << 10) -> LoggedMetadataStore:
    """The store in this folder, made when it is not there."""
    world = LogEnvironment(RealFiles(), Layout(str(folder)), SystemClock(), os.urandom, log_bytes)
    return LoggedMetadataStore(world, open_metadata(world, read_format_1), threads, asyncio.get_running_loop())
