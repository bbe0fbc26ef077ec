"""Further records of a log, besides its list and its cursors: only the owner of the log changes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from magnetar.storage.interfaces import ANY_VERSION

if TYPE_CHECKING:
    from magnetar.storage.interfaces import MetadataStore
    from magnetar.storage.managed.ledger_list import LedgerList

__all__ = ["OwnedRecords"]


class OwnedRecords:
    """``MetadataStore`` states the guarantees of each method. When another owner has opened the log, ``put`` and
    ``delete`` raise ManagedLedgerFencedError and change nothing.
    """

    __slots__ = ("_list", "_metadata")

    def __init__(self, metadata: MetadataStore, ledger_list: LedgerList) -> None:
        self._metadata, self._list = metadata, ledger_list

    async def get(self, path: str) -> tuple[bytes, int] | None:
        return await self._metadata.get(path)

    async def put(self, path: str, value: bytes, expected_version: int | None = ANY_VERSION) -> int:
        return await self._list.guarded(partial(self._metadata.put, path, value, expected_version))

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        await self._list.guarded(partial(self._metadata.delete, path, expected_version))
