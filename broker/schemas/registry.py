"""The schemas of topics: stored, versioned, checked (Apache Pulsar SchemaRegistryService).

A topic's schemas belong to its base name (all partitions share them). Versions count from 0. An existing schema, of any
version, keeps that version. Deleting adds a tombstone version; the next schema needs no check.

Peers choose the cost of a schema check: checks go through a `SchemaBench`, which runs long checks beside the loop. A
check is repeated when the topic's schemas have changed meanwhile.

Where they are stored is a seam (``schema_store.py``): one record per topic, replaced by compare-and-set.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import quote

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import (
    BrokerError,
    ConnectionFatalError,
    ImpossibleSchemaError,
    IncompatibleSchemaError,
    InvalidSchemaError,
    NotAllowedError,
)
from magnetar.broker.limits import MAX_SCHEMA_PROPERTIES_BYTES, check_properties
from magnetar.broker.meters.operation_meter import SchemaMeters
from magnetar.broker.schemas.compatibility import (
    Definition,
    Strategy,
    check_compatible,
    check_definition,
    check_with_existing,
    fingerprint,
    type_name,
)
from magnetar.broker.schemas.schema_store import JsonSchemas, StoredSchema
from magnetar.broker.schemas.work import SchemaBench, SchemaWork, SchemaWorkError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import BadVersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.schemas.schema_store import SchemaStore
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import MetadataStore

T = TypeVar("T")
MAX_VERSIONS: Final = 10_000
MAX_TOPIC_BYTES: Final = 8 << 20
"""The bound of all versions of a topic, which share a record of the metadata store."""
_MOST_FINGERPRINTS: Final = 10_000
_MOST_NAMESPACES: Final = 1000
"""The most namespaces with figures for /metrics."""
AUTO_CONSUME = pb.Schema.AutoConsume
NO_SCHEMA: int = getattr(pb.Schema, "None")


class SchemaOwner(Protocol):
    """A loaded topic, as far as its schemas go by it."""

    @property
    def name(self) -> TopicName: ...
    @property
    def config(self) -> TopicConfig: ...
    @property
    def is_unused(self) -> bool:
        """Whether no schema is stored and no connected client has a schema: a consumer may then add the first
        schema.
        """
        ...


class SchemaRegistry:
    """The schemas of all topics."""

    def __init__(self, metadata: MetadataStore, now_ms: Callable[[], int], store: SchemaStore | None = None) -> None:
        self._store = store or JsonSchemas(metadata)
        self._now_ms = now_ms
        self._bench = SchemaBench()
        self._fingerprints: OrderedDict[tuple[int, bytes], bytes] = OrderedDict()
        self.meters: dict[str, SchemaMeters] = {}
        """The meters by namespace."""

    def measured(self, name: TopicName) -> SchemaMeters:
        """The figures of the topic's namespace; beyond 1,000 namespaces they are not kept."""
        found = self.meters.get(name.namespace)
        if found is None:
            found = SchemaMeters()
            if len(self.meters) < _MOST_NAMESPACES:
                self.meters[name.namespace] = found
        return found

    def roll(self) -> None:
        """End a stats period of the figures."""
        for meters in self.meters.values():
            meters.roll()

    async def _record(self, name: TopicName) -> tuple[list[StoredSchema], int]:
        return await self._store.load(_path(name))

    async def _save(self, name: TopicName, schemas: list[StoredSchema], expected: int) -> None:
        await self._store.save(_path(name), schemas, expected)

    # --- questions -----------------------------------------------------------------------------------------------

    async def history(self, name: TopicName) -> list[StoredSchema]:
        """Return all versions, tombstones included, oldest first."""
        return (await self._record(name))[0]

    async def live(self, name: TopicName) -> list[StoredSchema]:
        """The versions behind the last tombstone."""
        schemas = await self.history(name)
        last_deleted = max((i for i, s in enumerate(schemas) if s.deleted), default=-1)
        return schemas[last_deleted + 1 :]

    async def get(self, name: TopicName, version: int | None = None) -> StoredSchema | None:
        """Return that version unless a deletion followed, or the latest version, which may be a tombstone of type None
        without data.
        """
        with self.measured(name).get.timed():
            if version is None:
                schemas = await self.history(name)
                return schemas[-1] if schemas else None
            return next((s for s in await self.live(name) if s.version == version), None)

    async def find(self, name: TopicName, schema_type: int, data: bytes) -> StoredSchema | None:
        """The version that means the same; name and properties do not matter."""
        live = await self.live(name)
        same = _same_bytes(live, schema_type, data)
        if same is not None or not live:
            return same
        size = len(data) + sum(len(s.data) for s in live if not self._is_known(s.type, s.data))
        return await self.examine(size, lambda work: self._same_meaning(live, schema_type, data, work))

    def _same_meaning(
        self, live: list[StoredSchema], schema_type: int, data: bytes, work: SchemaWork
    ) -> StoredSchema | None:
        wanted = self._fingerprint(schema_type, data, work)
        return next(
            (s for s in live if s.type == schema_type and self._fingerprint(s.type, s.data, work) == wanted), None
        )

    def _fingerprint(self, schema_type: int, data: bytes, work: SchemaWork) -> bytes:
        """Return the fingerprint of a text, kept as long as the text is in use."""
        key = schema_type, hashlib.sha256(data).digest()
        found = self._fingerprints.get(key)
        if found is None:
            found = self._fingerprints[key] = fingerprint(schema_type, data, work)
            if len(self._fingerprints) > _MOST_FINGERPRINTS:
                self._fingerprints.popitem(last=False)
        return found

    def _is_known(self, schema_type: int, data: bytes) -> bool:
        return (schema_type, hashlib.sha256(data).digest()) in self._fingerprints

    async def examine(self, size: int, check: Callable[[SchemaWork], T]) -> T:
        """Run `check`, which looks at `size` bytes, beside the loop where that may take long.

        Raises InvalidSchemaError when it takes too long.
        """
        try:
            return await self._bench.run(size, check)
        except SchemaWorkError as e:
            raise InvalidSchemaError("The schema is too complex to be checked") from e

    async def check_compatible(self, name: TopicName, new: Definition, strategy: Strategy) -> None:
        """Raise InvalidSchemaError or IncompatibleSchemaError unless the schema may be added."""
        existing = [s.definition for s in await self.live(name)]
        meters = self.measured(name)
        try:
            await self.examine(
                _size(new, existing, strategy), lambda work: check_compatible(new, existing, strategy, work)
            )
        except IncompatibleSchemaError:
            meters.incompatible += 1
            raise
        meters.compatible += 1

    # --- changes -------------------------------------------------------------------------------------------------

    async def put(
        self, name: TopicName, schema_type: int, data: bytes, properties: dict[str, str], strategy: Strategy
    ) -> StoredSchema:
        """Add a schema, or find it.

        Raises: MetadataError (large properties), InvalidSchemaError, IncompatibleSchemaError (the strategy forbids it),
        NotAllowedError (the topic's schemas would be too large together).
        """
        meters = self.measured(name)
        try:
            with meters.put.timed():
                return await self._put(name, schema_type, data, properties, strategy)
        except IncompatibleSchemaError:
            meters.incompatible += 1
            raise

    async def _put(
        self, name: TopicName, schema_type: int, data: bytes, properties: dict[str, str], strategy: Strategy
    ) -> StoredSchema:
        new = Definition(schema_type, data, properties)
        check_properties("Schema properties", properties, MAX_SCHEMA_PROPERTIES_BYTES)
        while True:
            live = await self.live(name)
            known = _same_bytes(live, schema_type, data)
            if known is not None and schema_type != pb.Schema.KeyValue:  # of which the properties are a part
                return known
            await self.examine(len(data), lambda work: check_definition(new, work))
            known = await self.find(name, schema_type, data)
            if known is not None:
                return known
            existing = [s.definition for s in live]
            size = _size(new, existing, strategy)
            await self.examine(size, lambda work: check_with_existing(new, existing, strategy, work))  # noqa: B023 - called before the next turn
            if await self.live(name) == live:
                break
        schemas, expected = await self._record(name)
        if len(data) + sum(len(s.data) for s in schemas) > MAX_TOPIC_BYTES or len(schemas) >= MAX_VERSIONS:
            raise NotAllowedError(f"A topic has at most {MAX_VERSIONS} schemas of {MAX_TOPIC_BYTES} bytes together")
        added = StoredSchema(
            version=schemas[-1].version + 1 if schemas else 0,
            type=schema_type,
            data=data,
            properties=properties,
            timestamp_ms=self._now_ms(),
        )
        try:
            await self._save(name, [*schemas, added], expected)
        except BadVersionError:  # another broker serves a partition of the topic, and was first
            return await self._put(name, schema_type, data, properties, strategy)
        self.measured(name).compatible += 1
        return added

    async def delete(self, name: TopicName, *, force: bool) -> int | None:
        """Add a tombstone (or with force forget everything); returns its version.

        A topic without a schema gets a tombstone too, so that its first schema is version 1; with force None.
        """
        with self.measured(name).delete.timed():
            return await self._delete(name, force=force)

    async def _delete(self, name: TopicName, *, force: bool) -> int | None:
        schemas, expected = await self._record(name)
        if force and not schemas:
            return None
        version = schemas[-1].version + 1 if schemas else 0
        if force:
            await self._store.delete(_path(name))
            return version
        tombstone = StoredSchema(version, NO_SCHEMA, b"", {}, self._now_ms(), deleted=True)
        await self._save(name, [*schemas, tombstone], expected)
        return version

    async def forget(self, name: TopicName) -> None:
        """Drop all versions, with the topic they belong to."""
        if (await self._record(name))[0]:
            await self.delete(name, force=True)

    # --- for clients ---------------------------------------------------------------------------------------------

    async def for_producer(self, topic: SchemaOwner, schema: pb.Schema) -> bytes:
        """The version a producer publishes with: found, or added when the topic allows; raises
        IncompatibleSchemaError.
        """
        properties = properties_of(schema)
        if not topic.config.is_allow_auto_update_schema:
            known = await self.find(topic.name, schema.type, schema.schema_data)
            if known is None:
                raise wire_refusals.SCHEMA_NOT_UPDATED.error()
            return known.version_bytes
        strategy = Strategy(topic.config.schema_compatibility_strategy)
        try:
            stored = await self.put(topic.name, schema.type, schema.schema_data, properties, strategy)
        except InvalidSchemaError:
            raise
        except IncompatibleSchemaError as e:
            raise wire_refusals.SCHEMA_INCOMPATIBLE.error(problem=e) from e
        return stored.version_bytes

    async def for_consumer(self, topic: SchemaOwner, schema: pb.Schema) -> None:
        """Whether a consumer may read with its schema; an idle topic without schema takes it as its first."""
        new = Definition(schema.type, schema.schema_data, properties_of(schema))
        if schema.type == AUTO_CONSUME:
            return
        live = await self.live(topic.name)
        if not live and topic.is_unused:
            with contextlib.suppress(InvalidSchemaError):  # not stored; the consumer may read all the same
                await self.for_producer(topic, schema)
            return
        strategy = Strategy(topic.config.schema_compatibility_strategy).for_consumer()
        if not live and strategy is not Strategy.ALWAYS_COMPATIBLE:
            raise wire_refusals.SCHEMA_ADDED_TO_BYTES.error(kind=type_name(schema.type))
        try:
            existing = [s.definition for s in live]
            size = _size(new, existing, strategy)
            await self.examine(size, lambda work: check_with_existing(new, existing, strategy, work))
        except ImpossibleSchemaError as e:
            raise BrokerError(str(e)) from e


def _same_bytes(live: list[StoredSchema], schema_type: int, data: bytes) -> StoredSchema | None:
    return next((s for s in live if s.type == schema_type and s.data == data), None)


def _size(new: Definition, existing: list[Definition], strategy: Strategy) -> int:
    """Bytes that a check of compatibility looks at."""
    return len(new.data) + sum(len(old.data) for old in (existing if strategy.transitive else existing[-1:]))


def properties_of(schema: pb.Schema) -> dict[str, str]:
    """The properties a client gives; the same key twice breaks the connection, as in Apache Pulsar 4.2."""
    found = {p.key: p.value for p in schema.properties}
    if len(found) != len(schema.properties):
        raise ConnectionFatalError("schema with a property twice")
    return found


def _path(name: TopicName) -> str:
    return f"/schemas/{name.namespace}/{quote(name.base.local_name, safe='')}"
