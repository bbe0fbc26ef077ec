"""Schemas and a partitioned topic that grows, and their promises.

A version that a client got keeps its schema and resolves until a deletion; later schemas get greater versions. A forced
deletion, after which versions begin anew, leaves no schema of the time before. The number of partitions never shrinks, and
a partition that clients see has the durable subscriptions of the first partition.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from magnetar.broker.errors import BrokerError
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageError
from tests.simulation.clients import FAILOVER, SHARED, Client, SimConsumer, SimProducer
from tests.simulation.history import SubscriptionHistory, TopicHistory, ViolationError
from tests.simulation.parts import Part
from tests.simulation.plan import FIRST_WITH_FORCE

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.simulation.world import World

Command = pb.BaseCommand
SHAPED = "persistent://public/default/shaped"
GROWN = "persistent://public/default/grown"
FIELDS = "abcde"
MOST_PARTITIONS = 5
_FIRST_VERSIONS = 12
TOPIC_NOT_FOUND, INCOMPATIBLE = 11, 18


def schema_of(fields: str) -> bytes:
    """The definition of a record with optional fields: all of them are compatible with each other."""
    optional = [{"name": name, "type": ["null", "string"], "default": None} for name in fields]
    return json.dumps({"type": "record", "name": "Shape", "fields": optional}).encode()


class SchemaHistory:
    """The versions that clients got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.confirmed: dict[int, tuple[bytes, float, float]] = {}
        """Version -> its definition, when a client asked for it first, and when a client got it first."""
        self._asked: dict[bytes, float] = {}
        self._asked_last: dict[bytes, float] = {}
        self.deletions: list[list[float]] = []
        """[begin, end] of each request to delete the schemas."""
        self._forced_s: float = -1.0
        """Answers to requests from before this time may be of before a forced deletion, or of after the deletion."""
        self._empty_s: float = -1.0
        """The begin of the last forced deletion that was answered: no schema from before is left."""
        self._open: list[bytes] = []
        """Definitions of requests without an answer."""
        self._late: set[bytes] = set()
        """Definitions that a request from before a forced deletion may have added behind the deletion."""

    def forces(self) -> None:
        """A forced deletion begins: every version may be gone, and may belong to another schema."""
        self.confirmed.clear()
        self._late.update(self._open)
        self._forced_s = float("inf")

    def forced(self, begin_s: float, now_s: float, *, surely: bool) -> None:
        """The last of the forced deletions under way has ended."""
        self.confirmed.clear()
        self._forced_s = now_s
        if surely:
            self._empty_s = begin_s

    def asks(self, data: bytes, now_s: float) -> None:
        self._asked.setdefault(data, now_s)
        self._asked_last[data] = now_s
        self._open.append(data)

    def answered(self, data: bytes) -> None:
        """A request to add the definition has got its answer."""
        if data in self._open:
            self._open.remove(data)

    def process_ended(self) -> None:
        """No request is carried out any more."""
        self._open.clear()

    def got(self, version: int, data: bytes, asked_s: float, now_s: float) -> None:
        """A client got the version for a definition that it sent at ``asked_s``."""
        if asked_s <= self._forced_s:
            return
        known = self.confirmed.get(version)
        if known is not None:
            if known[0] != data:
                raise ViolationError(f"{self.name}: schema version {version} is {data!r}, before {known[0]!r}")
            return
        for other, (other_data, other_asked_s, got_s) in self.confirmed.items():
            if other > version and got_s < self._asked[data]:
                raise ViolationError(f"{self.name}: a new schema gets version {version} behind {other}")
            if other_data == data and not self._deleted_since(min(other_asked_s, asked_s)):
                raise ViolationError(f"{self.name}: a schema has the versions {other} and {version}")
        self.confirmed[version] = data, asked_s, now_s

    def _deleted_since(self, since_s: float) -> bool:
        return any(end_s >= since_s for _, end_s in self.deletions)

    def resolved(self, version: int, data: bytes | None, asked_s: float) -> None:
        """The answer to a request for a version: a definition, or None where the version does not exist."""
        if asked_s <= self._forced_s:
            return
        if data is not None and data not in self._late and self._asked_last.get(data, -1.0) < self._empty_s:
            raise ViolationError(f"{self.name}: schema version {version} is {data!r} of before a forced deletion")
        known = self.confirmed.get(version)
        if known is None:
            return
        if data is None and asked_s > known[2] and not self._deleted_since(known[1]):
            raise ViolationError(f"{self.name}: schema version {version} does not resolve")
        if data is not None and data != known[0]:
            raise ViolationError(f"{self.name}: schema version {version} is {data!r}, before {known[0]!r}")


