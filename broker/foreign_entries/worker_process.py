"""One worker process, from the broker's side: started with its first entry, killed when a conversion takes too long.

A thread of its own writes and reads the pipes, and waits outside the interpreter lock: a megabyte to and from a worker
takes no time of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import msgspec

from magnetar.broker.foreign_entries import frames

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

START_TIMEOUT_S = 30.0
"""The time to start Python and load the converters; not part of the time limit of a conversion."""
_END_TIMEOUT_S = 1.0
_MODULE = "magnetar.broker.foreign_entries.worker"
_SLACK_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20
"""Size of the pipes: room for a whole entry of usual size, so that broker and worker switch less often."""


class WorkerError(Exception):
    """The worker cannot be used any more; `started`: whether it had begun to convert an entry."""

    def __init__(self, message: str, *, started: bool) -> None:
        super().__init__(message)
        self.started = started


class WorkerTimeoutError(WorkerError):
    """The conversion took too long; the worker was killed."""


class WorkerProcess:
    """A process that converts one entry at a time."""

    def __init__(self, hello: frames.Hello) -> None:
        self._hello = hello
        self._limit = hello.max_entry_bytes + _SLACK_BYTES
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = ThreadPoolExecutor(1, "magnetar-converting")
        """A thread that lives until `close`: the kernel kills the worker when the thread that started it ends."""
        self._closed = False
        self.welcome = frames.Welcome()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Return when the chain is loaded or refused (see `welcome`). Raises: WorkerError."""
        try:
            await self._in_thread(self._launch, START_TIMEOUT_S)
            self.welcome = await self._in_thread(self._greet, START_TIMEOUT_S)
        except (OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
            await self.kill()
            reason = "was not ready in time" if isinstance(error, TimeoutError) else f"did not start: {error}"
            raise WorkerError(f"a worker process {reason}", started=False) from error
        except BaseException:
            await self.kill()
            raise

    async def convert(self, entry: bytes, timeout_s: float) -> frames.Answer:
        """Convert one entry; start the process when none runs.

        Raises: WorkerTimeoutError, WorkerError; the process has ended then, and the next call starts another process.
        """
        if self._process is None:
            await self.start()
            if self.welcome.refusal is not None:
                await self.kill()
                raise WorkerError(f"a worker process refused its chain: {self.welcome.refusal}", started=False)
        try:
            return await self._in_thread(lambda: self._exchange(entry), timeout_s)
        except TimeoutError as error:
            await self.kill()
            raise WorkerTimeoutError(f"not converted in {timeout_s * 1000:.0f} ms", started=True) from error
        except (OSError, EOFError, frames.FrameError) as error:
            code = await self.kill()
            raise WorkerError(f"the worker process ended ({code}): {error}", started=True) from error
        except BaseException:
            await self.kill()
            raise

    async def _in_thread(self, work: Callable[[], T], timeout_s: float) -> T:
        """Run `work` in the thread. A timeout or cancellation of the caller kills the process, which ends `work`."""
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(done)
        except BaseException:
            if not done.done():
                self._end()
                done.add_done_callback(_seen)
            raise

    # --- in the thread -------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this project's module
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        for pipe in (self._process.stdin, self._process.stdout):
            if sys.platform == "linux" and pipe is not None:
                with contextlib.suppress(OSError):  # the user may have reached the limit of pipe memory
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def _greet(self) -> frames.Welcome:
        self._write(msgspec.json.encode(self._hello))
        (size,) = frames.SIZE.unpack(self._read(frames.SIZE.size))
        return msgspec.json.decode(self._read(size), type=frames.Welcome)

    def _exchange(self, entry: bytes) -> frames.Answer:
        self._write(entry)
        head = self._read(frames.ANSWER.size)
        return frames.decode_answer(head, self._read(frames.rest_of_answer(head, self._limit)), entry)

    def _write(self, data: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise EOFError("it was ended")
        process.stdin.write(frames.SIZE.pack(len(data)))
        process.stdin.write(data)
        process.stdin.flush()

    def _read(self, size: int) -> bytes:
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError("it was ended")
        data = process.stdout.read(size)
        if len(data) < size:
            raise EOFError(f"{len(data)} of {size} bytes were answered")
        return data

    # --- its end -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Kill the process and its children, which may hold its pipes."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def kill(self) -> int | None:
        """Kill the process; return its exit code, None without a process."""
        if self._closed:
            return None
        self._end()
        return await self._in_turn(self._wait_killed)

    async def close(self) -> None:
        """Close the input of the process, wait up to _END_TIMEOUT_S, then kill it. Idempotent; ends the object."""
        if not self._closed:
            self._closed = True
            await self._in_turn(self._wait_closed)
            self._thread.shutdown(wait=False)

    async def _in_turn(self, work: Callable[[], int | None]) -> int | None:
        """Run `work` in the thread, behind its current job; a cancelled caller does not cancel `work`."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def _wait_closed(self) -> int | None:
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_TIMEOUT_S)
        return self._wait_killed()

    def _wait_killed(self) -> int | None:
        process = self._process
        if process is None:
            return None
        self._end()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # a buffer with the rest of an entry cannot be written
                if pipe is not None:
                    pipe.close()
        self._process = None
        return code


def _seen(done: asyncio.Future[T]) -> None:
    """Retrieve the exception of an abandoned job, if any, so that asyncio logs no warning."""
    if not done.cancelled():
        done.exception()
