"""The steps of a stop, each with a bound: a stop ends in spite of steps that hang, fail or refuse cancellation.

All steps share one time (brokerShutdownTimeoutMs); a step that begins late has LEAST_S all the same, because a clean
restart depends on the last step, the store. A step that exceeds its time is cancelled and left behind, a failed step is
logged, and the next step begins. Nothing acknowledged depends on a step: receipts were durable when they were sent.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from magnetar.broker.tasks import TaskSet, log_unhandled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

log = structlog.get_logger(__name__)
LEAST_S: Final = 5.0
LONGEST_S: Final = 60.0
"""The time behind brokerShutdownTimeoutMs after which the process ends in any case."""
EXIT_OK: Final = 0
EXIT_HANGS: Final = 70
EXIT_NO_MEMORY: Final = 70
"""A new start helps, unlike with the codes that a service manager must not start again (conf/magnetar.service)."""
_NO_MEMORY: Final = b"magnetar: error: the system refuses memory (RLIMIT_AS); the process ends\n"


class Stop:
    """The stop of a broker, from the first request to the exit code; further requests start no second stop."""

    def __init__(self) -> None:
        self.exit_code = EXIT_OK
        self.on_begin: Callable[[], object] = lambda: None
        self.has_begun = False
        self.tasks = TaskSet()
        """The tasks of the stop, separate from the tasks of the broker, which the stop cancels."""
        self._requested = False
        self._run: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._ended = asyncio.Event()

    def allow(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Allow stops by `run`, because the broker has started; if a stop was requested before, run it now."""
        self._run = run
        if self._requested:
            self.request(EXIT_OK)

    def request(self, exit_code: int) -> None:
        """Request a stop; before ``allow`` the stop waits until the broker has started. The first exit code other than
        0 counts.
        """
        self.exit_code = self.exit_code or exit_code
        self._requested = True
        if self._run is not None and not self.has_begun:
            self.tasks.spawn(self._run(), "broker.stop")

    def begin(self) -> bool:
        """Return True for the first caller, which runs the stop; other callers have to ``wait``."""
        if self.has_begun:
            return False
        self.has_begun = True
        return True

    def end(self) -> None:
        self._ended.set()

    async def wait(self) -> int:
        """Return the exit code once the stop has ended."""
        await self._ended.wait()
        return self.exit_code


class Step(NamedTuple):
    """One step: its name in the log, and its action."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]


async def run_steps(
    steps: Sequence[Step], within_s: float, tasks: TaskSet, now_s: Callable[[], float] = time.monotonic
) -> list[str]:
    """Run the steps in order; return the names of the steps that failed or did not end in time."""
    deadline_s, bad = now_s() + within_s, []
    for step in steps:
        task = tasks.spawn(_logged(step), f"stop.{step.name}")
        done, _ = await asyncio.wait({task}, timeout=max(LEAST_S, deadline_s - now_s()))
        if not done:
            log.warning("broker.stop_timed_out", step=step.name)
            task.cancel()
        if not done or task.cancelled() or not task.result():
            bad.append(step.name)
    return bad


async def _logged(step: Step) -> bool:
    """Run the step; return whether it succeeded."""
    try:
        await step.run()
    except Exception:  # later steps run after any error of this step
        log.exception("broker.stop_failed", step=step.name)
        return False
    return True


def end_process_after(within_s: float, exit_code: Callable[[], int]) -> None:
    """Start a thread that ends this process after `within_s`, unless the process has ended before: a callback may block
    the event loop, or a thread that the interpreter joins may not end. The tracebacks of all threads go to standard
    error. Where the system has no memory for a thread, a signal ends the process.
    """

    def end() -> None:
        os.write(2, b"magnetar: error: the stop hangs; the process ends without it\n")
        faulthandler.dump_traceback()
        os._exit(exit_code() or EXIT_HANGS)

    timer = threading.Timer(within_s, end)
    timer.daemon = True
    try:
        timer.start()
    except (RuntimeError, MemoryError):  # "can't start new thread"
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, within_s)


def log_or_end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler of the event loop: logs the error, or ends the process where the system refuses memory.

    A callback without memory leaves its work half done, for example the receipts of appends on the disk, and a broker
    that keeps its ports open without them hangs its clients. Acknowledged messages are on the disk.
    """
    try:
        if not isinstance(context.get("exception"), MemoryError):
            log_unhandled(loop, context)
            return
    except MemoryError:
        pass
    os.write(2, _NO_MEMORY)
    os._exit(EXIT_NO_MEMORY)
