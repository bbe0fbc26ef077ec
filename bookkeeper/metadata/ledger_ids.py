"""Draws ledger ids as BookKeeper does, so that clients of both kinds never draw the same id.

An id is the number of an ephemeral sequential node below ``idgen``. When the 31 bits of these nodes are used up, the
directory ``idgen-long`` appears: its children ``HOB-nnnnnnnnnn`` are the high 32 bits, sequential nodes in the newest
child are the low bits.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import MetadataError, MetadataRequestError, NodeExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession

__all__ = ["LedgerIds"]

_LOW_BITS = 31
_HIGH_PREFIX = "HOB-"


class LedgerIds:
    """`root` is the root of the ledgers' metadata; `later` runs a coroutine in the background."""

    def __init__(
        self,
        session: ZooKeeperSession,
        root: str,
        later: Callable[[Coroutine[object, object, None], str], object],
    ) -> None:
        self._session, self._root, self._later = session, root, later
        self._long = False

    async def next(self) -> int:
        """Return a new id, usually after two round trips; the deletion of the sequential node runs in the background.

        Raises MetadataError.
        """
        if not self._long:
            if await self._session.exists(f"{self._root}/idgen-long") is None:
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
        path = await self._session.create(f"{directory}/ID-", ephemeral=True, sequential=True, make_parents=True)
        self._later(self._forget(path), "ledger id")
        return int(path.rpartition("ID-")[2])

    async def _forget(self, path: str) -> None:
        with contextlib.suppress(MetadataError):  # the node is ephemeral: it vanishes with the session at the latest
            await self._session.delete(path)
