"""The stores of topics' schemas. A broker without a cluster uses ``JsonSchemas``."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from magnetar.broker.compat.java_order import java_order
from magnetar.broker.schemas.compatibility import Definition
from magnetar.broker.slices import give_way
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from magnetar.storage.interfaces import MetadataStore

__all__ = ["JsonSchemas", "SchemaStore", "StoredSchema", "definition_key"]

_LARGE_BYTES: Final = 256 << 10


class StoredSchema(msgspec.Struct, frozen=True, dict=True):
    """One version of a topic's schema."""

    version: int
    type: int  # pb.Schema.Type
    data: bytes
    properties: dict[str, str]
    timestamp_ms: int
    deleted: bool = False

    @property
    def version_bytes(self) -> bytes:
        return self.version.to_bytes(8, "big")

    @cached_property
    def key(self) -> tuple[int, bytes]:
        """Type and digest of the definition."""
        return definition_key(self.type, self.data)

    @property
    def definition(self) -> Definition:
        return Definition(self.type, self.data, self.properties)

    def to_proto(self, name: str) -> pb.Schema:
        schema = pb.Schema(name=name, schema_data=self.data, type=self.type)  # type: ignore[arg-type]
        for key in java_order(self.properties):
            schema.properties.add(key=key, value=self.properties[key])
        return schema


def definition_key(schema_type: int, data: bytes) -> tuple[int, bytes]:
    """Return a short value that no other definition has."""
    return schema_type, hashlib.sha256(data).digest()


class SchemaStore(Protocol):
    """One record per topic, named by its path ``/schemas/<tenant>/<namespace>/<encoded topic>``."""

    async def load(self, path: str) -> tuple[list[StoredSchema], int]:
        """Return all versions, oldest first, and the version of the record; ([], -1) without a record."""
        ...

    async def save(self, path: str, schemas: list[StoredSchema], expected: int) -> None:
        """Store the schemas of ``load`` with a further version at the end. Raises BadVersionError when the record
        changed.
        """
        ...

    async def delete(self, path: str) -> None:
        """Delete all versions. Raises NoNodeError."""
        ...


class JsonSchemas:
    """Stores a JSON list per topic. It keeps each list in memory after the first read, since no other
    process writes the record.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._records: dict[str, tuple[list[StoredSchema], int]] = {}
        self._coding = asyncio.Lock()
        """A round of the event loop encodes or decodes a single large record."""

    async def load(self, path: str) -> tuple[list[StoredSchema], int]:
        record = self._records.get(path)
        if record is None:
            found = await self._metadata.get(path)
            if found is not None and len(found[0]) > _LARGE_BYTES:
                return await self._load_large(path)
            record = self._decode(path, found)
        return record

    async def _load_large(self, path: str) -> tuple[list[StoredSchema], int]:
        async with self._coding:
            record = self._records.get(path)
            if record is None:
                record = self._decode(path, await self._metadata.get(path))  # the record may have changed meanwhile
                await give_way()
        return record

    def _decode(self, path: str, found: tuple[bytes, int] | None) -> tuple[list[StoredSchema], int]:
        if found is None:
            return [], -1
        self._records[path] = record = msgspec.json.decode(found[0], type=list[StoredSchema]), found[1]
        return record

    async def save(self, path: str, schemas: list[StoredSchema], expected: int) -> None:
        async with self._coding:
            record = msgspec.json.encode(schemas)
            if len(record) > _LARGE_BYTES:
                await give_way()
        version = await self._metadata.put(path, record, expected)
        self._records[path] = schemas, version

    async def delete(self, path: str) -> None:
        await self._metadata.delete(path, None)
        self._records.pop(path, None)
