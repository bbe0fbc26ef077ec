"""The engine's own metadata: the ledgers and their states.

::

    /store                      {"id": hex}: binds metadata and files of one data directory
    /ledger-ids                 sequence, taken in ranges: an id is never used again
    /ledgers/<id, 19 digits>    {"state": "open" | "closed", "last": entry, "bytes": n, "properties": {...}}
    /deleted-ledgers/<id>       a deleted ledger, whose file may still exist
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from magnetar.storage.errors import BadVersionError, NoNodeError, NoSuchLedgerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.storage.embedded.ledger_state import LedgerState
    from magnetar.storage.interfaces import MetadataStore

__all__ = [
    "DELETED_ROOT",
    "IDS_PATH",
    "LEDGERS_ROOT",
    "LedgerCatalog",
    "LedgerNode",
    "encode_open_node",
    "end_of",
    "ledger_path",
    "properties_of",
]

LEDGERS_ROOT = _LEDGERS = "/ledgers"
DELETED_ROOT = _DELETED = "/deleted-ledgers"
IDS_PATH = _IDS = "/ledger-ids"
_ID_RANGE = 64


class LedgerNode:
    """A ledger's metadata."""

    __slots__ = ("closed", "last_entry_id", "length_bytes", "properties", "version")

    def __init__(self, value: bytes, version: int) -> None:
        fields = json.loads(value)
        self.closed: bool = fields["state"] == "closed"
        self.last_entry_id: int = fields.get("last", -1)
        self.length_bytes: int = fields.get("bytes", 0)
        self.properties: dict[str, str] = fields.get("properties", {})
        self.version = version


class LedgerCatalog:
    """Reads and writes these nodes. Every write is durable when its await returns."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next_id = 0
        self._end_id = 0
        self._floor = -1

    def reserve(self, ledger_id: int) -> None:
        """Give out only ids above ``ledger_id``, whatever the sequence in the metadata is."""
        self._floor = max(self._floor, ledger_id)

    async def new_id(self) -> int:
        """Return an id greater than every id returned before, also by earlier processes."""
        while self._next_id >= self._end_id:
            first = await self._metadata.next_sequence(_IDS, _ID_RANGE)
            if first <= self._floor:
                await self._metadata.next_sequence(_IDS, self._floor + 1 - first)
                continue
            # Two callers may have waited here at once: the greater range wins, so ids only grow.
            if first >= self._end_id:
                self._next_id, self._end_id = first, first + _ID_RANGE
        ledger_id = self._next_id
        self._next_id += 1
        return ledger_id

    async def add(self, ledger_id: int, properties: Mapping[str, str]) -> int:
        """Record a new open ledger; returns its version."""
        return await self._metadata.put(ledger_path(ledger_id), encode_open_node(properties), -1)

    async def close(self, ledger: LedgerState) -> int:
        """Record that the ledger's end is final; returns its version.

        A caller that was cancelled may call again: its write may have been made, and counts then.
        """
        fields = {
            "state": "closed",
            "last": ledger.last_confirmed,
            "bytes": ledger.length_bytes,
            "properties": ledger.properties,
        }
        path, value = ledger_path(ledger.ledger_id), json.dumps(fields).encode()
        try:
            return await self._metadata.put(path, value, ledger.metadata_version)
        except BadVersionError:
            found = await self._metadata.get(path)
            if found is None or found[0] != value:
                raise
            return found[1]

    async def get(self, ledger_id: int) -> LedgerNode:
        """Raises NoSuchLedgerError."""
        found = await self._metadata.get(ledger_path(ledger_id))
        if found is None:
            raise NoSuchLedgerError(ledger_id)
        return LedgerNode(*found)

    async def ids(self) -> list[int]:
        """The ids of all ledgers, ascending."""
        return sorted(map(int, await self._metadata.children(_LEDGERS)))

    async def begin_delete(self, ledger_id: int) -> bool:
        """Remove the ledger from the catalogue and note the deletion; return False for an unknown ledger.

        When another caller deletes the same ledger, the note stays until that caller has removed the file. Without the
        note a start would find a file with entries of a ledger that the metadata lack.
        """
        if await self._metadata.get(ledger_path(ledger_id)) is None:
            return False
        await self._metadata.put(f"{_DELETED}/{ledger_id:019d}", b"")
        try:
            await self._metadata.delete(ledger_path(ledger_id))
        except NoNodeError:
            return False
        return True

    async def end_delete(self, ledger_id: int) -> None:
        """Remove the note of the deletion. Call after the ledger's file is removed."""
        try:
            await self._metadata.delete(f"{_DELETED}/{ledger_id:019d}")
        except NoNodeError:
            return

    async def half_deleted(self) -> list[int]:
        """The ids of deleted ledgers whose file may still exist, ascending."""
        return sorted(map(int, await self._metadata.children(_DELETED)))


def ledger_path(ledger_id: int) -> str:
    """The path of a ledger's node."""
    return f"{_LEDGERS}/{ledger_id:019d}"


def encode_open_node(properties: Mapping[str, str]) -> bytes:
    """The value of the node of an open ledger, or of a ledger that was open when its process ended."""
    return json.dumps({"state": "open", "properties": dict(properties)}).encode()


def properties_of(node: tuple[bytes, int] | None) -> dict[str, str]:
    """The properties with which the ledger of this node was created."""
    return LedgerNode(*node).properties if node is not None else {}


def end_of(node: tuple[bytes, int] | None) -> tuple[int, int] | None:
    """(entries, length in bytes) of the closed ledger of this node; None: the ledger is open, or has no node."""
    found = LedgerNode(*node) if node is not None else None
    return (found.last_entry_id + 1, found.length_bytes) if found is not None and found.closed else None
