"""The paths of Apache Pulsar in the shared metadata store: one wrapper around the store, for the whole broker.

Names are encoded in paths as `protocol.url_encoder` does it (a blank is ``+``, ``*`` stays); this broker's own stores
have ``%20`` and ``%2A``. Nodes of this broker alone lie below ``/magnetar``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.protocol.url_encoder import url_encoder_path
from magnetar.storage.interfaces import Guard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.clustering.seen_values import SeenValues
    from magnetar.storage.coordination import Coordination, Session

__all__ = ["PulsarPaths"]

_OWN_ROOTS: Final = ("/delayed-index", "/deleted-managed-ledgers")


class PulsarPaths:
    """``Coordination`` with translated paths; watches report the paths of the service."""

    def __init__(self, store: Coordination, seen: SeenValues) -> None:
        """seen: the bound of large values, by the paths of this broker."""
        self._store = store
        self._seen = seen

    @property
    def session_timeout_s(self) -> float:
        return self._store.session_timeout_s

    async def get(self, path: str) -> tuple[bytes, int] | None:
        found = await self._store.get(_shared(path))
        self._seen.saw(path, 0 if found is None else len(found[0]))
        return found

    async def put(
        self, path: str, value: bytes, expected_version: int | None = None, guard: Guard | None = None
    ) -> int:
        with self._seen.growing(path, len(value)):
            return await self._store.put(_shared(path), value, expected_version, _shared_guard(guard))

    async def put_ephemeral(self, path: str, value: bytes) -> int:
        return await self._store.put_ephemeral(_shared(path), value)

    async def create_ephemeral(self, path: str, value: bytes) -> int:
        return await self._store.create_ephemeral(_shared(path), value)

    async def create_numbered(self, prefix: str, value: bytes = b"") -> int:
        return await self._store.create_numbered(_shared(prefix), value)

    async def created_ms(self, path: str) -> int:
        return await self._store.created_ms(_shared(path))

    async def is_mine(self, path: str) -> bool:
        return await self._store.is_mine(_shared(path))

    async def delete(self, path: str, expected_version: int | None = None, guard: Guard | None = None) -> None:
        await self._store.delete(_shared(path), expected_version, _shared_guard(guard))
        self._seen.saw(path, 0)

    async def children(self, path: str) -> list[str]:
        return await self._store.children(_shared(path))

    def watch(self, prefix: str, callback: Callable[[str], None]) -> Callable[[], None]:
        return self._store.watch(_shared(prefix), callback)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Callable[[], None]:
        return self._store.watch_children(_shared(path), callback)

    async def watching(self) -> None:
        await self._store.watching()

    async def caught_up(self) -> None:
        await self._store.caught_up()

    def change_of(self, path: str) -> Awaitable[object] | None:
        return self._store.change_of(_shared(path))

    def on_session(self, callback: Callable[[Session], None]) -> Callable[[], None]:
        return self._store.on_session(callback)

    async def next_sequence(self, path: str, count: int = 1) -> int:
        return await self._store.next_sequence(_shared(path), count)

    def log_closed(self, managed_ledger: str) -> None:
        """The managed ledger is closed here: another broker may change its values from now on."""
        self._seen.log_closed(managed_ledger)

    async def close(self) -> None:
        await self._store.close()


def _shared_guard(guard: Guard | None) -> Guard | None:
    return None if guard is None else Guard(_shared(guard.path), guard.version)


def _shared(path: str) -> str:
    path = url_encoder_path(path)
    return f"/magnetar{path}" if path.startswith(_OWN_ROOTS) else path
