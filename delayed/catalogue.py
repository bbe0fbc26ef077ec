"""The catalogue: one record per topic that names its buckets, replaced as a whole by compare-and-set.

The catalogue is the commit point: a bucket exists when the catalogue names it. The catalogue names a snapshot's ledger
in ``doomed`` from before the ledger's first entry until the snapshot is a bucket or the ledger is deleted, so the next
opening finds every ledger that a crash leaves.

Bytes: ``MDC1`` | u32 crc32c (little-endian) of the rest | JSON.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

import msgspec

from magnetar.delayed.errors import CatalogueConflictError, CatalogueError
from magnetar.delayed.snapshot_store import COMPONENT
from magnetar.protocol.checksum import crc32c
from magnetar.storage.errors import BadVersionError, NoNodeError, StorageError
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.managed.orphaned_ledgers import Verdict
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.delayed.delay_ports import Records
    from magnetar.storage.interfaces import MetadataStore


__all__ = ["BucketRecord", "Catalogue", "CatalogueRecord", "SnapshotReferences", "catalogue_path", "decode", "encode"]

FORMAT = 1
_MAGIC = b"MDC1"
_MOST_UNANSWERED = 8
"""The most writes without an answer that the owner recognises later."""


class BucketRecord(msgspec.Struct, frozen=True):
    """One immutable bucket."""

    ledger_id: int
    """The ledger of the snapshot."""
    count: int
    first: tuple[int, int]
    """Smallest position within."""
    last: tuple[int, int]
    min_time: int
    max_time: int
    size_bytes: int
    entries: int = 0
    """The number of entries of the snapshot's ledger; the last entry is the header."""
    bitmap_entries: int = 0
    """The number of bitmap entries, which come before the header."""

    @property
    def range(self) -> tuple[Position, Position]:
        return Position(*self.first), Position(*self.last)


class CatalogueRecord(msgspec.Struct, frozen=True):
    """The whole record."""

    format: int = FORMAT
    buckets: tuple[BucketRecord, ...] = ()
    coverage: tuple[tuple[int, int, int, int], ...] = ()
    """Ranges of the log for which the buckets hold every delayed entry."""
    doomed: tuple[int, ...] = ()
    """Ledgers that are to be deleted."""
    cancelled: dict[str, bytes] = {}
    """Ledger id -> roaring bitmap of the entries that were cancelled."""


def encode(record: CatalogueRecord) -> bytes:
    data = msgspec.json.encode(record)
    return _MAGIC + crc32c(data).to_bytes(4, "little") + data


def decode(value: bytes) -> CatalogueRecord:
    """Raises CatalogueError."""
    if value[:4] != _MAGIC or int.from_bytes(value[4:8], "little") != crc32c(value[8:]):
        raise CatalogueError("magic or checksum")
    try:
        record = msgspec.json.decode(value[8:], type=CatalogueRecord)
    except msgspec.DecodeError as error:
        raise CatalogueError(str(error)) from error
    if record.format != FORMAT:
        raise CatalogueError(f"format {record.format}, {FORMAT} expected")
    return record


def catalogue_path(topic: str) -> str:
    return f"/delayed-index/{quote(topic, safe='')}"


class LogWithRecords(Protocol):
    """The log of the topic."""

    @property
    def records(self) -> Records: ...


class Catalogue:
    """The stored record of one topic and its version. One writer."""

    def __init__(self, log: LogWithRecords, topic: str) -> None:
        self.path = catalogue_path(topic)
        self.exists = False
        self._log = log
        self._version = MUST_NOT_EXIST
        self._unanswered: tuple[bytes, ...] = ()
        """Records whose writes got no answer since the last answer; the store may carry out one of them later."""

    async def load(self) -> CatalogueRecord | None:
        """Read the stored record; None without a record. Raises StorageError; CatalogueError for a damaged record,
        which `save` may then replace.
        """
        found = await self._log.records.get(self.path)
        if found is None:
            self._version, self.exists = MUST_NOT_EXIST, False
            return None
        value, self._version = found
        self.exists = True
        return decode(value)

    async def save(self, record: CatalogueRecord) -> None:
        """Replace the record; durable on return. One call at a time.

        Raises StorageError when the outcome of the write is unknown: a later call determines the outcome.
        Raises CatalogueConflictError when another owner wrote.
        """
        value = encode(record)
        for _ in range(2):
            try:
                version = await self._log.records.put(self.path, value, self._version)
            except BadVersionError:
                await self._find_out()
                continue
            except BaseException as error:  # also for a cancelled caller the outcome is unknown
                self._unanswered = (*self._unanswered, value)[-_MOST_UNANSWERED:]
                if not isinstance(error, StorageError) or await self._find_out() != value:
                    raise
            else:
                self._stored(version)
            return
        raise CatalogueConflictError(self.path)

    async def _find_out(self) -> bytes | None:
        """Return the own record that the store has carried out since the last answer, None if there is none. Raises
        CatalogueConflictError when the store has a record of another owner.
        """
        found = await self._log.records.get(self.path)
        version = MUST_NOT_EXIST if found is None else found[1]
        if version == self._version:
            return None
        if found is None or found[0] not in self._unanswered:
            raise CatalogueConflictError(self.path)
        self._stored(version)
        return found[0]

    def _stored(self, version: int) -> None:
        self._version, self._unanswered, self.exists = version, (), True

    async def delete(self) -> None:
        """Delete the record, durable on return; no-op without a record."""
        with contextlib.suppress(NoNodeError):
            await self._log.records.delete(self.path)
        self._version, self.exists, self._unanswered = MUST_NOT_EXIST, False, ()


class SnapshotReferences:
    """See ``storage.orphaned_ledgers.References``."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def verdict(self, ledger_id: int, properties: Mapping[str, str]) -> Verdict | None:
        if properties.get("component") != COMPONENT:
            return None
        name = properties.get("pulsar/managed-ledger")
        if name is None:
            return Verdict.UNKNOWN
        found = await self._metadata.get(catalogue_path(name))
        if found is None:
            return Verdict.OWNERLESS
        try:
            record = decode(found[0])
        except CatalogueError:
            return Verdict.UNKNOWN
        named = ledger_id in record.doomed or any(bucket.ledger_id == ledger_id for bucket in record.buckets)
        return Verdict.NAMED if named else Verdict.FREE
