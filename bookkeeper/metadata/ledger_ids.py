"""Draws ledger ids as BookKeeper does, so that clients of both kinds never draw the same id.

An id is the number of an ephemeral sequential node below ``idgen``. When the 31 bits of these nodes are used up, the
directory ``idgen-long`` appears: its children ``HOB-nnnnnnnnnn`` are the high 32 bits, sequential nodes in the newest
child are the low bits.

Writes are the limit of ZooKeeper. Callers that arrive while a draw is under way share the next draw, which is one
transaction; so do the deletions of drawn nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import MetadataError, MetadataRequestError, NodeExistsError, NoSuchNodeError
from magnetar.bookkeeper.zookeeper.values import Create, Delete

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession

__all__ = ["LedgerIds"]

_LOW_BITS = 31
_HIGH_PREFIX = "HOB-"
_TOGETHER = 64
"""The most nodes of one transaction."""
_PAUSE_S = 0.05
"""Drawn nodes are deleted this much later, together with those of the same time."""


class LedgerIds:
    """`root` is the root of the ledgers' metadata; `later` runs a coroutine in the background."""

    def __init__(
        self,
        session: ZooKeeperSession,
        root: str,
        later: Callable[[Coroutine[object, object, None], str], object],
    ) -> None:
        self._session, self._root, self._later = session, root, later
        self._long: bool | None = None
        """Whether ``idgen-long`` exists; None before the first look. The directory appears when the numbers below
        ``idgen`` are used up, so a directory that was absent is noticed by the numbers.
        """
        self._sources: dict[str, _NumberSource] = {}

    async def look(self) -> None:
        """Learn which directory has the numbers, ahead of the first id. Raises MetadataError."""
        if self._long is None:
            self._long = await self._session.exists(f"{self._root}/idgen-long") is not None

    async def next(self) -> int:
        """Return a new id, usually after one round trip; the deletion of the sequential node runs in the background.

        Raises MetadataError.
        """
        if not self._long:
            await self.look()
            if not self._long:
                number = await self._draw(f"{self._root}/idgen")
                if 0 <= number < (1 << _LOW_BITS) - 1:
                    return number
                with contextlib.suppress(NodeExistsError):
                    await self._session.create(f"{self._root}/idgen-long")
            self._long = True
        return await self._next_long()

    async def _next_long(self) -> int:
        directory = f"{self._root}/idgen-long"
        for _ in range(3):
            highs = [int(name[len(_HIGH_PREFIX) :]) for name in await self._high_parts(directory)]
            high = max(highs, default=0)
            if high:
                low = await self._draw(f"{directory}/{_HIGH_PREFIX}{high:010d}")
                if 0 <= low < (1 << _LOW_BITS) - 1:
                    return high << 32 | low
            with contextlib.suppress(NodeExistsError):
                await self._session.create(f"{directory}/{_HIGH_PREFIX}{high + 1:010d}")
        raise MetadataRequestError(directory, "no ledger id could be drawn")

    async def _high_parts(self, directory: str) -> list[str]:
        names = await self._session.children(directory)
        return [n for n in names if n.startswith(_HIGH_PREFIX) and n[len(_HIGH_PREFIX) :].isdecimal()]

    async def _draw(self, directory: str) -> int:
        source = self._sources.get(directory)
        if source is None:
            source = self._sources[directory] = _NumberSource(self._session, directory, self._later)
        return await source.next()


class _NumberSource:
    """The numbers of the ephemeral sequential nodes of one directory."""

    def __init__(
        self,
        session: ZooKeeperSession,
        directory: str,
        later: Callable[[Coroutine[object, object, None], str], object],
    ) -> None:
        self._session, self._prefix, self._later = session, f"{directory}/ID-", later
        self._turn = asyncio.Lock()
        self._waiting: list[asyncio.Future[int]] = []
        self._drawn: list[str] = []
        self._deleting = False

    async def next(self) -> int:
        """Return a number that no caller has got before. Raises MetadataError."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        try:
            async with self._turn:
                if not answer.done():
                    await self._answer_waiting()
            return await answer
        except BaseException:
            answer.cancel()  # no number is drawn for a caller that is gone
            raise

    async def _answer_waiting(self) -> None:
        answers = [each for each in self._waiting if not each.done()][:_TOGETHER]
        try:
            paths = await self._create(len(answers))
        except MetadataError as error:
            for each in answers:
                if not each.done():
                    each.set_exception(error)
                    each.exception()  # mark as retrieved: the caller may be cancelled before it reads the answer
        else:
            for each, path in zip(answers, paths, strict=True):
                if not each.done():
                    each.set_result(int(path.rpartition("ID-")[2]))
            self._drawn += paths
            if not self._deleting:
                self._deleting = True
                self._later(self._delete_drawn(), "ledger ids")
        finally:
            self._waiting = [each for each in self._waiting if not each.done()]

    async def _create(self, count: int) -> list[str]:
        node = Create(self._prefix, ephemeral=True, sequential=True)
        if count > 1:
            with contextlib.suppress(NoSuchNodeError):
                return [str(path) for path in await self._session.commit([node] * count)]
        first = await self._session.create(self._prefix, ephemeral=True, sequential=True, make_parents=True)
        return [first] if count == 1 else [first, *map(str, await self._session.commit([node] * (count - 1)))]

    async def _delete_drawn(self) -> None:
        try:
            while self._drawn:
                await asyncio.sleep(_PAUSE_S)
                paths, self._drawn = self._drawn[:_TOGETHER], self._drawn[_TOGETHER:]
                try:
                    await self._session.commit([Delete(path) for path in paths])
                except MetadataError:  # no node was deleted
                    for path in paths:
                        with contextlib.suppress(MetadataError):  # the node vanishes with the session at the latest
                            await self._session.delete(path)
        finally:
            self._deleting = False