class ShapedProducer(SimProducer):
    """Has a schema, which changes with each connection; its messages name the version."""

    def __init__(self, world: World, name: str, topic: TopicHistory, schemas: SchemaHistory) -> None:
        super().__init__(world, name, topic)
        self._schemas = schemas
        self._version = b""
        self._data, self._asked_s = b"", 0.0

    def connected(self) -> None:
        self._data, self._asked_s = _any_schema(self), self.world.now_s
        self._schemas.asks(self._data, self.world.now_s)
        command = pb.CommandProducer(topic=self.topic.name, producer_id=1, request_id=1, producer_name=self.name)
        command.user_provided_producer_name = True
        command.schema.CopyFrom(pb.Schema(name="s", type=pb.Schema.Avro, schema_data=self._data))
        self.command(Command.PRODUCER, producer=command)

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PRODUCER_SUCCESS:
            self._version = command.producer_success.schema_version
            self.note(f"producer-schema {_number(self._version)}")
            self._schemas.answered(self._data)
            self._schemas.got(_number(self._version), self._data, self._asked_s, self.world.now_s)
        _may_not_be_incompatible(self, command)
        super().on(command, payload)

    def metadata(self, metadata: pb.MessageMetadata) -> None:
        metadata.schema_version = self._version


class Registrar(Client):
    """Registers schemas and asks for versions; behind ``last`` for all versions that any client got."""

    def __init__(self, world: World, name: str, topic: TopicHistory, schemas: SchemaHistory) -> None:
        super().__init__(world, name, topic)
        self._schemas = schemas
        self._waiting: dict[int, tuple[Any, float]] = {}
        self._requests = 0
        self._left: set[int] | None = None
        self.done = False

    def connected(self) -> None:
        self.ready = True
        self._next()

    def ended(self) -> None:
        self._waiting.clear()

    def last(self) -> None:
        self._left = set(self._schemas.confirmed)
        if self.ready and not self._waiting:
            self._next()

    def _next(self) -> None:
        if self._left is not None:
            self.done = not self._left
            if self._left:
                self._look(min(self._left))
        elif self.world.plan.seed >= FIRST_WITH_FORCE and self.chance.random() < 0.3:
            self._look(self.chance.randrange(_FIRST_VERSIONS))  # of before a forced deletion, perhaps
        elif self._schemas.confirmed and self.chance.random() < 0.5:
            self._look(self.chance.choice(sorted(self._schemas.confirmed)))
        else:
            data = _any_schema(self)
            self._schemas.asks(data, self.world.now_s)
            command = pb.CommandGetOrCreateSchema(topic=self.topic.name, request_id=self._number_of(data))
            command.schema.CopyFrom(pb.Schema(name="s", type=pb.Schema.Avro, schema_data=data))
            self.command(Command.GET_OR_CREATE_SCHEMA, getOrCreateSchema=command)

    def _look(self, version: int) -> None:
        command = pb.CommandGetSchema(topic=self.topic.name, request_id=self._number_of(version))
        command.schema_version = version.to_bytes(8, "big")
        self.command(Command.GET_SCHEMA, getSchema=command)

    def _number_of(self, asked: bytes | int) -> int:
        self._requests += 1
        self._waiting[self._requests] = asked, self.world.now_s
        return self._requests

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        _may_not_be_incompatible(self, command)
        if command.type == Command.GET_OR_CREATE_SCHEMA_RESPONSE:
            created = command.getOrCreateSchemaResponse
            data, asked_s = self._waiting.pop(created.request_id)
            self._schemas.answered(data)
            if created.HasField("error_code"):
                self.note(f"schema-refused {created.error_code}")
                if created.error_code == INCOMPATIBLE:
                    raise ViolationError(f"{self.topic.name}: a compatible schema is refused")
            else:
                self.note(f"schema {_number(created.schema_version)}")
                self._schemas.got(_number(created.schema_version), data, asked_s, self.world.now_s)
        elif command.type == Command.GET_SCHEMA_RESPONSE:
            found = command.getSchemaResponse
            version, asked_s = self._waiting.pop(found.request_id)
            if not found.HasField("error_code"):
                self._schemas.resolved(version, found.schema.schema_data, asked_s)
            elif found.error_code == TOPIC_NOT_FOUND:
                self._schemas.resolved(version, None, asked_s)
            self._answered(version, known=not found.HasField("error_code") or found.error_code == TOPIC_NOT_FOUND)
        self.later(self.chance.expovariate(3) if self._left is None else 0.01, self._next)

    def _answered(self, version: int, *, known: bool) -> None:
        self.note(f"resolves {version}")
        if self._left is not None and known:
            self._left.discard(version)


