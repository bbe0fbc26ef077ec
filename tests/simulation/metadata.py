"""The metadata store of a simulated broker: operations in their order, each takes time and is done whole.

An operation that has begun takes effect also when its caller is cancelled, as one given to the store's thread does. A
crash finds it done or not done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.twins.memory_metadata import MemoryMetadataStore

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.simulation.threads import SimThreads


class SimMetadata(MemoryMetadataStore):
    """``threads`` gives the pace; set it, and a loop's lock, with ``begin`` at each start of a process."""

    threads: SimThreads

    def begin(self, threads: SimThreads) -> None:
        self.threads = threads
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()

    async def get(self, path: str) -> tuple[bytes, int] | None:
        return await self._in_turn(super().get(path))

    async def children(self, path: str) -> list[str]:
        return await self._in_turn(super().children(path))

    async def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        return await self._in_turn(super().put(path, value, expected_version))

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._in_turn(super().delete(path, expected_version))

    async def next_sequence(self, path: str, count: int = 1) -> int:
        return await self._in_turn(super().next_sequence(path, count))

    async def _in_turn(self, operation: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.get_running_loop().create_task(self._run(operation), name="metadata")
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()

    async def _run(self, operation: Coroutine[Any, Any, Any]) -> Any:
        try:
            async with self._turn:
                await self._pause()
                result = await operation
                await self._pause()
                return result
        finally:
            operation.close()

    async def _pause(self) -> None:
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.threads.later(lambda: None if passed.done() else passed.set_result(None))
        await passed

    def snapshot(self) -> SimMetadata:
        found = super().snapshot()
        copy = SimMetadata()
        copy._nodes, copy._sequences = found._nodes, found._sequences
        return copy
