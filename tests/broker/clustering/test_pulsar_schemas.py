"""Schemas in Pulsar's layout, under the registry and beside recorded bytes."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from magnetar.broker.clustering import pulsar_schemas
from magnetar.broker.clustering.pulsar_schemas import PulsarSchemas, _append
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import BadVersionError, StorageError, StorageUnavailableError
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.schema_records import decode_locator, encode_locator
from tests.storage.pulsar_layout.golden_nodes import entries, node
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

PATH = "/schemas/t1/n4/sch"
TOPIC = TopicName.parse("persistent://t1/n4/sch")
TEXTS = [
    b'{"type":"record","name":"R","fields":[{"name":"%c","type":["null","int"],"default":null}]}' % letter
    for letter in b"abc"
]


class World:
    def __init__(self, metadata=None, ledgers=None):
        self.metadata, self.ledgers = metadata or MemoryMetadataStore(), ledgers or MemoryLedgerStore()
        self.store = PulsarSchemas(self.metadata, self.ledgers)
        self.registry = SchemaRegistry(self.metadata, lambda: 7, self.store)

    def another(self):
        return World(self.metadata, self.ledgers)

    async def add(self, text, properties=None):
        return await self.registry.put(TOPIC, pb.Schema.Avro, text, properties or {}, Strategy.ALWAYS_COMPATIBLE)


async def test_schemas_of_pulsar_are_read():
    world = World()
    for ledger_id in (10, 11):
        world.ledgers._next_id = ledger_id
        writer = await world.ledgers.create({})
        await _append(writer, entries(ledger_id)[0])
        await writer.close()
    await world.metadata.put(PATH, node("unloaded", PATH))
    found = await world.registry.history(TOPIC)
    assert [(each.version, each.type, each.properties) for each in found] == [
        (0, pb.Schema.Avro, {"v": "0"}),
        (1, pb.Schema.Avro, {"v": "1"}),
    ]
    assert (await world.add(found[0].data)).version == 0
    assert (await world.add(TEXTS[0])).version == 2
    assert len(await world.another().registry.history(TOPIC)) == 3


async def test_versions_outlive_the_broker_and_ledgers_say_whose_they_are():
    world = World()
    for number, text in enumerate(TEXTS):
        assert (await world.add(text, {"n": str(number)})).version == number
    found = await world.another().registry.history(TOPIC)
    assert [(each.version, each.data, each.properties) for each in found] == [
        (number, text, {"n": str(number)}) for number, text in enumerate(TEXTS)
    ]
    for ledger_id in await world.ledgers.list_ledgers():
        properties = {"application": "pulsar", "component": "schema", "pulsar/schemaId": "t1/n4/sch"}
        assert await world.ledgers.properties(ledger_id) == properties


async def test_two_brokers_add_versions_to_one_topic():
    one = World()
    two = one.another()
    await one.add(TEXTS[0])
    assert (await two.add(TEXTS[1])).version == 1
    assert (await one.add(TEXTS[2])).version == 2
    assert (await one.add(TEXTS[1])).version == 1


async def test_the_loser_of_a_race_leaves_no_ledger():
    world = World()
    await world.add(TEXTS[0])
    schemas, _ = await world.store.load(PATH)
    before = await world.ledgers.list_ledgers()
    with pytest.raises(BadVersionError):
        await world.store.save(PATH, [*schemas, schemas[0]], 7)
    assert await world.ledgers.list_ledgers() == before


class Unanswered(MemoryMetadataStore):
    """Writes get no answer while `lost` is set, whether they were made or not."""

    lost = ""

    async def put(self, *arguments):
        if self.lost == "request":
            raise StorageUnavailableError("no answer")
        version = await super().put(*arguments)
        if self.lost == "answer":
            raise StorageUnavailableError("no answer")
        return version


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_version_whose_write_got_no_answer_stays_readable(lost):
    world = World(Unanswered())
    await world.add(TEXTS[0])
    world.metadata.lost = lost
    with pytest.raises(StorageUnavailableError):
        await world.add(TEXTS[1])
    world.metadata.lost = ""
    found = await world.another().registry.history(TOPIC)
    assert [each.data for each in found] == TEXTS[: 2 if lost == "answer" else 1]


async def test_deletions():
    world = World()
    await world.add(TEXTS[0])
    assert await world.registry.delete(TOPIC, force=False) == 1
    assert await world.registry.live(TOPIC) == []
    assert (await world.add(TEXTS[0])).version == 2
    places = decode_locator((await world.metadata.get(PATH))[0])
    assert [place.digest == b"" for place in places] == [False, True, False]
    await world.registry.forget(TOPIC)
    assert await world.metadata.get(PATH) is None
    assert await world.ledgers.list_ledgers() == []


@pytest.mark.parametrize("by_request", [False, True])
async def test_the_schemas_of_a_topic_are_deleted_although_a_ledger_is_lost(by_request):
    world = World()
    for text in TEXTS:
        await world.add(text)
    await world.ledgers.delete((await world.ledgers.list_ledgers())[1])
    late = world.another()
    with pytest.raises(StorageError):
        await late.registry.history(TOPIC)
    if by_request:
        with pytest.raises(StorageError):
            await late.registry.delete(TOPIC, force=False)
    for _ in range(2):
        await (late.registry.delete(TOPIC, force=True) if by_request else late.registry.forget(TOPIC))
    assert await world.metadata.get(PATH) is None
    assert await world.ledgers.list_ledgers() == []


async def test_a_locator_that_cannot_be_read_is_an_error_and_stays_as_long_as_its_topic():
    world = World()
    await world.metadata.put(PATH, b"garbage")
    with pytest.raises(StorageError):
        await world.add(TEXTS[0])
    assert await world.metadata.get(PATH) == (b"garbage", 0)
    await world.registry.forget(TOPIC)
    assert await world.metadata.get(PATH) is None


async def test_a_locator_that_names_the_ledger_of_a_topic_neither_fences_nor_deletes_the_ledger():
    world = World()
    await world.add(TEXTS[0])
    writer = await world.ledgers.create({"application": "pulsar", "component": "managed-ledger"})
    (place,) = decode_locator((await world.metadata.get(PATH))[0])
    wrong = dataclasses.replace(place, position=Position(writer.ledger_id, 0))
    await world.metadata.put(PATH, encode_locator([wrong]))
    other = world.another()
    with pytest.raises(StorageError, match="belongs to the component managed-ledger"):
        await other.store.load(PATH)
    await other.store.delete(PATH)
    assert writer.ledger_id in await world.ledgers.list_ledgers()
    await _append(writer, b"the topic goes on")


def schema_of(size):
    return pb.Schema.Json, b'{"type":"record","name":"R","fields":[],"doc":"%s"}' % (b"x" * size)


async def test_remembered_schemas_have_a_bound_in_bytes(monkeypatch):
    """10,000 records of up to 8 MiB were remembered, for good."""
    monkeypatch.setattr(pulsar_schemas, "_MOST_REMEMBERED_BYTES", 20_000)
    world, names = World(), [TopicName.parse(f"persistent://t1/n4/t{number}") for number in range(8)]
    for name in names:
        await world.registry.put(name, *schema_of(6000), {}, Strategy.ALWAYS_COMPATIBLE)
    assert len(world.store._read) == 2
    for name in (*names, *reversed(names)):
        assert len((await world.registry.history(name))[0].data) > 6000
    assert (len(world.store._read), 14_000 < world.store._read_bytes < 20_000) == (2, True)
    large = TopicName.parse("persistent://t1/n4/large")
    await world.registry.put(large, *schema_of(30_000), {}, Strategy.ALWAYS_COMPATIBLE)
    assert (len(world.store._read), world.store._read_bytes) == (0, 0)


async def test_deleted_schemas_are_not_remembered():
    world = World()
    await world.add(TEXTS[0])
    await world.add(TEXTS[1])
    await world.store.delete(PATH)
    assert (dict(world.store._read), world.store._read_bytes) == ({}, 0)


def counted(world):
    """The requests that the world makes from now on."""
    asked = []
    for owner, name in ((world.metadata, "get"), (world.ledgers, "open_recover"), (world.ledgers, "read")):
        call = getattr(owner, name)

        async def noted(*arguments, call=call, name=name):
            asked.append(name)
            await asyncio.sleep(0)
            return await call(*arguments)

        setattr(owner, name, noted)
    return asked


async def test_behind_a_read_ahead_a_client_with_a_known_schema_awaits_its_locator_alone():
    world = World()
    await world.add(TEXTS[0])
    other = world.another()
    await other.registry.read_ahead(TOPIC)
    asked = counted(other)
    assert (await other.add(TEXTS[0])).version == 0
    assert asked == ["get"]


async def test_clients_of_one_topic_share_a_read_ahead():
    world = World()
    await world.add(TEXTS[0])
    other = world.another()
    asked = counted(other)
    await asyncio.gather(*(other.registry.read_ahead(TOPIC) for _ in range(100)))
    assert asked == ["get", "open_recover", "read"]
    await other.registry.read_ahead(TOPIC)
    assert asked[3:] == ["get"]


async def test_a_read_ahead_that_fails_leaves_the_failure_to_the_client():
    world = World()
    await world.metadata.put(PATH, b"no locator")
    await world.registry.read_ahead(TOPIC)
    with pytest.raises(StorageError):
        await world.registry.history(TOPIC)
