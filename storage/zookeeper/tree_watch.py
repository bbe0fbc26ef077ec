"""Reports changes in a whole subtree of ZooKeeper through one-shot watches.

Each node of the subtree has two watches: one for its value (and deletion), one for its children. A watch that fired is
set again *before* the change is reported. So a listener that reads the node after the report sees that change or a
later change, and a change after its read is reported again. Several changes in quick succession may be reported with
one call.

A lost connection deletes the watches: ``TreeWatch`` then reads every node again and reports the changes.

A node that this client may not read counts as missing, and is read again from time to time.
"""

from __future__ import annotations

import asyncio
import enum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from magnetar.bookkeeper.errors import MetadataError, MetadataUnavailableError, NoSuchNodeError
from magnetar.bookkeeper.zookeeper.values import SessionState, WatchKind
from magnetar.storage import events

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from magnetar.bookkeeper.background import Background
    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
    from magnetar.bookkeeper.zookeeper.values import NodeStat, WatchEvent

__all__ = ["TreeWatch"]

T = TypeVar("T")
log = structlog.get_logger(__name__)
_RETRY_S = 0.2
REFUSED_S = 30.0
"""The pause before another read of a node whose read the service refused."""
_TOGETHER = 64
"""The number of nodes that are read at the same time."""


class _Kind(enum.Enum):
    VALUE = "value"
    CHILDREN = "children"


class TreeWatch:
    """Calls ``callback(path)`` after changes at or below ``prefix`` until ``cancel``; not for nodes that exist at
    first.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        prefix: str,
        callback: Callable[[str], None],
        background: Background,
        changing: dict[str, asyncio.Task[None]] | None = None,
    ) -> None:
        """changing: gets each node while the look runs that a notice of its change has begun."""
        self._session = session
        self._prefix = prefix
        self._callback = callback
        self._background = background
        self._known: dict[str, tuple[int, int]] = {}
        """Nodes seen: (creation, last change) as transaction ids."""
        self._set: set[tuple[str, _Kind]] = set()
        """Watches that are set or being set: a node never has two watches of the same kind."""
        self._refused: set[tuple[str, _Kind]] = set()
        """Reads that the service refused, and that are made again after a pause."""
        self._slots = asyncio.Semaphore(_TOGETHER)
        self._cancelled = False
        self._changing = {} if changing is None else changing
        self._looks: set[asyncio.Task[None]] = set()
        """Looks that a watch has begun and that have not reported yet."""
        self.ready = asyncio.Event()
        """Set when every node that existed at first has its watches: from then on every change is reported."""
        self._start(self._begin(), prefix)

    def cancel(self) -> None:
        """No more reports. Watches that are set die when they fire."""
        self._cancelled = True
        self.ready.set()

    async def settled(self) -> None:
        """Wait until the watches that have fired are reported. A look leaves a node to another look that has begun with
        the node before: the second round waits for that look.
        """
        for _ in range(2):
            if self._looks:
                await asyncio.wait(set(self._looks))

    async def _begin(self) -> None:
        await self._look(self._prefix, report=False)
        self.ready.set()

    async def _look(self, path: str, *, report: bool) -> None:
        await self._look_at_value(path, report=report)
        if path in self._known:
            await self._look_at_children(path, report=report)

    async def _look_at_value(self, path: str, *, report: bool) -> None:
        if not self._take(path, _Kind.VALUE):
            return
        stat = await self._until_answered(path, _Kind.VALUE, lambda: self._stat(path))
        if stat is None and path != self._prefix:
            self._set.discard((path, _Kind.VALUE))  # a watch on the parent reports its return
        found = None if stat is None else (stat.creation_zxid, stat.modified_zxid)
        before = self._known.pop(path, None)
        if found is not None:
            self._known[path] = found
        if report and found != before and not self._cancelled:
            self._callback(path)
        if found is not None and (before is None or before[0] != found[0]):
            await self._look_at_children(path, report=report)

    async def _look_at_children(self, path: str, *, report: bool) -> None:
        if not self._take(path, _Kind.CHILDREN):
            return
        names = await self._until_answered(path, _Kind.CHILDREN, lambda: self._children(path))
        if names is None:
            self._set.discard((path, _Kind.CHILDREN))
            return
        base = "" if path == "/" else path
        fresh = [child for name in names if (child := f"{base}/{name}") not in self._known]
        for start in range(0, len(fresh), _TOGETHER):
            await asyncio.gather(*(self._look(child, report=report) for child in fresh[start : start + _TOGETHER]))

    def _take(self, path: str, kind: _Kind) -> bool:
        if self._cancelled or (path, kind) in self._set:
            return False
        self._set.add((path, kind))
        return True

    async def _stat(self, path: str) -> NodeStat | None:
        if path == self._prefix:  # a node that does not exist yet has a watch too
            return await self._session.exists(path, self._value_fired)
        try:
            return (await self._session.get(path, self._value_fired)).stat
        except NoSuchNodeError:
            return None

    async def _children(self, path: str) -> list[str] | None:
        try:
            return await self._session.children(path, self._children_fired)
        except NoSuchNodeError:
            return None

    async def _until_answered(
        self, path: str, kind: _Kind, ask: Callable[[], Coroutine[object, object, T]]
    ) -> T | None:
        while not self._cancelled and self._session.state is not SessionState.CLOSED:
            try:
                async with self._slots:
                    return await ask()
            except MetadataUnavailableError:
                await asyncio.sleep(_RETRY_S)
            except MetadataError as error:
                if (path, kind) not in self._refused:
                    log.warning(events.NODE_NOT_WATCHED, path=path, reason=str(error))
                    self._refused.add((path, kind))
                    self._start(self._look_later(path, kind), path)
                return None
        return None

    async def _look_later(self, path: str, kind: _Kind) -> None:
        await asyncio.sleep(REFUSED_S)
        self._refused.discard((path, kind))
        if path == self._prefix and kind is _Kind.VALUE:
            self._set.discard((path, kind))  # no watch on a parent reports its return
        look = self._look_at_value if kind is _Kind.VALUE else self._look_at_children
        await look(path, report=True)

    def _value_fired(self, event: WatchEvent) -> None:
        self._set.discard((event.path, _Kind.VALUE))
        look = self._start_look(self._look_at_value(event.path, report=True), event.path)
        if look is not None and event.kind is not WatchKind.UNKNOWN:
            self._changing[event.path] = look
            look.add_done_callback(partial(self._looked, event.path))

    def _children_fired(self, event: WatchEvent) -> None:
        self._set.discard((event.path, _Kind.CHILDREN))
        self._start_look(self._look_at_children(event.path, report=True), event.path)

    def _looked(self, path: str, look: asyncio.Task[None]) -> None:
        if self._changing.get(path) is look:
            del self._changing[path]

    def _start_look(self, work: Coroutine[object, object, None], path: str) -> asyncio.Task[None] | None:
        if (task := self._start(work, path)) is not None:
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)
        return task

    def _start(self, work: Coroutine[object, object, None], path: str) -> asyncio.Task[None] | None:
        if self._cancelled or self._session.state is SessionState.CLOSED:
            work.close()
            return None
        return self._background.start(work, f"watch {path}")
