"""The ledger list of one managed ledger in the metadata store.

Record: at ``/managed-ledgers/<name>``, in the bytes of the factory's layout (``stored_layout.py``). Every change is a
compare-and-set on the record's version; a broker whose compare-and-set fails has lost the managed ledger to another.

Rules kept here:

- the stored list names a ledger before its first append, and no longer names it before its deletion;
- a ledger with timestamp 0 was open: the next opening recovers (fences) it, whether it is the last ledger or not;
- ``properties["index"]`` is a floor for the next broker index, written together with the removal of ledgers. It matters
  only when the entries with the index are gone (Pulsar: ManagedLedgerInterceptorImpl, key ``index``).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.storage.errors import (
    BadVersionError,
    LedgerListError,
    ManagedLedgerFencedError,
    NoNodeError,
    NoSuchManagedLedgerError,
)
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.managed.stored_layout import ListRecord, OwnLayout

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.interfaces import MetadataStore
    from magnetar.storage.managed.stored_layout import StoredLayout
    from magnetar.storage.position import Position

__all__ = ["INDEX_PROPERTY", "ROOT", "LedgerList", "ledger_list_path"]

ROOT = "/managed-ledgers"
INDEX_PROPERTY = "index"


def ledger_list_path(name: str) -> str:
    """The path of a managed ledger's list; ``name`` is ``tenant/namespace/persistent/<encoded topic>``."""
    return f"{ROOT}/{name}"


class LedgerList:
    """The list in memory (``ledgers``, ``ahead``, ``terminated``, ``properties``) and its stored copy."""

    def __init__(self, name: str, metadata: MetadataStore, layout: StoredLayout | None = None) -> None:
        self.name = name
        self.path = ledger_list_path(name)
        self.ledgers = LedgerMap()
        self.ahead: int | None = None
        """A ledger created before it is needed: in the stored list, not yet in ``ledgers``."""
        self.terminated: Position | None = None
        self.properties: dict[str, str] = {}
        self.created_ms = 0
        self.index_floor: Callable[[], int] = lambda: -1
        """Returns the broker index of the last confirmed entry; every save stores it."""
        self.fenced = False
        self.in_doubt = False
        """Whether a save got no answer: the stored list may then be of this owner, with a version that is not known."""
        self._metadata = metadata
        self._layout = layout or OwnLayout()
        self._version = -1
        self._lock = asyncio.Lock()

    async def load(self, now_ms: int, *, create_if_missing: bool) -> bool:
        """Read the record, or create an empty record; returns whether the record existed. Raises
        NoSuchManagedLedgerError, LedgerListError, BadVersionError when another owner creates the record at the same
        moment.
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
        """Store the list, durable on return. Saves run one after the other; each stores the list as it is when it
        begins.

        Raises ManagedLedgerFencedError when another owner changed the stored list, StorageError when the write failed.
        """
        async with self._lock:
            if self.fenced:
                raise ManagedLedgerFencedError(self.name)
            self.in_doubt = True
            try:
                self._version = await self._metadata.put(self.path, self._encode(), self._version)
            except BadVersionError as error:
                self.fenced = True
                raise ManagedLedgerFencedError(self.name) from error
            self.in_doubt = False

    async def is_taken_over(self) -> bool:
        """Whether another owner has changed the stored list; later saves then fail. Raises StorageError."""
        async with self._lock:
            found = await self._metadata.get(self.path)
            self.fenced = self.fenced or found is None or found[1] != self._version
            return self.fenced

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
        index = max(self.index_floor(), int(self.properties.get(INDEX_PROPERTY, -1)))
        if index >= 0:
            self.properties[INDEX_PROPERTY] = str(index)
        slots = self.ledgers.slots if self.ahead is None else [*self.ledgers.slots, LedgerSlot(self.ahead)]
        return self._layout.encode_list(ListRecord(slots, self.terminated, self.properties, self.created_ms))

    def _decode(self, value: bytes) -> None:
        try:
            record = self._layout.decode_list(value)
        except LedgerListError as error:
            raise LedgerListError(f"{self.path}: {error}") from error
        self.created_ms = record.created_ms
        self.properties = record.properties
        self.terminated = record.terminated
        self.ledgers = LedgerMap(record.ledgers)