def _any_schema(client: Client) -> bytes:
    return schema_of("".join(name for name in FIELDS if client.chance.random() < 0.5))


def _number(version: bytes) -> int:
    return int.from_bytes(version, "big")


def _may_not_be_incompatible(client: Client, command: pb.BaseCommand) -> None:
    if command.type == Command.ERROR and command.error.error == INCOMPATIBLE:
        raise ViolationError(f"{client.topic.name}: a compatible schema is refused: {command.error.message}")


class PartitionWatcher(Client):
    """Asks for the number of partitions; tells the part, which adds clients of the new partitions."""

    def __init__(self, world: World, name: str, part: Shapes) -> None:
        super().__init__(world, name, TopicHistory(GROWN, keeps_all=False, deduplicates=False))
        self._part = part

    def connected(self) -> None:
        self.ready = True
        self._ask()

    def _ask(self) -> None:
        command = pb.CommandPartitionedTopicMetadata(topic=GROWN, request_id=1)
        command.metadata_auto_creation_enabled = False
        self._known = self._part.partitions
        self.command(Command.PARTITIONED_METADATA, partitionMetadata=command)

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PARTITIONED_METADATA_RESPONSE:
            answer = command.partitionMetadataResponse
            if answer.response == pb.CommandPartitionedTopicMetadataResponse.Success:
                self._part.sees(answer.partitions, self._known)
            elif self._known and answer.error == TOPIC_NOT_FOUND:
                raise ViolationError(f"{GROWN}: {self._known} partitions are gone")
        self.later(self.chance.expovariate(2), self._ask)


