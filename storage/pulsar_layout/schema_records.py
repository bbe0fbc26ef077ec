"""Schemas as Pulsar stores them. Pure.

The metadata node ``/schemas/<tenant>/<namespace>/<topic>`` holds a ``SchemaLocator``: for each version the position of
its entry and the hash of its text. Each version has a ledger of its own, whose first entry is a ``SchemaEntry``: the
schema, and the index of the versions before it. Stored types count from 1 (None); on the wire types count from 0.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.storage.errors import StorageError
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import SchemaEntry, SchemaIndexEntry, SchemaInfo, SchemaLocator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SchemaPlace", "SchemaRecord", "decode_entry", "decode_locator", "encode_entry", "encode_locator", "hash_of"]

_NOWHERE = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """The place of one version of a topic's schema."""

    version: int
    position: Position
    digest: bytes


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """One version of a schema. ``kind``: the type, counted from 0 as on the wire."""

    schema_id: str
    kind: int
    text: bytes
    timestamp_ms: int
    deleted: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


def hash_of(record: SchemaRecord) -> bytes:
    """Return the SHA-256 of the schema's text; empty bytes for a deletion."""
    return b"" if record.deleted else hashlib.sha256(record.text).digest()


def encode_locator(places: Sequence[SchemaPlace]) -> bytes:
    """Return the locator of at least one version, ascending."""
    locator = SchemaLocator()
    _fill(locator.info, places[-1])
    for place in places:
        _fill(locator.index.add(), place)
    return locator.SerializeToString()


def decode_locator(value: bytes) -> list[SchemaPlace]:
    """Every version, ascending. Raises StorageError."""
    try:
        locator = SchemaLocator.FromString(value)
    except DecodeError as error:
        raise StorageError(f"a schema locator that cannot be read: {error}") from error
    if not locator.IsInitialized():
        raise StorageError("a schema locator without its fields")
    if any(min(each.position.ledgerId, each.position.entryId) < 0 for each in locator.index):
        raise StorageError("a schema locator that names no entry")
    return sorted((_place(each) for each in locator.index), key=lambda place: place.version)


def encode_entry(record: SchemaRecord, before: Sequence[SchemaPlace]) -> bytes:
    """Return the entry of a version. ``before``: the earlier versions. As in Pulsar, a first version's entry names its
    own place, which is unknown at that time.
    """
    info = SchemaInfo(
        schemaId=record.schema_id,
        user=record.user,
        type=record.kind + 1,
        schema=record.text,
        timestamp=record.timestamp_ms,
        deleted=record.deleted,
    )
    for key, value in record.properties.items():
        info.props.add(key=key, value=value)
    entry = SchemaEntry(schemaData=info.SerializeToString())
    for place in before or (SchemaPlace(0, _NOWHERE, hash_of(record)),):
        _fill(entry.index.add(), place)
    return entry.SerializeToString()


def decode_entry(data: bytes) -> SchemaRecord:
    """Raises StorageError."""
    try:
        info = SchemaInfo.FromString(SchemaEntry.FromString(data).schemaData)
    except DecodeError as error:
        raise StorageError(f"a schema entry that cannot be read: {error}") from error
    if not info.IsInitialized():
        raise StorageError("a schema entry without its fields")
    properties = {each.key: each.value for each in info.props}
    if not all(isinstance(text, str) for text in (info.schemaId, info.user, *properties, *properties.values())):
        raise StorageError("a schema entry with a text that is no UTF-8")
    return SchemaRecord(info.schemaId, info.type - 1, info.schema, info.timestamp, info.deleted, properties, info.user)


def _fill(entry: SchemaIndexEntry, place: SchemaPlace) -> None:
    entry.version = place.version
    entry.position.ledgerId, entry.position.entryId = place.position
    entry.hash = place.digest


def _place(entry: SchemaIndexEntry) -> SchemaPlace:
    return SchemaPlace(entry.version, Position(entry.position.ledgerId, entry.position.entryId), entry.hash)
