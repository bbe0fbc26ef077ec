"""Policies of topics and the deletion of their namespace: no record stays behind the deletion."""

import asyncio

import msgspec
import pytest

from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.policies.records import TopicPolicies
from magnetar.broker.policies.stored_records import MissingError
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName
from tests.twins.memory_metadata import MemoryMetadataStore

SPACE = "public/n"
OTHER = TopicName.parse("persistent://public/default/t")
TOPICS = [TopicName.parse(f"persistent://{SPACE}/t{number}") for number in range(4)]


class SlowMetadata(MemoryMetadataStore):
    """A store whose writes take two turns of the loop."""

    async def put(self, path, value, expected_version=None, guard=None):
        await asyncio.sleep(0)
        version = await super().put(path, value, expected_version, guard)
        await asyncio.sleep(0)
        return version

    async def delete(self, path, expected_version=None, guard=None):
        await asyncio.sleep(0)
        await super().delete(path, expected_version, guard)


@pytest.fixture
def metadata():
    return SlowMetadata()


@pytest.fixture
async def store(metadata):
    store = await NamespaceStore.open(metadata, Settings())
    await store.create_namespace(SPACE, store.new_policies())
    return store


def set_ttl(seconds):
    return lambda old: msgspec.structs.replace(old, message_ttl_in_seconds=seconds)


async def test_a_deletion_forgets_the_topics_of_the_namespace_alone(store, metadata):
    for topic in (*TOPICS, OTHER):
        await store.update_topic(topic, set_ttl(5))
    await store.delete_namespace(SPACE)
    assert store.topics.names() == [str(OTHER)]
    assert (await NamespaceStore.open(metadata, Settings())).topics.names() == [str(OTHER)]


async def test_no_write_that_is_under_way_or_waits_stays_behind_a_deletion(store, metadata):
    """Two writes are under way when the deletion begins, one of them of a new record; two more wait behind these, and
    two of other topics come amid the deletion, while the policies and then the namespace are removed.
    """
    await store.update_topic(TOPICS[0], set_ttl(5))
    late = {}

    def write(path):
        topic = TOPICS[3] if path == f"/admin/policies/{SPACE}" else TOPICS[2]
        if topic not in late:
            late[topic] = asyncio.ensure_future(store.update_topic(topic, set_ttl(8)))

    under_way = [asyncio.ensure_future(store.update_topic(topic, set_ttl(6))) for topic in TOPICS[:2]]
    await asyncio.sleep(0)
    deletion = asyncio.ensure_future(store.delete_namespace(SPACE))
    await asyncio.sleep(0)
    metadata.before_write = write
    waiting = [asyncio.ensure_future(store.update_topic(topic, set_ttl(7))) for topic in TOPICS[:2]]
    await deletion
    assert [type(each) for each in await asyncio.gather(*under_way)] == [TopicPolicies] * 2
    refused = await asyncio.gather(*waiting, *late.values(), return_exceptions=True)
    assert [type(each) for each in refused] == [MissingError] * 4
    assert store.topics.names() == []
    assert await metadata.children(f"/admin/topic-policies/{SPACE}/persistent") == []


async def test_a_namespace_that_is_being_deleted_takes_no_policies_of_topics(store):
    await store.update_namespace(SPACE, lambda old: msgspec.structs.replace(old, deleted=True))
    with pytest.raises(MissingError, match="Namespace is deleted"):
        await store.update_topic(TOPICS[0], set_ttl(5))
    assert store.topics.names() == []


async def test_a_failed_deletion_leaves_a_namespace_that_takes_policies(store, metadata):
    def fail(path):
        if path == f"/admin/policies/{SPACE}":
            raise OSError

    metadata.before_write = fail
    with pytest.raises(OSError):
        await store.delete_namespace(SPACE)
    metadata.before_write = lambda _path: None
    await store.update_topic(TOPICS[0], set_ttl(5))
    assert store.topic_policies(TOPICS[0]).message_ttl_in_seconds == 5
