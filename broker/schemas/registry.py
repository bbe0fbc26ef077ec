"""The schemas of topics: stored, versioned, checked (Apache Pulsar SchemaRegistryService).

A topic's schemas belong to its base name (all partitions share them). Versions count from 0. Adding a schema that the
topic has already, in any version, returns that version. A deletion adds a tombstone version; the schema after a
tombstone needs no check.

Peers determine the cost of a schema check, so checks go through a `SchemaBench`, which runs long checks in a thread
beside the loop. The registry repeats a check when the topic's schemas have changed meanwhile.

The interface of the store is in ``schema_store.py``: one record per topic, replaced by compare-and-set.
"""

from __future__ import annotations

import contextlib
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
    AVRO_TYPES,
    Definition,
    Fingerprint,
    Strategy,
    check_compatible,
    check_definition,
    check_text,
    check_with_existing,
    fingerprint,
    type_name,
)
from magnetar.broker.schemas.schema_store import JsonSchemas, StoredSchema, definition_key
from magnetar.broker.schemas.work import SchemaBench, SchemaWork, SchemaWorkError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import BadVersionError, NoNodeError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.schemas.schema_store import SchemaStore
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.interfaces import MetadataStore

T = TypeVar("T")
MAX_VERSIONS: Final = 10_000
MAX_TOPIC_BYTES: Final = 8 << 20
"""Limit of all versions of a topic together, which share a record of the metadata store."""
_MOST_FINGERPRINTS: Final = 10_000
_MOST_TURNS: Final = 8
"""Limit of the checks that a search makes: each has MAX_STEPS for the versions without a known fingerprint."""
_BYTES_OF_A_LOOK: Final = 16
"""Bytes of a definition whose check takes as long as a look at a version with a known fingerprint."""
_MOST_NAMESPACES: Final = 1000
"""Limit of the namespaces with figures for /metrics."""
_FORGOTTEN_S: Final = 300
"""The figures of a namespace go when no schema of it was used for so many seconds, as in Apache Pulsar."""
AUTO_CONSUME = pb.Schema.AutoConsume
NO_SCHEMA: int = getattr(pb.Schema, "None")


