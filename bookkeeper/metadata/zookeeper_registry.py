"""The bookies registered on ZooKeeper, kept up to date by watches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.errors import MetadataError, NoSuchNodeError
from magnetar.bookkeeper.metadata.bookie_info import bookie_address
from magnetar.bookkeeper.metadata.bookie_racks import DEFAULT_RACK, BookieRacks, bookie_racks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.bookkeeper.background import Background
    from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
    from magnetar.bookkeeper.zookeeper.values import WatchEvent

__all__ = ["ZooKeeperRegistry"]

log = structlog.get_logger(__name__)
_RACKS_PATH = "/bookies"
_RETRY_S = 0.2
_LONGEST_RETRY_S = 5.0
_READ_ONLY = "readonly"


class ZooKeeperRegistry:
    """A BookieRegistry on ZooKeeper. It keeps the addresses of bookies that are no longer registered, because ledgers
    still name these bookies.
    """

    def __init__(self, session: ZooKeeperSession, root: str, background: Background) -> None:
        self._session, self._background = session, background
        self._path = f"{root}/available"
        self._writable: dict[str, BookieAddress] = {}
        self._read_only: dict[str, BookieAddress] = {}
        self._known: dict[str, BookieAddress] = {}
        self._racks = BookieRacks()
        self._listeners: list[Callable[[], None]] = []
        self._stale = asyncio.Event()
        self._watched: set[str] = set()
        """Nodes with a watch that has not fired. The registry sets no second watch on such a node: it would stay for
        ever.
        """

    @classmethod
    async def open(cls, session: ZooKeeperSession, root: str, background: Background) -> ZooKeeperRegistry:
        """Return a registry that has read the bookies registered now. Raises MetadataError."""
        registry = cls(session, root, background)
        await registry._read()
        background.start(registry._follow(), "bookies")
        return registry

    @property
    def writable(self) -> Mapping[str, BookieAddress]:
        return self._writable

    @property
    def read_only(self) -> Mapping[str, BookieAddress]:
        return self._read_only

    def address(self, bookie_id: str) -> BookieAddress | None:
        return self._known.get(bookie_id) or bookie_address(bookie_id)

    def rack(self, bookie_id: str) -> str:
        """Return the rack stored for the bookie's id, else for its registered address: tools store racks under
        either.
        """
        found = self._racks.racks.get(bookie_id)
        if found is None and (address := self._known.get(bookie_id)) is not None:
            found = self._racks.racks.get(f"{address.host}:{address.port}")
        return found or DEFAULT_RACK

    @property
    def groups(self) -> Mapping[str, frozenset[str]]:
        return self._racks.groups

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(callback)

        def cancel() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return cancel

    async def _follow(self) -> None:
        delay_s = _RETRY_S
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self._read()
                delay_s = _RETRY_S
            except MetadataError as error:
                log.warning(events.BOOKIES_NOT_READ, error=str(error))
                self._watched.clear()  # after the failure it is unknown which watches are set
                self._stale.set()
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _LONGEST_RETRY_S)

    async def _read(self) -> None:
        writable, read_only, racks = await asyncio.gather(
            self._read_directory(self._path), self._read_directory(f"{self._path}/{_READ_ONLY}"), self._read_racks()
        )
        # Right after a restart a bookie may be in both lists until its old session ends: then it counts as writable.
        read_only = {name: address for name, address in read_only.items() if name not in writable}
        changed = (writable, read_only) != (self._writable, self._read_only)
        moved = racks != self._racks
        self._writable, self._read_only, self._racks = writable, read_only, racks
        self._known |= {**read_only, **writable}
        if changed:
            log.info(events.BOOKIES_CHANGED, writable=sorted(writable), read_only=sorted(read_only))
        for listener in list(self._listeners) if changed or moved else ():
            listener()

    async def _read_directory(self, path: str) -> dict[str, BookieAddress]:
        try:
            names = await self._session.children(path, watch=self._watch(path))
        except NoSuchNodeError:
            self._watched.discard(path)
            if await self._session.exists(path, watch=self._watch(path)) is None:
                return {}
            self._watched.discard(path)  # created meanwhile: that watch reports no child
            return await self._read_directory(path)
        found = await asyncio.gather(*(self._read_bookie(path, name) for name in names if name != _READ_ONLY))
        return {name: address for name, address in found if address is not None}

    async def _read_bookie(self, path: str, name: str) -> tuple[str, BookieAddress | None]:
        try:
            node = await self._session.get(f"{path}/{name}")
        except NoSuchNodeError:
            return name, None
        return name, bookie_address(name, node.value)

    async def _read_racks(self) -> BookieRacks:
        try:
            if await self._session.exists(_RACKS_PATH, watch=self._watch(_RACKS_PATH)) is None:
                return BookieRacks()
            found = bookie_racks((await self._session.get(_RACKS_PATH)).value)
        except NoSuchNodeError:
            return BookieRacks()
        if found.malformed and found.malformed != self._racks.malformed:
            log.warning(events.RACKS_MALFORMED, path=_RACKS_PATH, groups=found.malformed)
        return found

    def _watch(self, path: str) -> Callable[[WatchEvent], None] | None:
        if path in self._watched:
            return None
        self._watched.add(path)
        return self._on_watch

    def _on_watch(self, event: WatchEvent) -> None:
        self._watched.discard(event.path)
        self._stale.set()
