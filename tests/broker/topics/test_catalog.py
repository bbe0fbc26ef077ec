"""A partitioned topic counts for clients once its record is durable."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from magnetar.broker.errors import UnreadableRecordError
from magnetar.broker.topics.catalog import PartitionedTopic, TopicCatalog, partitioned_path
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageFailedError
from tests.twins.memory_metadata import MemoryMetadataStore

NAME = TopicName.parse("persistent://public/default/t")


class NoLedgers:
    async def names(self, _prefix: str) -> list[str]:
        return []


@pytest.mark.parametrize("record", [b"{", b'{"properties":{"a":"\xff"}}', b'{"a":' + 100_000 * b"["])
async def test_an_unreadable_record_makes_its_topic_alone_fail(record):
    metadata, ledgers = MemoryMetadataStore(), cast("Any", NoLedgers())
    before = TopicCatalog(metadata, ledgers)
    other = TopicName.parse("persistent://public/default/other")
    for name in (NAME, other):
        await before.create_partitioned(name, PartitionedTopic(3))
    path = partitioned_path(NAME)
    _, version = await metadata.get(path) or (b"", -1)
    await metadata.put(path, record, version)
    catalog = TopicCatalog(metadata, ledgers)
    await catalog.load(["public/default"])
    assert catalog.partitioned(other) == PartitionedTopic(3)
    assert sorted(catalog.partitioned_names("public/default", "persistent")) == [str(other), str(NAME)]
    refused = pytest.raises(UnreadableRecordError, match=rf"^Failed to deserialize payload for key '{path}'$")
    with refused:
        catalog.partitioned(NAME)
    for work in (catalog.create_partitioned(NAME, PartitionedTopic(1)), catalog.update_partitioned(NAME, lambda t: t)):
        with refused:
            await work
    parts = ("public", "default", "persistent", "t")
    with refused:
        await before.reload_record(*parts)
    assert before.partitioned(NAME) == PartitionedTopic(3), "the last readable record stays in force"
    await metadata.put(path, b'{"partitions":4}', version + 1)
    await catalog.reload_record(*parts)
    assert catalog.partitioned(NAME) == PartitionedTopic(4)


class SlowMetadata:
    """Stores when the test lets the put end."""

    def __init__(self) -> None:
        self.ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def put(self, _path: str, _value: bytes, _version: int) -> int:
        await asyncio.shield(self.ends)
        return 0


async def begun() -> tuple[TopicCatalog, SlowMetadata, asyncio.Task[bool], asyncio.Task[None]]:
    """A catalogue with a creation under way, and a request that waits for its end."""
    metadata: Any = SlowMetadata()
    catalog = TopicCatalog(metadata, None)  # type: ignore[arg-type]
    creation = asyncio.create_task(catalog.create_partitioned(NAME, PartitionedTopic(3)))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(catalog.settled(NAME))
    await asyncio.sleep(0)
    return catalog, metadata, creation, waiting


async def test_requests_wait_for_a_creation_under_way():
    catalog, metadata, creation, waiting = await begun()
    assert not waiting.done()
    assert catalog.partitioned_names("public/default", "persistent") == []
    assert catalog.partitioned(NAME) is not None, "no other request takes the name"
    metadata.ends.set_result(None)
    await waiting
    assert await creation
    assert catalog.partitioned_names("public/default", "persistent") == [str(NAME)]
    await catalog.settled(NAME)


async def test_a_creation_that_fails_leaves_no_topic():
    catalog, metadata, creation, waiting = await begun()
    metadata.ends.set_exception(StorageFailedError("simulated"))
    await waiting
    assert catalog.partitioned(NAME) is None
    with pytest.raises(StorageFailedError):
        await creation


async def test_a_cancelled_creation_ends_the_wait():
    catalog, metadata, creation, waiting = await begun()
    creation.cancel()
    await waiting
    assert catalog.partitioned(NAME) is None
    metadata.ends.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await creation


async def test_topics_of_other_brokers_are_read_again():
    metadata = MemoryMetadataStore()
    stored = ["public/default/persistent/a", "public/default/persistent/b%2Fc"]

    class Ledgers:
        async def names(self, prefix: str) -> list[str]:
            return stored if prefix == "public/default/persistent" else []

    catalog, other = (TopicCatalog(metadata, cast("Any", Ledgers())) for _ in range(2))
    await other.create_partitioned(NAME, PartitionedTopic(3))
    assert await catalog.read_again("public/default")
    assert catalog.names("public/default") == ["persistent://public/default/a", "persistent://public/default/b/c"]
    assert catalog.partitioned(NAME) == PartitionedTopic(3)
    stored.clear()
    assert await catalog.read_again("public/default"), "the partitioned topic is left"
    assert await other.delete_partitioned(NAME)
    assert not await catalog.read_again("public/default")
    assert not await catalog.read_again("public/none")


class SlowReads(MemoryMetadataStore):
    """The first read of a value is answered late, with the value of the time of its request."""

    def __init__(self) -> None:
        super().__init__()
        self.late: asyncio.Future[None] | None = None

    async def get(self, path: str) -> tuple[bytes, int] | None:
        found, late, self.late = await super().get(path), self.late, None
        if late is not None:
            await late
        return found


async def test_a_late_read_does_not_bring_back_a_deleted_topic():
    metadata: Any = SlowReads()
    catalog = TopicCatalog(metadata, cast("Any", NoLedgers()))
    await catalog.create_partitioned(NAME, PartitionedTopic(3))
    metadata.late = late = asyncio.get_running_loop().create_future()
    read = asyncio.create_task(catalog.reload_partitioned(NAME))
    await asyncio.sleep(0)
    deletion = asyncio.create_task(catalog.delete_partitioned(NAME))
    for _ in range(5):
        await asyncio.sleep(0)
    late.set_result(None)
    assert await deletion
    assert catalog.partitioned(NAME) is None, "the deletion was answered"
    await read
    assert catalog.partitioned(NAME) is None


async def test_the_end_of_a_read_leaves_another_read_under_way():
    """The former read looked again after a change, and the later read, which got the same state, ended first."""
    metadata: Any = SlowReads()
    catalog = TopicCatalog(metadata, cast("Any", NoLedgers()))
    reads, loop = [], asyncio.get_running_loop()

    async def begin_read() -> asyncio.Future[None]:
        metadata.late = late = loop.create_future()
        reads.append(asyncio.create_task(catalog.reload_partitioned(NAME)))
        await asyncio.sleep(0)
        return late

    first = await begin_read()
    await catalog.create_partitioned(NAME, PartitionedTopic(3))
    metadata.late = again = loop.create_future()
    first.set_result(None)
    await asyncio.sleep(0)
    await catalog.reload_partitioned(NAME)
    assert await catalog.delete_partitioned(NAME)
    again.set_result(None)
    await asyncio.gather(*reads)
    assert catalog.partitioned(NAME) is None, "the read is older than the deletion"


async def test_a_late_read_does_not_hide_a_topic_made_anew():
    metadata: Any = SlowReads()
    catalog = TopicCatalog(metadata, cast("Any", NoLedgers()))
    metadata.late = late = asyncio.get_running_loop().create_future()
    read = asyncio.create_task(catalog.reload_partitioned(NAME))
    await asyncio.sleep(0)
    creation = asyncio.create_task(catalog.create_partitioned(NAME, PartitionedTopic(3)))
    for _ in range(5):
        await asyncio.sleep(0)
    late.set_result(None)
    assert await creation
    await read
    assert catalog.partitioned(NAME) == PartitionedTopic(3)
