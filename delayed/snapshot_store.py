"""Snapshots of buckets as ledgers of the ledger store: written once, closed, read by the segment, deleted."""

from __future__ import annotations

import contextlib
from array import array
from typing import TYPE_CHECKING

from magnetar.delayed.errors import SnapshotError
from magnetar.protocol.speed import stamp
from magnetar.storage.errors import CorruptEntryError, NoSuchEntryError, NoSuchLedgerError, StorageError
from magnetar.storage.managed.slab_append import append_slab
from magnetar.storage.slab import Slab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.interfaces import LedgerStore, LedgerWriter

__all__ = ["COMPONENT", "SnapshotStore", "SnapshotWriter"]

COMPONENT = "delayed-index-bucket"
"""Property ``component`` of a snapshot's ledger."""
_APPEND_BYTES = 1 << 20


class SnapshotStore:
    """The snapshots of one topic."""

    def __init__(self, ledgers: LedgerStore, topic: str) -> None:
        self._ledgers = ledgers
        self._properties = {
            "application": "pulsar",
            "component": COMPONENT,
            "pulsar/managed-ledger": topic,
        }

    async def create(self) -> SnapshotWriter:
        """Return the writer of a new snapshot. Before the first append the caller records the ledger, so that the
        ledger is found and deleted if the snapshot is never finished. Raises StorageError.
        """
        return SnapshotWriter(await self._ledgers.create(self._properties))

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """Return the entries first .. last. Raises SnapshotError when a segment is missing or damaged; other
        StorageErrors pass.
        """
        found: list[bytes] = []
        try:
            while first + len(found) <= last:
                entry = first + len(found)
                for slab in await self._ledgers.read(ledger_id, entry, last, _APPEND_BYTES):
                    span = slab.span(entry, last)
                    found += [bytes(span.body(k)) for k in range(span.entries)]
                    entry = slab.last_entry_id + 1
        except (NoSuchLedgerError, NoSuchEntryError, CorruptEntryError) as error:
            raise SnapshotError(str(error), ledger_id) from error
        return found

    async def delete(self, ledger_id: int) -> None:
        """Delete a snapshot's ledger, durable on return; no-op when the ledger does not exist. Raises StorageError."""
        try:
            await self._ledgers.delete(ledger_id)
        except NoSuchLedgerError:
            return


class SnapshotWriter:
    """Writes one snapshot, which is durable and closed when `close` has returned; after a failure call `abandon`."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self.ledger_id = writer.ledger_id

    async def append(self, entries: Sequence[bytes]) -> None:
        """Append entries. Raises StorageError."""
        start, size = 0, 0
        for k, entry in enumerate(entries):
            size += len(entry)
            if size >= _APPEND_BYTES or k + 1 == len(entries):
                await _append(self._writer, entries[start : k + 1])
                start, size = k + 1, 0

    async def close(self) -> int:
        """Close the ledger and return its size in bytes. Raises StorageError."""
        return (await self._writer.close()).length_bytes

    async def abandon(self) -> None:
        """Close the writer of the ledger; its creator deletes the ledger."""
        with contextlib.suppress(StorageError):
            await self._writer.close()


async def _append(writer: LedgerWriter, entries: Sequence[bytes]) -> None:
    first, count = writer.last_add_pushed + 1, len(entries)
    offsets = array("q", [0])
    for entry in entries:
        offsets.append(offsets[-1] + len(entry))
    data, records = stamp(
        b"".join(entries),
        offsets.tobytes(),
        array("q", [1] * count).tobytes(),
        0,
        count,
        writer.ledger_id,
        first,
        writer.record_proof,
        -1,
        -2,
    )
    await append_slab(writer, Slab(writer.ledger_id, first, data, records))