class SchemaOwner(Protocol):
    """The properties of a loaded topic that the registry needs."""

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
        self._fingerprints: OrderedDict[tuple[int, bytes], Fingerprint] = OrderedDict()
        self._ahead: set[TopicName] = set()
        """Topics whose schemas are being read ahead."""
        self.meters: dict[str, SchemaMeters] = {}
        """The meters by namespace."""

    def measured(self, name: TopicName) -> SchemaMeters:
        """Return the figures of the topic's namespace; beyond 1,000 namespaces the registry does not keep them."""
        found = self.meters.get(name.namespace)
        if found is None:
            found = SchemaMeters()
            if len(self.meters) < _MOST_NAMESPACES:
                self.meters[name.namespace] = found
        found.idle_s = 0.0
        return found

    def roll(self, seconds: float) -> None:
        """End a stats period of so many seconds, and drop the figures of namespaces that are no longer used."""
        for namespace, meters in list(self.meters.items()):
            meters.roll(seconds)
            if meters.idle_s > _FORGOTTEN_S:
                del self.meters[namespace]

    async def _record(self, name: TopicName) -> tuple[list[StoredSchema], int]:
        return await self._store.load(_path(name))

    async def _save(self, name: TopicName, schemas: list[StoredSchema], expected: int) -> None:
        await self._store.save(_path(name), schemas, expected)

    # --- questions -----------------------------------------------------------------------------------------------

    async def history(self, name: TopicName) -> list[StoredSchema]:
        """Return all versions, tombstones included, oldest first."""
        return (await self._record(name))[0]

    async def read_ahead(self, name: TopicName) -> None:
        """Have the store remember the schemas of a topic that loads, for the client that waits for the topic."""
        if name in self._ahead:  # thousands of clients may wait for the same topic
            return
        self._ahead.add(name)
        try:
            with contextlib.suppress(StorageError):  # the later read reports the failure
                await self._record(name)
        finally:
            self._ahead.discard(name)

    async def live(self, name: TopicName) -> list[StoredSchema]:
        """Return the versions after the last tombstone."""
        return _live(await self.history(name))

    async def get(self, name: TopicName, version: int | None = None) -> StoredSchema | None:
        """Return this version, or None if it does not exist or was deleted; without a version, the latest version,
        which may be a tombstone of type None without data.
        """
        with self.measured(name).get.timed():
            if version is None:
                schemas = await self.history(name)
                return schemas[-1] if schemas else None
            return next((s for s in await self.live(name) if s.version == version), None)

    async def find_text(self, name: TopicName, schema_type: int, data: bytes) -> StoredSchema | None:
        """Return the stored version with the same bytes, or None."""
        return _same_bytes(await self.live(name), schema_type, data)

    async def find(self, name: TopicName, schema_type: int, data: bytes) -> StoredSchema | None:
        """Return the stored version of an equivalent schema, or None; name and properties do not matter.

        Raises SchemaDefaultError for an invalid default in the schema, or in a stored schema before the equivalent
        schema, as Apache Pulsar does for types with an Avro text.
        """
        return await self._find_in(await self.live(name), schema_type, data)

    async def _find_in(self, live: list[StoredSchema], schema_type: int, data: bytes) -> StoredSchema | None:
        same = _same_bytes(live, schema_type, data)
        if not live or (same is not None and schema_type not in AVRO_TYPES):
            return same
        before = -1
        for _ in range(_MOST_TURNS):
            size = (0 if same else len(data)) + sum(len(s.data) for s in live if s.key not in self._fingerprints)
            size += _BYTES_OF_A_LOOK * len(live)
            if size == before:
                break
            before = size
            with contextlib.suppress(SchemaWorkError):  # the next turn needs less: this turn kept its fingerprints
                return await self._bench.run(size, lambda work: self._same_meaning(live, schema_type, data, same, work))
        raise _too_complex()

    def _same_meaning(
        self, live: list[StoredSchema], schema_type: int, data: bytes, same: StoredSchema | None, work: SchemaWork
    ) -> StoredSchema | None:
        wanted = self._fingerprint(same.key if same else definition_key(schema_type, data), data, work)
        wanted.check_defaults()
        for stored in live:
            if stored.type == schema_type or (stored.type in AVRO_TYPES and schema_type in AVRO_TYPES):
                found = self._fingerprint(stored.key, stored.data, work)
                found.check_defaults()
                if found.digest == wanted.digest:
                    return stored
        return None

    def _fingerprint(self, key: tuple[int, bytes], data: bytes, work: SchemaWork) -> Fingerprint:
        """Return the fingerprint of a definition. The registry keeps the latest _MOST_FINGERPRINTS computed
        fingerprints.
        """
        found = self._fingerprints.get(key)
        if found is None:
            found = self._fingerprints[key] = fingerprint(key[0], data, work)
            if len(self._fingerprints) > _MOST_FINGERPRINTS:
                self._fingerprints.popitem(last=False)
        return found

    async def examine(self, size: int, check: Callable[[SchemaWork], T]) -> T:
        """Run `check`, which reads `size` bytes; a long check runs in a thread beside the loop.

        Raises InvalidSchemaError when the check needs too many steps.
        """
        try:
            return await self._bench.run(size, check)
        except SchemaWorkError as e:
            raise _too_complex() from e

    async def check_compatible(self, name: TopicName, new: Definition, strategy: Strategy) -> None:
        """Raise InvalidSchemaError or IncompatibleSchemaError unless the schema may be added."""
        existing = [s.definition for s in await self.live(name)]
        if strategy is Strategy.ALWAYS_INCOMPATIBLE and existing and existing[-1][:2] == new[:2]:
            return  # Apache Pulsar compares no equal texts here, unlike for a consumer
        with self._counted(name, existing):
            await self.examine(
                _size(new, existing, strategy), lambda work: check_compatible(new, existing, strategy, work)
            )

    @contextlib.contextmanager
    def _counted(self, name: TopicName, existing: list[Definition]) -> Iterator[None]:
        """Count the decision of the ``with`` block about a schema beside existing schemas; without them there is
        nothing to decide.
        """
        meters = self.measured(name)
        try:
            yield
        except IncompatibleSchemaError:
            meters.incompatible += 1
            raise
        meters.compatible += bool(existing)

    # --- changes -------------------------------------------------------------------------------------------------

    async def put(
        self, name: TopicName, schema_type: int, data: bytes, properties: dict[str, str], strategy: Strategy
    ) -> StoredSchema:
        """Return the stored version of an equivalent schema; add the schema if there is none.

        Raises: MetadataError (large properties), InvalidSchemaError, IncompatibleSchemaError (the strategy forbids it),
        SchemaDefaultError, NotAllowedError (the topic's schemas would be too large together).
        """
        new = Definition(schema_type, data, properties)
        check_properties("Schema properties", properties, MAX_SCHEMA_PROPERTIES_BYTES)
        while True:
            live = await self.live(name)
            known = _same_bytes(live, schema_type, data)
            if known is not None and schema_type != pb.Schema.KeyValue and schema_type not in AVRO_TYPES:
                return known  # a KeyValue includes the properties, and Avro texts have defaults
            if known is None or schema_type == pb.Schema.KeyValue:
                await self.examine(len(data), lambda work: check_definition(new, work))
            known = await self._find_in(live, schema_type, data)
            if known is not None:
                return known
            existing = [s.definition for s in live]
            size = _size(new, existing, strategy)
            with self._counted(name, existing):
                await self.examine(size, lambda work: check_with_existing(new, existing, strategy, work))  # noqa: B023 - called before the next turn
            schemas, expected = await self._record(name)
            if _live(schemas) == live:
                break
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
            with self.measured(name).put.timed(repeated_after=BadVersionError):
                await self._save(name, [*schemas, added], expected)
        except BadVersionError:  # another broker that serves a partition of the topic has changed the record
            return await self.put(name, schema_type, data, properties, strategy)
        return added

    async def delete(self, name: TopicName, *, force: bool) -> int | None:
        """Add a tombstone and return its version; with `force` delete all versions and return the version that the
        tombstone would have.

        Without `force`, a topic without a schema gets a tombstone too, so that its first schema is version 1. With
        `force`, the result for such a topic is None, as for a topic with a version that cannot be read.
        """
        with self.measured(name).delete.timed():
            return await self._delete(name, force=force)

    async def _delete(self, name: TopicName, *, force: bool) -> int | None:
        try:
            schemas, expected = await self._record(name)
        except StorageError:
            if not force:
                raise
            await self._store.delete(_path(name))
            return None
        if force and not schemas:
            return None
        version = schemas[-1].version + 1 if schemas else 0
        if force:
            await self._store.delete(_path(name))
            return version
        if len(schemas) >= MAX_VERSIONS and schemas[-1].deleted:
            schemas = schemas[:-1]  # requests for deletions have no end
        tombstone = StoredSchema(version, NO_SCHEMA, b"", {}, self._now_ms(), deleted=True)
        await self._save(name, [*schemas, tombstone], expected)
        return version

    async def forget(self, name: TopicName) -> None:
        """Delete all versions, readable or not, because their topic is deleted."""
        try:
            known = bool((await self._record(name))[0])
        except StorageError:
            known = True
        if known:
            with contextlib.suppress(NoNodeError), self.measured(name).delete.timed():
                await self._store.delete(_path(name))

    # --- for clients ---------------------------------------------------------------------------------------------

    async def for_producer(self, topic: SchemaOwner, schema: pb.Schema) -> bytes:
        """Return the version of a producer's schema; add the schema if the topic allows it. Raises
        IncompatibleSchemaError.
        """
        try:
            return await self._known_or_added(topic, schema)
        except InvalidSchemaError:
            raise
        except IncompatibleSchemaError as e:
            raise wire_refusals.SCHEMA_INCOMPATIBLE.error(problem=e) from e

    async def _known_or_added(self, topic: SchemaOwner, schema: pb.Schema) -> bytes:
        properties = properties_of(schema)
        if not topic.config.is_allow_auto_update_schema:
            known = await self.find(topic.name, schema.type, schema.schema_data)
            if known is None:
                await self._check_unknown(topic.name, schema)
                raise wire_refusals.SCHEMA_NOT_UPDATED.error()
            return known.version_bytes
        strategy = Strategy(topic.config.schema_compatibility_strategy)
        stored = await self.put(topic.name, schema.type, schema.schema_data, properties, strategy)
        return stored.version_bytes

    async def _check_unknown(self, name: TopicName, schema: pb.Schema) -> None:
        """Raise BrokerError for a text that does not parse and is compared with stored versions: Apache Pulsar's search
        for an equal version fails before it refuses the schema.
        """
        if schema.type not in AVRO_TYPES or not await self.live(name):
            return
        data = schema.schema_data
        try:
            await self.examine(len(data), lambda work: check_text(schema.type, data, work))
        except InvalidSchemaError as e:
            raise BrokerError(str(e)) from e

    async def for_consumer(self, topic: SchemaOwner, schema: pb.Schema) -> None:
        """Raise an error unless a consumer may read with its schema; in an unused topic the schema becomes the first
        version.
        """
        new = Definition(schema.type, schema.schema_data, properties_of(schema))
        if schema.type == AUTO_CONSUME:
            return
        live = await self.live(topic.name)
        if not live and topic.is_unused:
            with contextlib.suppress(InvalidSchemaError):  # an invalid schema is not stored, but the consumer may read
                await self._known_or_added(topic, schema)
            return
        strategy = Strategy(topic.config.schema_compatibility_strategy).for_consumer()
        if not live and strategy is not Strategy.ALWAYS_COMPATIBLE:
            raise wire_refusals.SCHEMA_ADDED_TO_BYTES.error(kind=type_name(schema.type))
        try:
            existing = [s.definition for s in live]
            size = _size(new, existing, strategy)
            with self._counted(topic.name, existing):
                await self.examine(size, lambda work: check_with_existing(new, existing, strategy, work))
        except ImpossibleSchemaError as e:
            if strategy is Strategy.ALWAYS_INCOMPATIBLE:  # Apache Pulsar reads no definition then
                raise
            raise BrokerError(str(e)) from e


def _too_complex() -> InvalidSchemaError:
    return InvalidSchemaError("The schema is too complex to be checked")


def _live(schemas: list[StoredSchema]) -> list[StoredSchema]:
    """Return the versions after the last tombstone."""
    last_deleted = max((i for i, s in enumerate(schemas) if s.deleted), default=-1)
    return schemas[last_deleted + 1 :]


def _same_bytes(live: list[StoredSchema], schema_type: int, data: bytes) -> StoredSchema | None:
    return next((s for s in live if s.type == schema_type and s.data == data), None)


def _size(new: Definition, existing: list[Definition], strategy: Strategy) -> int:
    """Return the bytes that a check of compatibility reads."""
    return len(new.data) + sum(len(old.data) for old in (existing if strategy.transitive else existing[-1:]))


def properties_of(schema: pb.Schema) -> dict[str, str]:
    """Return the properties of a client's schema. Raises ConnectionFatalError for a repeated key, as Apache Pulsar
    4.2.
    """
    found = {p.key: p.value for p in schema.properties}
    if len(found) != len(schema.properties):
        raise ConnectionFatalError("schema with a property twice")
    return found


def _path(name: TopicName) -> str:
    return f"/schemas/{name.namespace}/{quote(name.base.local_name, safe='')}"
