"""The ledger list of one managed ledger in the metadata store.

Record: ``ManagedLedgerInfo`` of Apache Pulsar (``managed_ledger_records.proto``) at ``/managed-ledgers/<name>``;
protobuf, so that fields can be added. Every change is a compare-and-set on the record's version; whoever loses one has
lost the managed ledger to another owner.

Rules kept here:

- a ledger is in the stored list before its first append, and out of it before it is deleted;
- a ledger with timestamp 0 was open: it is recovered (fenced) at the next opening, be it the last one or not;
- ``properties["index"]`` is a floor for the next broker index, written together with the removal of ledgers. It matters
  only when the entries that would tell the index are gone (Pulsar: ManagedLedgerInterceptorImpl, key ``index``).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.storage.errors import (
    BadVersionError,
    LedgerListError,
    ManagedLedgerFencedError,
    NoNodeError,
    NoSuchManagedLedgerError,
)
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedLedgerInfo
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.interfaces import MetadataStore

__all__ = ["INDEX_PROPERTY", "ROOT", "LedgerList", "ledger_list_path"]

ROOT = "/managed-ledgers"
INDEX_PROPERTY = "index"


def ledger_list_path(name: str) -> str:
    """Where the list of a managed ledger is kept; ``name`` is ``tenant/namespace/persistent/<encoded topic>``."""
    return f"{ROOT}/{name}"


class LedgerList:
    """The list in memory (``ledgers``, ``ahead``, ``terminated``, ``properties``) and its stored copy."""

    def __init__(self, name: str, metadata: MetadataStore) -> None:
        self.name = name
        self.path = ledger_list_path(name)
        self.ledgers = LedgerMap()
        self.ahead: int | None = None
        """A ledger created before it is needed: in the stored list, not yet in ``ledgers``."""
        self.terminated: Position | None = None
        self.properties: dict[str, str] = {}
        self.created_ms = 0
        self.index_floor: Callable[[], int] = lambda: -1
        """Current broker index of the last confirmed entry; stored with every change."""
        self.fenced = False
        self._metadata = metadata
        self._version = -1
        self._lock = asyncio.Lock()

    async def load(self, now_ms: int, *, create_if_missing: bool) -> bool:
        """Read the record, or create an empty one; whether it was there. Raises NoSuchManagedLedgerError,
        LedgerListError, BadVersionError when another owner creates it in this moment.
        """
        found = await self._metadata.get(self.path)
        if found is not None:
            value, self._version = found
            self._decode(value)
        elif create_if_missing:
            self.created_ms = now_ms
            self._version = await self._metadata.put(self.path, self._encode(), MUST_NOT_EXIST)
        else:
            raise NoSuchManagedLedgerError(self.name)
        return found is not None

    async def save(self) -> None:
        """Store the list as it is when its turn comes; durable on return.

        Raises ManagedLedgerFencedError when another owner changed it, StorageError when it could not be written.
        """
        async with self._lock:
            if self.fenced:
                raise ManagedLedgerFencedError(self.name)
            try:
                self._version = await self._metadata.put(self.path, self._encode(), self._version)
            except BadVersionError as error:
                self.fenced = True
                raise ManagedLedgerFencedError(self.name) from error

    async def delete(self) -> None:
        async with self._lock:
            try:
                await self._metadata.delete(self.path, self._version)
            except NoNodeError:
                return
            except BadVersionError as error:
                self.fenced = True
                raise ManagedLedgerFencedError(self.name) from error

    def _encode(self) -> bytes:
        record = ManagedLedgerInfo(createdMs=self.created_ms)
        for slot in self.ledgers.slots:
            info = record.ledgerInfo.add(
                ledgerId=slot.ledger_id, entries=slot.entries, size=slot.size_bytes, timestamp=slot.closed_at_ms
            )
            if not slot.closed_at_ms:
                info.entries = info.size = 0
            for key, value in slot.properties.items():
                info.properties.add(key=key, value=value)
        if self.ahead is not None:
            record.ledgerInfo.add(ledgerId=self.ahead, entries=0, size=0, timestamp=0)
        if self.terminated is not None:
            record.terminatedPosition.ledgerId, record.terminatedPosition.entryId = self.terminated
        index = max(self.index_floor(), int(self.properties.get(INDEX_PROPERTY, -1)))
        if index >= 0:
            self.properties[INDEX_PROPERTY] = str(index)
        for key, value in self.properties.items():
            record.properties.add(key=key, value=value)
        return record.SerializeToString()

    def _decode(self, value: bytes) -> None:
        try:
            record = ManagedLedgerInfo.FromString(value)
        except DecodeError as error:
            raise LedgerListError(f"{self.path}: {error}") from error
        self.created_ms = record.createdMs
        self.properties = {item.key: item.value for item in record.properties}
        if record.HasField("terminatedPosition"):
            self.terminated = Position(record.terminatedPosition.ledgerId, record.terminatedPosition.entryId)
        self.ledgers = LedgerMap(
            LedgerSlot(
                info.ledgerId,
                info.entries,
                info.size,
                info.timestamp,
                {item.key: item.value for item in info.properties},
            )
            for info in record.ledgerInfo
        )