class Shapes(Part):
    """One topic with schemas, and one partitioned topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance_for("shapes")
        self._forces = world.plan.seed >= FIRST_WITH_FORCE
        self.schemas = SchemaHistory(SHAPED)
        self._registrars: list[Registrar] = []
        self.partitions = 0
        """Partitions that a client saw, or whose creation was answered."""
        self._wanted = 0
        self._calm = False
        self._forcing = 0

    def populate(self) -> None:
        plan, world = self.world.plan, self.world
        shaped = world.history.topics[SHAPED] = TopicHistory(SHAPED, plan.keeps_all, plan.deduplicates)
        world.producers += [ShapedProducer(world, f"shaper{n}", shaped, self.schemas) for n in range(2)]
        own = shaped.subscriptions.setdefault("a", SubscriptionHistory("a"))
        world.consumers.append(SimConsumer(world, "shaped-a", shaped, own, SHARED))
        self._registrars += [Registrar(world, f"registrar{n}", shaped, self.schemas) for n in range(2)]
        for client in (*self._registrars, PartitionWatcher(world, "watcher", self)):
            client.start()

    # --- administrators

    def act(self) -> None:
        kinds = [self._grow, self._grow, self._delete_schemas]
        self.world.broker.tasks.spawn(self._chance.choice(kinds)(), "world.admin")  # type: ignore[union-attr]

    async def _grow(self) -> None:
        lifecycle = self.world.broker.lifecycle  # type: ignore[union-attr]
        name, count = TopicName.parse(GROWN), self._chance.randint(self.partitions + 1, MOST_PARTITIONS + 1)
        if count > MOST_PARTITIONS:
            return
        self.world.note(f"grows {self.partitions} to {count}")
        before, self._wanted = self.partitions, max(self._wanted, count)
        owed = self._owed()
        if await self._done(lifecycle.grow(name, count) if before else lifecycle.create_partitioned(name, count, {})):
            self.sees(count, before, exact=False, owes=before > 0 and owed is not None and owed == self._owed())

    def _owed(self) -> int | None:
        """The epoch of the subscription of the first partition; None unless it certainly exists."""
        first = self.world.history.topics.get(f"{GROWN}-partition-0")
        return first.subscriptions["a"].epoch if first is not None and first.subscriptions["a"].exists else None

    async def _delete_schemas(self) -> None:
        schemas, force = self.world.broker.stored.schemas, self._forces and self._chance.random() < 0.5  # type: ignore[union-attr]
        deletion = [self.world.now_s, float("inf")]
        self.schemas.deletions.append(deletion)
        self.world.note("deletes-schemas" + " by force" * force)
        done = False
        if force:
            self._forcing += 1
            self.schemas.forces()
        try:
            done = await self._done(schemas.delete(TopicName.parse(SHAPED), force=force))
        finally:
            deletion[1] = self.world.now_s
            if force:
                self._forcing -= 1
                if not self._forcing:
                    self.schemas.forced(deletion[0], deletion[1], surely=done)

    @staticmethod
    async def _done(work: Coroutine[Any, Any, Any]) -> bool:
        try:
            await work
        except (BrokerError, ConflictError, StorageError):
            return False
        return True

    def sees(self, count: int, known: int, *, exact: bool = True, owes: bool = False) -> None:
        """A client sees so many partitions, or a creation was answered, after ``known`` partitions were seen. ``owes``:
        the new partitions have the subscription already.
        """
        if exact and count < known:
            raise ViolationError(f"{GROWN}: {count} partitions, before {known}")
        if count > self._wanted:
            raise ViolationError(f"{GROWN}: {count} partitions, at most {self._wanted} were wanted")
        for index in range(self.partitions, count):
            self._add_partition(index, owes=owes)
        self.partitions = max(self.partitions, count)

    def _add_partition(self, index: int, *, owes: bool) -> None:
        """Clients of a partition."""
        world, name = self.world, f"{GROWN}-partition-{index}"
        self.world.note(f"partition {index}")
        known = world.history.topics[name] = TopicHistory(name, world.plan.keeps_all, world.plan.deduplicates)
        own = known.subscriptions.setdefault("a", SubscriptionHistory("a"))
        if owes:
            own.since_s, own.begins_at_start, own.absent = world.now_s, True, False
        clients = [
            SimProducer(world, f"grown{index}", known),
            SimConsumer(world, f"grown{index}-a", known, own, FAILOVER),
        ]
        world.producers.append(clients[0])  # type: ignore[arg-type]
        world.consumers.append(clients[1])  # type: ignore[arg-type]
        if self._calm:
            clients[0].finish()  # type: ignore[attr-defined]
        for client in clients:
            client.start()

    # --- the end

    def process_ended(self) -> None:
        self.schemas.process_ended()

    def calm(self) -> None:
        self._calm = True

    def take(self) -> None:
        for registrar in self._registrars:
            registrar.last()

    def is_quiet(self) -> bool:
        return all(registrar.done for registrar in self._registrars)

    def compare(self) -> None:
        for registrar in self._registrars:
            registrar.stop()
