"""Ledger metadata on ZooKeeper, where and as BookKeeper 4.17 writes them."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import (
    MetadataError,
    MetadataRequestError,
    NodeExistsError,
    NoSuchLedgerError,
    NoSuchNodeError,
)
from magnetar.bookkeeper.metadata.ledger_ids import LedgerIds
from magnetar.bookkeeper.metadata.ledger_metadata import Versioned
from magnetar.bookkeeper.metadata.ledger_paths import LAYOUT_VERSION, Layout, ledger_id_of, ledger_path, parse_layout
from magnetar.bookkeeper.metadata.metadata_format import decode_metadata, encode_metadata
from magnetar.bookkeeper.zookeeper.values import Create

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from magnetar.bookkeeper.background import Background
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession

__all__ = ["ZooKeeperLedgerMetadata", "initialize_cluster"]

_NOT_LEDGERS = frozenset({"LAYOUT", "INSTANCEID", "cookies", "available", "idgen", "idgen-long", "underreplication"})


async def initialize_cluster(session: ZooKeeperSession, root: str = "/ledgers") -> bool:
    """Write the nodes that a new BookKeeper cluster needs before its first bookie; False when `root` exists already.

    Source: ``ZKRegistrationManager.initNewCluster``.
    """
    if await session.exists(root) is not None:
        return False
    parent = root.rpartition("/")[0]
    if parent and await session.exists(parent) is None:
        with contextlib.suppress(NodeExistsError):
            await session.create(parent, make_parents=True)
    try:
        await session.commit(
            [
                Create(root),
                Create(f"{root}/available"),
                Create(f"{root}/available/readonly"),
                Create(f"{root}/INSTANCEID", str(uuid.uuid4()).encode()),
                Create(f"{root}/LAYOUT", f"{LAYOUT_VERSION}\n{Layout.HIERARCHICAL.value}:1".encode()),
            ]
        )
    except NodeExistsError:
        return False
    return True


class ZooKeeperLedgerMetadata:
    """A LedgerMetadataStore on ZooKeeper. Open it with ``await ZooKeeperLedgerMetadata.open(...)``."""

    def __init__(self, session: ZooKeeperSession, root: str, layout: Layout, background: Background) -> None:
        self._session, self._root, self._layout = session, root, layout
        self._ids = LedgerIds(session, root, background.start)

    @classmethod
    async def open(cls, session: ZooKeeperSession, root: str, background: Background) -> ZooKeeperLedgerMetadata:
        """Raises MetadataRequestError when there is no BookKeeper cluster, or a cluster with an unknown layout."""
        path = f"{root}/LAYOUT"
        try:
            node = await session.get(path)
        except NoSuchNodeError:
            detail = f"there is no BookKeeper cluster at {root}: initialize one, or correct the path"
            raise MetadataRequestError(path, detail) from None
        found = cls(session, root, parse_layout(path, node.value), background)
        await found._ids.look()
        return found

    async def new_ledger_id(self) -> int:
        return await self._ids.next()

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> int:
        await self._session.create(self.path(ledger_id), encode_metadata(metadata), make_parents=True)
        return 0

    async def read(self, ledger_id: int, *, latest: bool = False) -> Versioned:
        path = self.path(ledger_id)
        try:
            node = await (self._session.get_latest(path) if latest else self._session.get(path))
        except NoSuchNodeError:
            raise NoSuchLedgerError(ledger_id) from None
        return Versioned(decode_metadata(ledger_id, node.value), node.version)

    async def watch(self, ledger_id: int, changed: Callable[[], None]) -> int | None:
        stat = await self._session.exists(self.path(ledger_id), watch=lambda _event: changed())
        return None if stat is None else stat.version

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> int:
        try:
            return (await self._session.set(self.path(ledger_id), encode_metadata(metadata), version)).version
        except NoSuchNodeError:
            raise NoSuchLedgerError(ledger_id) from None

    async def delete(self, ledger_id: int) -> None:
        path = self.path(ledger_id)
        try:
            await self._session.delete(path)
        except NoSuchNodeError:
            raise NoSuchLedgerError(ledger_id) from None
        parent = path.rpartition("/")[0]
        with contextlib.suppress(MetadataError):  # another client has deleted the parent, or created a ledger below
            while len(parent) > len(self._root):
                stat = await self._session.exists(parent)
                if stat is None or stat.children:  # a refused deletion is a write for ZooKeeper, this read is none
                    return
                await self._session.delete(parent)
                parent = parent.rpartition("/")[0]

    async def ledger_ids(self) -> AsyncIterator[int]:
        async for path in self._walk(""):
            ledger_id = ledger_id_of(path)
            if ledger_id is not None:
                yield ledger_id

    def path(self, ledger_id: int) -> str:
        """Return the path of the ledger's node."""
        return f"{self._root}/{ledger_path(self._layout, ledger_id)}"

    async def _walk(self, below: str) -> AsyncIterator[str]:
        try:
            names = sorted(await self._session.children(f"{self._root}/{below}" if below else self._root))
        except NoSuchNodeError:
            return
        for name in names:
            path = f"{below}/{name}" if below else name
            if name.startswith("L") and name not in _NOT_LEDGERS:
                yield path
            elif name.isdecimal():
                async for found in self._walk(path):
                    yield found
