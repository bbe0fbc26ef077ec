"""Watches the set of children of a ZooKeeper node, which need not exist yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.bookkeeper.errors import MetadataError, MetadataUnavailableError, NoSuchNodeError
from magnetar.bookkeeper.zookeeper.values import SessionState, WatchKind
from magnetar.storage import events
from magnetar.storage.zookeeper.tree_watch import REFUSED_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.bookkeeper.background import Background
    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
    from magnetar.bookkeeper.zookeeper.values import WatchEvent

__all__ = ["ChildrenWatch"]

log = structlog.get_logger(__name__)
_RETRY_S = 0.2
_NAMES_PER_S = 50_000
"""The most names a second for one node, on average: after each change ZooKeeper sends all names to every broker."""
_DELETED_S = 1.0
"""The pause behind the deletion of the node."""


class ChildrenWatch:
    """``callback(names)``, in no order, at first and after each change, until ``cancel``. There is one watch at a time.

    A watch cannot be taken back: on a node that never returns it stays in this client and at the service for good. So
    behind the deletion of the node the watch pauses, and the owner of a node that is gone calls ``cancel`` meanwhile.

    Changes in quick succession are reported with one call: after each call the watch pauses, in proportion to the
    number of names. A node that this client may not read is read again from time to time.
    """

    def __init__(
        self, session: ZooKeeperSession, path: str, callback: Callable[[list[str]], None], background: Background
    ) -> None:
        self._session = session
        self._path = path
        self._callback = callback
        self._background = background
        self._fired = asyncio.Event()
        self._cancelled = self._was_deleted = False
        self.ready = asyncio.Event()
        """Set once the callback was called for the first time, or the service refused the names."""
        background.start(self._run(), f"children of {path}")

    def cancel(self) -> None:
        self._cancelled = True
        self._fired.set()
        self.ready.set()

    async def _run(self) -> None:
        while not self._cancelled and self._session.state is not SessionState.CLOSED:
            self._fired.clear()
            try:
                names = await self._names()
            except MetadataUnavailableError:
                await asyncio.sleep(_RETRY_S)
                continue
            except MetadataError as error:
                log.warning(events.NODE_NOT_WATCHED, path=self._path, reason=str(error))
                self.ready.set()
                await asyncio.sleep(REFUSED_S)
                continue
            if names is None:
                continue
            if not self._cancelled:
                self._callback(names)
            self.ready.set()
            if self._was_deleted:
                self._was_deleted = False
                await asyncio.sleep(_DELETED_S)
                continue
            await self._fired.wait()
            await asyncio.sleep(len(names) / _NAMES_PER_S)

    async def _names(self) -> list[str] | None:
        """Return the names; None when the node was created or deleted during the call."""
        try:
            names = await self._session.children(self._path, self._fire)
        except NoSuchNodeError:
            if self._was_deleted:
                return []
            found = await self._session.exists(self._path, self._fire)
            return [] if found is None else None
        self._was_deleted = False
        return names

    def _fire(self, event: WatchEvent) -> None:
        self._was_deleted = event.kind is WatchKind.DELETED
        self._fired.set()
