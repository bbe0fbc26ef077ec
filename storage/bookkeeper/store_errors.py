"""Maps the errors of the BookKeeper client to the errors of storage."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar.bookkeeper import errors as client
from magnetar.storage.errors import (
    CorruptEntryError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchLedgerError,
    StorageClosedError,
    StorageError,
    StorageUnavailableError,
)
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_storage_error", "storage_errors"]

_OF_LEDGERS: dict[type[client.LedgerError], type[NoSuchLedgerError | LedgerFencedError | LedgerClosedError]] = {
    client.NoSuchLedgerError: NoSuchLedgerError,
    client.LedgerFencedError: LedgerFencedError,
    client.LedgerClosedError: LedgerClosedError,
}
_UNAVAILABLE = (
    client.AddTimeoutError,
    client.BookieError,
    client.MetadataUnavailableError,
    client.NotEnoughBookiesError,
    client.ReadFailedError,
    client.RecoveryFailedError,
)


def as_storage_error(error: client.BookKeeperError) -> StorageError:
    """Map an error of the client to the engine's error."""
    if isinstance(error, client.LedgerError):
        known = _OF_LEDGERS.get(type(error))
        if known is not None:
            return known(error.ledger_id)
    if isinstance(error, client.DamagedEntryError | client.NoSuchEntryError):
        # the metadata of the ledger cover the entry and no replica holds it: readers treat a lost entry as damaged
        return CorruptEntryError(Position(error.ledger_id, error.entry_id), error.detail)
    if isinstance(error, client.ClientClosedError):
        return StorageClosedError(str(error))
    return (StorageUnavailableError if isinstance(error, _UNAVAILABLE) else StorageError)(str(error))


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Raise every error of the client that leaves the block as a StorageError."""
    try:
        yield
    except client.BookKeeperError as error:
        raise as_storage_error(error) from error
