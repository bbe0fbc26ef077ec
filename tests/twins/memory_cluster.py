"""A metadata service that several brokers share, in memory: ``Coordination`` with sessions that a test ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.storage.coordination import Session
from magnetar.storage.errors import StorageUnavailableError
from magnetar.storage.metadata_nodes import names_below
from tests.twins.memory_metadata import MemoryMetadataStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.storage.interfaces import Guard

__all__ = ["MemoryCluster", "MemorySession"]


@dataclass(eq=False, frozen=True, slots=True)
class _Report:
    path: str
    callback: Callable[[str], None]


class MemoryCluster:
    """The service. ``connect`` gives each broker a session of its own."""

    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.owners: dict[str, MemorySession] = {}
        self.numbers: dict[str, int] = {}
        self.created_ms: dict[str, int] = {}
        """Times of creation, as a test sets them."""

    def connect(self) -> MemorySession:
        return MemorySession(self)

    def nodes(self, prefix: str) -> list[str]:
        """Paths below the prefix, sorted."""
        return sorted(path for path in self.store._nodes if path.startswith(prefix))

    async def drop(self, path: str) -> None:
        self.owners.pop(path, None)
        await self.store.delete(path)


class MemorySession:
    """One session; see ``Coordination``."""

    session_timeout_s = 0.0

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._callbacks: list[Callable[[Session], None]] = []
        self._state = Session.CONNECTED
        self._held: list[_Report] | None = None
        """Reports of changes that have not come yet, in order; None: each report comes at once."""

    # -- controls of tests ---

    def hold_reports(self) -> None:
        """From now on reports of changes come when ``caught_up`` is called, and not before."""
        self._held = []

    def suspend(self) -> None:
        """The connection is lost; the session lives."""
        self._tell(Session.SUSPENDED)

    async def expire(self) -> None:
        """The service ends the session; ``lose`` alone reports the end to the session object."""
        for path in [path for path, owner in self._cluster.owners.items() if owner is self]:
            await self._cluster.drop(path)

    def lose(self) -> None:
        self._tell(Session.LOST)

    def reconnect(self) -> None:
        self._tell(Session.CONNECTED)

    def _tell(self, state: Session) -> None:
        self._state = state
        for callback in list(self._callbacks):
            callback(state)

    # -- Coordination ---

    def on_session(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def get(self, path: str) -> tuple[bytes, int] | None:
        self._check()
        return await self._cluster.store.get(path)

    async def put(
        self, path: str, value: bytes, expected_version: int | None = None, guard: Guard | None = None
    ) -> int:
        self._check()
        return await self._cluster.store.put(path, value, expected_version, guard)

    async def put_ephemeral(self, path: str, value: bytes) -> int:
        self._check()
        if self._cluster.owners.get(path) is not self and await self._cluster.store.get(path) is not None:
            await self._cluster.drop(path)
        version = await self._cluster.store.put(path, value)
        self._cluster.owners[path] = self
        return version

    async def create_ephemeral(self, path: str, value: bytes) -> int:
        self._check()
        version = await self._cluster.store.put(path, value, -1)
        self._cluster.owners[path] = self
        return version

    async def create_numbered(self, prefix: str, value: bytes = b"") -> int:
        self._check()
        number = self._cluster.numbers[prefix] = self._cluster.numbers.get(prefix, -1) + 1
        await self.create_ephemeral(f"{prefix}{number:010}", value)
        return number

    async def created_ms(self, path: str) -> int:
        self._check()
        return self._cluster.created_ms.get(path, 0)

    async def is_mine(self, path: str) -> bool:
        self._check()
        return self._cluster.owners.get(path) is self

    async def delete(self, path: str, expected_version: int | None = None, guard: Guard | None = None) -> None:
        self._check()
        await self._cluster.store.delete(path, expected_version, guard)
        self._cluster.owners.pop(path, None)

    async def children(self, path: str) -> list[str]:
        self._check()
        return await self._cluster.store.children(path)

    def watch(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        def report(path: str) -> None:
            if self._held is None:
                callback(path)
            else:
                self._held.append(_Report(path, callback))

        return self._cluster.store.watch(prefix, report)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Callable[[], None]:
        prefix = path.removesuffix("/") + "/"

        def names() -> list[str]:
            return names_below(path, [node for node in self._cluster.store._nodes if node.startswith(prefix)])

        callback(names())
        return self._cluster.store.watch(path, lambda _changed: callback(names()))

    async def watching(self) -> None:
        return

    async def caught_up(self) -> None:
        self._check()
        await asyncio.sleep(0)  # the store reports each change in the next turn of the loop
        if self._held is not None:
            held, self._held = self._held, []
            for each in held:
                each.callback(each.path)

    def change_of(self, path: str) -> Awaitable[object] | None:
        """With ``hold_reports`` the notice has come, and not the report."""
        held = [each for each in self._held or () if each.path == path]
        return self._report(held) if held else None

    async def _report(self, held: list[_Report]) -> None:
        for each in held:
            assert self._held is not None, "reports are held"
            if each in self._held:
                self._held.remove(each)
                each.callback(each.path)

    async def next_sequence(self, path: str, count: int = 1) -> int:
        self._check()
        return await self._cluster.store.next_sequence(path, count)

    async def close(self) -> None:
        await self.expire()

    def _check(self) -> None:
        if self._state is not Session.CONNECTED:
            raise StorageUnavailableError("no connection")
