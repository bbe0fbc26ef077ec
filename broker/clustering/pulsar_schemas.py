"""Schemas in Apache Pulsar's layout: a locator in the metadata store, and a ledger for each version.

Order of writes: the ledger holds its entry before the locator names the ledger. If another broker stores the version
first, this broker deletes its own ledger. After a write of the locator without an answer the ledger stays: the locator
may name it.
"""

from __future__ import annotations

import contextlib
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from magnetar.broker.schemas.schema_store import StoredSchema
from magnetar.protocol.speed import stamp
from magnetar.storage.errors import NoNodeError, StorageError, StorageUnavailableError
from magnetar.storage.managed.slab_append import append_slab
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.schema_records import (
    SchemaPlace,
    SchemaRecord,
    decode_entry,
    decode_locator,
    encode_entry,
    encode_locator,
    hash_of,
)
from magnetar.storage.slab import Slab

if TYPE_CHECKING:
    from magnetar.storage.interfaces import LedgerStore, LedgerWriter, MetadataStore

__all__ = ["PulsarSchemas"]

_ROOT: Final = "/schemas/"
_COMPONENT: Final = "schema"
_MOST_REMEMBERED_BYTES: Final = 64 << 20
_RECORD_BYTES: Final = 1024
"""The bytes of a remembered record beside its text and its properties."""
_MOST_SCHEMA_BYTES: Final = 8 << 20
_NO_TIMESTAMP, _NO_INDEX = -1, -2


class PulsarSchemas:
    """See ``SchemaStore``. Locators are read each time: other brokers write them too. Entries never change."""

    def __init__(self, metadata: MetadataStore, ledgers: LedgerStore) -> None:
        self._metadata, self._ledgers = metadata, ledgers
        self._read: OrderedDict[Position, SchemaRecord] = OrderedDict()
        """Records that were read or written last, of _MOST_REMEMBERED_BYTES together: clients choose their sizes."""
        self._read_bytes = 0

    async def load(self, path: str) -> tuple[list[StoredSchema], int]:
        found = await self._metadata.get(path)
        if found is None:
            return [], -1
        schemas = []
        for place in decode_locator(found[0]):
            record = await self._entry(place.position)
            schemas.append(
                StoredSchema(
                    place.version,
                    record.kind,
                    record.text,
                    dict(record.properties),
                    record.timestamp_ms,
                    record.deleted,
                )
            )
        return schemas, found[1]

    async def save(self, path: str, schemas: list[StoredSchema], expected: int) -> None:
        found = await self._metadata.get(path)
        places = [] if found is None else decode_locator(found[0])
        added = schemas[-1]
        schema_id = path.removeprefix(_ROOT).replace("%20", "+")
        record = SchemaRecord(schema_id, added.type, added.data, added.timestamp_ms, added.deleted, added.properties)
        writer = await self._ledgers.create(
            {"application": "pulsar", "component": _COMPONENT, "pulsar/schemaId": schema_id}
        )
        place = SchemaPlace(added.version, Position(writer.ledger_id, 0), hash_of(record))
        in_doubt = False
        try:
            await _append(writer, encode_entry(record, places))
            in_doubt = True
            await self._metadata.put(path, encode_locator([*places, place]), expected)
        except StorageError as error:
            in_doubt = in_doubt and isinstance(error, StorageUnavailableError)
            with contextlib.suppress(StorageError):
                await writer.close()
                if not in_doubt:
                    await self._ledgers.delete(writer.ledger_id)
            raise
        self._remember(place.position, record)
        with contextlib.suppress(StorageError):  # the next reader of the ledger recovers it
            await writer.close()

    async def delete(self, path: str) -> None:
        found = await self._metadata.get(path)
        if found is None:
            raise NoNodeError(path)
        await self._metadata.delete(path, found[1])
        with contextlib.suppress(StorageError):  # the ledgers of a locator that cannot be read are unknown
            for place in decode_locator(found[0]):
                self._forget(place.position)
                with contextlib.suppress(StorageError):
                    await self._check_kind(place.position.ledger_id)
                    await self._ledgers.delete(place.position.ledger_id)

    async def _entry(self, position: Position) -> SchemaRecord:
        known = self._read.get(position)
        if known is not None:
            return known
        await self._check_kind(position.ledger_id)
        await self._ledgers.open_recover(position.ledger_id)
        slabs = await self._ledgers.read(position.ledger_id, position.entry_id, position.entry_id, _MOST_SCHEMA_BYTES)
        record = decode_entry(bytes(slabs[0].body(position.entry_id - slabs[0].first_entry_id)))
        self._remember(position, record)
        return record

    async def _check_kind(self, ledger_id: int) -> None:
        """Protect the ledger of another component that a damaged locator names: a recovery would fence its writer.
        Early versions of Apache Pulsar name no component. Raises StorageError.
        """
        component = (await self._ledgers.properties(ledger_id)).get("component", _COMPONENT)
        if component != _COMPONENT:
            raise StorageError(f"ledger {ledger_id} holds no schema, but belongs to the component {component}")

    def _remember(self, position: Position, record: SchemaRecord) -> None:
        self._forget(position)
        self._read[position] = record
        self._read_bytes += _size_of(record)
        while self._read_bytes > _MOST_REMEMBERED_BYTES:
            self._forget(next(iter(self._read)))

    def _forget(self, position: Position) -> None:
        record = self._read.pop(position, None)
        if record is not None:
            self._read_bytes -= _size_of(record)


def _size_of(record: SchemaRecord) -> int:
    return _RECORD_BYTES + len(record.text) + sum(len(name) + len(value) for name, value in record.properties.items())


async def _append(writer: LedgerWriter, body: bytes) -> None:
    """Append the entry; it is on the disks of the bookies on return."""
    offsets, counts = array("q", [0, len(body)]).tobytes(), array("q", [1]).tobytes()
    data, places = stamp(body, offsets, counts, 0, 1, writer.ledger_id, 0, -1, _NO_TIMESTAMP, _NO_INDEX)
    await append_slab(writer, Slab(writer.ledger_id, 0, data, places))
