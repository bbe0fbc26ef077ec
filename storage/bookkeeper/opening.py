"""Open the engine on a ZooKeeper session that the broker's metadata use as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.bookkeeper.client import BookKeeper
from magnetar.storage.bookkeeper.ledger_store import BookKeeperLedgerStore
from magnetar.storage.bookkeeper.store_errors import storage_errors
from magnetar.storage.entry_cache import EntryCache

if TYPE_CHECKING:
    from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
    from magnetar.storage.bookkeeper.store_settings import BookKeeperSettings

__all__ = ["open_bookkeeper_ledgers"]


async def open_bookkeeper_ledgers(
    session: ZooKeeperSession, root: str, settings: BookKeeperSettings
) -> BookKeeperLedgerStore:
    """The ledgers of the BookKeeper cluster whose metadata stand below `root` (``/ledgers``). The session stays the
    caller's: close the store first.

    Raises StorageUnavailableError, StorageError (there is no such cluster).
    """
    with storage_errors():
        client = await BookKeeper.over(session, root, settings.client)
    return BookKeeperLedgerStore(client, settings, EntryCache(settings.cache_bytes))
