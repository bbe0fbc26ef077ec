"""Ledgers that an attempt has created and no stored record names yet; deleted before the next attempt creates a ledger.

A record names a new ledger only when the ledger holds its first content, so an attempt that fails in between (a full
disk) leaves an unlisted ledger. The owner may repeat the attempt every second, and each attempt would leave one more
ledger until the sweep after the next start. With this class at most one such ledger remains, after any number of failed
attempts.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from magnetar.storage.interfaces import LedgerStore, LedgerWriter

    StoreRecord = Callable[[], Awaitable[None]]

__all__ = ["UnlistedLedgers"]


class UnlistedLedgers:
    """The unlisted ledgers of an owner, which makes one attempt at a time.

    ``store_record`` writes the owner's record as it was before the attempt. After a failed write of the record the
    ledger that it names is unknown, so no ledger is deleted before ``store_record`` succeeds. Each call gets the
    function anew: a function of the owner that stayed here would be a reference cycle of each idle topic.
    """

    def __init__(self, ledgers: LedgerStore) -> None:
        self._ledgers = ledgers
        self._ids: list[int] = []
        self._in_doubt = False

    def __len__(self) -> int:
        return len(self._ids)

    async def create(self, properties: Mapping[str, str], store_record: StoreRecord) -> LedgerWriter:
        """A new ledger, unlisted until ``listed``. Raises StorageError, also when the ledger of an earlier attempt
        stays.
        """
        await self.delete(store_record)
        writer = await self._ledgers.create(properties)
        self.add(writer.ledger_id)
        return writer

    def add(self, ledger_id: int) -> None:
        """A record is to name this ledger, which its owner has created."""
        self._ids.append(ledger_id)

    def listed(self, ledger_id: int) -> None:
        """The stored record names the ledger."""
        if ledger_id in self._ids:
            self._ids.remove(ledger_id)
        self._in_doubt = False

    def record_in_doubt(self) -> None:
        """The write of the record that names a new ledger failed; the record may have been written all the same."""
        self._in_doubt = True

    async def delete(self, store_record: StoreRecord) -> None:
        """Delete the ledgers of earlier attempts. Raises StorageError."""
        if self._in_doubt and self._ids:
            await store_record()
        self._in_doubt = False
        for ledger_id in sorted(self._ids):
            await self._ledgers.delete(ledger_id)
            self._ids.remove(ledger_id)

    async def try_delete(self, store_record: StoreRecord) -> None:
        """Like ``delete``, but ignore a StorageError: the next attempt deletes the remaining ledgers."""
        with contextlib.suppress(StorageError):
            await self.delete(store_record)
