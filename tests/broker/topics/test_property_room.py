"""The properties of all subscriptions of a topic together."""

import asyncio

import pytest

from magnetar.broker.errors import MetadataError
from magnetar.broker.topics.property_room import FREE_BYTES, MOST_BYTES
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from tests.broker.topic_for_tests import TopicBench

LARGE = {"text": "x" * (64 << 10)}
MOST = MOST_BYTES // (64 << 10)


async def create(topic, name, properties, *, durable=True):
    return await topic.subscriptions.create(SubscribeRequest(name, durable=durable, properties=properties))


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "of a reader"])
async def test_the_properties_of_all_subscriptions_have_a_limit(durable):
    """2,000 subscriptions with 64 KiB each held 274 MiB, and the statistics of the topic took 0.3 s in one turn."""
    bench = TopicBench()
    topic = await bench.open()
    for number in range(MOST - 1):
        await create(topic, f"s-{number}", LARGE, durable=durable)
    with pytest.raises(MetadataError, match="properties"):
        await create(topic, "refused", LARGE, durable=durable)
    assert "refused" not in topic.subscriptions.by_name
    small = {"text": "x" * (FREE_BYTES - 4)}
    await create(topic, "small", small, durable=durable)
    await create(topic, "none", {}, durable=durable)
    await bench.close()


async def test_room_returns_with_a_deleted_or_changed_subscription():
    bench = TopicBench()
    topic = await bench.open()
    room = topic.subscriptions.property_room
    for number in range(MOST - 1):
        await create(topic, f"s-{number}", LARGE)
    with room.taken("s-0", LARGE), pytest.raises(MetadataError):  # the new properties replace the old
        await create(topic, "new", LARGE)
    await topic.subscriptions.by_name["s-0"].cursor.set_cursor_properties({})
    await create(topic, "new", LARGE)
    await topic.subscriptions.delete("s-1")
    await create(topic, "s-1", LARGE)
    with pytest.raises(MetadataError):
        await create(topic, "newer", LARGE)
    await bench.close()


async def test_subscriptions_that_are_being_created_count():
    bench = TopicBench()
    topic = await bench.open()
    tasks = [asyncio.ensure_future(create(topic, f"s-{number}", LARGE)) for number in range(2 * MOST)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(each, MetadataError) for each in results) == MOST + 1
    await bench.close()
