"""The properties of all subscriptions of a topic together."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from magnetar.broker.admin_backend.admin_subscriptions import AdminSubscriptions
from magnetar.broker.errors import MetadataError
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.property_room import FREE_BYTES, MOST_BYTES
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol.topic_name import TopicName
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


async def test_subscriptions_of_a_non_persistent_topic_have_the_same_limit():
    """Over REST 2,000 subscriptions without consumers kept 64 KiB each."""
    bench = TopicBench()
    topic = NonPersistentTopic(TopicName.parse("non-persistent://public/default/t"), bench.context)
    for number in range(MOST - 1):
        await create(topic, f"s-{number}", LARGE)
    with pytest.raises(MetadataError, match="properties"):
        await create(topic, "refused", LARGE)
    assert "refused" not in topic.subscriptions.by_name
    registry = SimpleNamespace(get=lambda _name, **_options: settled(topic))
    admin = AdminSubscriptions(registry, None)
    await create(topic, "small", {})
    for name, fits in (("small", False), ("s-0", True)):
        with contextlib.nullcontext() if fits else pytest.raises(MetadataError, match="properties"):
            await admin.set_subscription_properties(topic.name, name, LARGE)
    assert topic.subscriptions.by_name["small"].properties == {}


async def settled(value):
    return value


async def test_subscriptions_that_are_being_created_count():
    bench = TopicBench()
    topic = await bench.open()
    tasks = [asyncio.ensure_future(create(topic, f"s-{number}", LARGE)) for number in range(2 * MOST)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(each, MetadataError) for each in results) == MOST + 1
    await bench.close()
