"""A watch on the metadata of a ledger with a writer: when another client recovers the ledger, the writer fails at once.

The watch is no proof of ownership (``owned_metadata`` has the proof): without the watch an idle writer would fail only
at its next add. A watch fires once; then a short task sets the next watch and, if the version has changed, checks that
the writer still owns the ledger.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from magnetar.bookkeeper.errors import LedgerError, MetadataError

if TYPE_CHECKING:
    from magnetar.bookkeeper.errors import BookKeeperError
    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.ledgers.owned_metadata import OwnedMetadata

__all__ = ["WATCHES_TOGETHER", "LedgerWatch", "WatchedLedger"]

WATCHES_TOGETHER = 64
"""Watches of a client that are set at the same time. After an outage those of all ledgers are due at once: requests of
all of them would delay other requests, and would reach their deadlines in one turn of the loop in a long outage.
"""
_RETRY_S = 0.5
_LONGEST_RETRY_S = 10.0


class WatchedLedger(Protocol):
    """The part of the writer that the watch uses."""

    ledger_id: int
    owned: OwnedMetadata

    @property
    def is_open(self) -> bool: ...

    def fail(self, error: BookKeeperError) -> None: ...


class LedgerWatch:
    """Watches the ledger from ``start`` until the writer is closed or fails. The last watch may stay with the metadata
    service until the deletion of the ledger, so it keeps no writer in memory.
    """

    def __init__(self, writer: WatchedLedger, context: LedgerContext) -> None:
        self._writer, self._context = ref(writer), context

    def start(self) -> None:
        writer = self._writer()
        if writer is not None and writer.is_open:
            self._context.background.start(self._look(writer), f"watch ledger {writer.ledger_id}")

    async def _look(self, writer: WatchedLedger) -> None:
        retry_s = _RETRY_S
        while writer.is_open:
            try:
                async with self._context.watch_slots:
                    version = await self._context.store.watch(writer.ledger_id, self.start)
                if version != writer.owned.version and writer.is_open:
                    await writer.owned.confirm()
            except MetadataError:
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
            except LedgerError as error:
                if writer.is_open:  # the writer's own close is a change too
                    writer.fail(error)
            else:
                return
