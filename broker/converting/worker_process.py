"""One worker process as the broker sees it: started when first needed, killed when it takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import msgspec

from magnetar.broker.converting import frames

if TYPE_CHECKING:
    from asyncio.subprocess import Process

START_TIMEOUT_S = 30.0
"""For starting Python and loading the converters; it counts as nobody's conversion."""
_END_TIMEOUT_S = 1.0
_MODULE = "magnetar.broker.converting.worker"
_SLACK_BYTES = 1 << 16


class WorkerError(Exception):
    """The worker is of no more use; `started` tells whether it had begun with an entry."""

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
        self._process: Process | None = None
        self.welcome = frames.Welcome()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Return when the chain is loaded or refused (see `welcome`). Raises: WorkerError."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    _MODULE,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=self._limit,
                    start_new_session=True,
                )
                source, sink = self._pipes()
                data = msgspec.json.encode(self._hello)
                sink.write(frames.SIZE.pack(len(data)) + data)
                (size,) = frames.SIZE.unpack(await source.readexactly(frames.SIZE.size))
                self.welcome = msgspec.json.decode(await source.readexactly(size), type=frames.Welcome)
        except (OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
            await self.kill()
            reason = "was not ready in time" if isinstance(error, TimeoutError) else f"did not start: {error}"
            raise WorkerError(f"a worker process {reason}", started=False) from error
        except BaseException:
            await self.kill()
            raise

    async def convert(self, entry: bytes, timeout_s: float) -> frames.Answer:
        """Convert one entry; starts the process when there is none.

        Raises: WorkerTimeoutError, WorkerError; the process is dead then.
        """
        if self._process is None:
            await self.start()
            if self.welcome.refusal is not None:
                await self.kill()
                raise WorkerError(f"a worker process refused its chain: {self.welcome.refusal}", started=False)
        source, sink = self._pipes()
        try:
            async with asyncio.timeout(timeout_s):
                sink.writelines((frames.SIZE.pack(len(entry)), entry))
                head = await source.readexactly(frames.ANSWER.size)
                rest = await source.readexactly(frames.rest_of_answer(head, self._limit))
            return frames.decode_answer(head, rest, entry)
        except TimeoutError as error:
            await self.kill()
            raise WorkerTimeoutError(f"not converted in {timeout_s * 1000:.0f} ms", started=True) from error
        except (OSError, EOFError, frames.FrameError) as error:
            code = await self.kill()
            raise WorkerError(f"the worker process ended ({code}): {error}", started=True) from error
        except BaseException:
            await self.kill()
            raise

    def _pipes(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        return self._process.stdout, self._process.stdin

    async def kill(self) -> int | None:
        """End it at once; the exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()

    async def close(self) -> None:
        """Let it end by itself, but not for long."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_TIMEOUT_S):
                await process.wait()
        await self.kill()
