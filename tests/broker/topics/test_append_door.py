"""The append door of a running broker."""

import asyncio

import pytest

from magnetar.broker.broker import Broker
from magnetar.broker.errors import NotAllowedError, ProducerBusyError, ServiceNotReadyError, TopicTerminatedError
from magnetar.broker.settings import Settings
from magnetar.broker.topics.append_door import Foreign
from magnetar.broker.topics.names_room import NamesRoom
from magnetar.converters.entry import Entry
from magnetar.converters.errors import EntryError
from magnetar.protocol.metadata import parse_entry_metadata, split_entry
from magnetar.protocol.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/door")


@pytest.fixture
async def broker(tmp_path):
    started = Broker(
        Settings(
            data_dir=str(tmp_path / "data"),
            broker_service_port=0,
            web_service_port=None,
            max_message_size=1 << 20,
            broker_entry_metadata_interceptors=("org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",),
        )
    )
    await started.start()
    yield started
    await asyncio.wait_for(started.stop(), 20)


async def test_entries_are_stored_in_order_with_index_and_count(broker):
    door = broker.append_door
    foreign = [Foreign("kafka", b"payload %d" % n, messages=3, properties={"a": "b"}) for n in range(5)]
    positions = await asyncio.gather(*(door.append_foreign(NAME, each) for each in foreign))
    assert positions == sorted(positions)
    topic = await broker.topics.get(NAME, create=False)
    for n, position in enumerate(positions):
        body = (await topic.ledger.read_entry(position)).body(0)
        metadata, payload = split_entry(body)
        assert bytes(payload) == b"payload %d" % n
        assert metadata.num_messages_in_batch == 3
        assert {each.key: each.value for each in metadata.properties} == {"entry.format": "kafka", "a": "b"}
        assert parse_entry_metadata(body).index == 3 * n + 2
    assert topic.publishing.rate_in.total_messages == 15


async def test_deduplication_forgets_the_names_of_its_producers(broker):
    """A request over REST chooses the name: each name stayed in memory while the topic was loaded."""
    topic = await broker.topics.get(NAME, create=True)
    await topic.deduplication.switch(on=True)
    now_s = 1000.0
    topic.deduplication._monotonic = lambda: now_s
    for number in range(3):
        await broker.append_door.append_foreign(NAME, Foreign("kafka", b"x", producer_name=f"p{number}"))
    assert set(topic.deduplication.table.persisted) == {"p0", "p1", "p2"}
    now_s += 360 * 60 + 1
    await topic.deduplication.purge_inactive()
    assert not topic.deduplication.table.persisted


async def test_a_new_name_beyond_the_room_for_names_is_refused(broker):
    topic = await broker.topics.get(NAME, create=True)
    topic.deduplication._room = NamesRoom(most=0, free=0)
    await topic.deduplication.switch(on=False)
    await topic.deduplication.switch(on=True)
    first, second = (Foreign("kafka", b"x", producer_name=name) for name in "ab")
    await broker.append_door.append_foreign(NAME, first)
    await broker.append_door.append_foreign(NAME, first)
    with pytest.raises(ProducerBusyError):
        await broker.append_door.append_foreign(NAME, second)
    assert topic.ledger.entries == 2


async def test_a_single_message_is_no_batch(broker):
    entry = Foreign("bytes", b"x", publish_time=5, producer_name="h", sequence_id=9).encode(7)
    metadata = Entry(entry).metadata
    assert not metadata.HasField("num_messages_in_batch")
    assert (metadata.publish_time, metadata.producer_name, metadata.sequence_id) == (5, "h", 9)


async def test_entries_that_a_client_could_not_publish_are_refused(broker):
    door = broker.append_door
    with pytest.raises(EntryError):
        await door.append(NAME, b"\xff\xff\xff\xff")
    with pytest.raises(NotAllowedError, match="maximum message size"):
        await door.append_foreign(NAME, Foreign("kafka", bytes(2 << 20)))
    await door.append_foreign(NAME, Foreign("kafka", b"x"))
    await (await broker.topics.get(NAME, create=False)).terminate()
    with pytest.raises(TopicTerminatedError):
        await door.append_foreign(NAME, Foreign("kafka", b"x"))
    with pytest.raises(ServiceNotReadyError):
        await door.append_foreign(TopicName.parse("persistent://public/none/t"), Foreign("kafka", b"x"))


async def test_a_non_persistent_topic_takes_it_too(broker):
    name = TopicName.parse("non-persistent://public/default/door")
    assert await broker.append_door.append_foreign(name, Foreign("kafka", b"x")) == (0, 0)
