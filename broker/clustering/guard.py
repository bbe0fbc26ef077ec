"""Ends this broker when its event loop stands still (the process is suspended, or a call never returns) until its
session is about to end.

Other brokers then soon own its topics, but its clients would wait: the connections of a suspended process stay open,
and clients detect that only by a keep-alive of 30 s and more. The process of the guard kills the broker, because no
other process can close its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
from typing import Final

import structlog

__all__ = ["Guard"]

log = structlog.get_logger(__name__)

_TICKS: Final = 12
_PROGRAM: Final = pathlib.Path(__file__).with_name("guard_process.py")


class Guard:
    """Ends the process when, between `start` and `stop`, the loop does not turn once in `limit_s` seconds."""

    def __init__(self, limit_s: float) -> None:
        self._tick_s = limit_s / _TICKS
        self._process: subprocess.Popen[bytes] | None = None
        self._beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the second process. If that fails the broker works without it."""
        arguments = [str(os.getpid()), f"{self._tick_s:g}", str(_TICKS)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this project's program
                [sys.executable, "-S", "-E", str(_PROGRAM), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError as error:
            log.warning("guard.not_started", reason=str(error))
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._tell()

    def stop(self) -> None:
        """Idempotent."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)

    def _tell(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(b".")
        except BlockingIOError:
            pass
        except OSError:
            log.warning("guard.ended")
            return
        self._beat = asyncio.get_running_loop().call_later(self._tick_s / 2, self._tell)
