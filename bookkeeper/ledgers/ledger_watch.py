"""A watch on the metadata of a ledger with a writer: when another client recovers the ledger, the writer fails at once.

The watch is no proof of ownership (``owned_metadata`` has the proof): without the watch an idle writer would fail only
at its next add. A watch fires once; then a short task sets the next watch and, if the version has changed, checks that
the writer still owns the ledger.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

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
    """Watches the ledger from ``start`` until the writer is closed or fails."""

    def __init__(self, writer: WatchedLedger, context: LedgerContext) -> None:
        self._writer, self._context = writer, context

    def start(self) -> None:
        if self._writer.is_open:
            self._context.background.start(self._look(), f"watch ledger {self._writer.ledger_id}")

    async def _look(self) -> None:
        writer, retry_s = self._writer, _RETRY_S
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
