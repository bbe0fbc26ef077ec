"""The end of a topic with many subscriptions."""

import asyncio
import weakref

from magnetar.broker.topics.closed_subscriptions import wake
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from tests.broker.admin.test_long_lists import Turns
from tests.broker.topic_for_tests import TopicBench


async def test_the_acknowledgements_of_many_subscriptions_are_saved_together():
    """The broker saved one after the other: the unload of a topic with 3,000 subscriptions took 26 s with their cursors."""
    bench = TopicBench()
    await bench.open()
    (position,) = await bench.publish(b"a")
    flushing, most = [], 0

    def slow(cursor):
        flush = cursor.flush

        async def late():
            nonlocal most
            flushing.append(None)
            most = max(most, len(flushing))
            await asyncio.sleep(0)
            await flush()
            flushing.pop()

        cursor.flush = late

    for number in range(100):
        created = await bench.topic.subscriptions.create(SubscribeRequest(f"s{number}", from_earliest=True))
        created.cursor.ack_cumulative(position)
        slow(created.cursor)
    await bench.topic.subscriptions.close()
    assert 16 < most < 100


async def test_the_objects_of_many_subscriptions_end_in_slices():
    """All of 8,000 subscriptions ended in one turn of the event loop: their names were forgotten together."""
    bench, turns = TopicBench(), Turns()
    await bench.open()
    for number in range(300):
        weakref.finalize(await bench.subscribe(f"s{number}"), turns.note)
    counting = asyncio.create_task(turns.run())
    await bench.topic.close()
    counting.cancel()
    assert turns.total == 300
    assert turns.most <= 65, "64 of a slice, and the last of the slice before"


async def test_a_delayed_index_wakes_no_subscription_that_has_ended():
    bench = TopicBench()
    await bench.open()
    subscription = await bench.subscribe()
    wake(weakref.ref(subscription))
    reference = weakref.ref(subscription)
    del subscription
    await bench.topic.subscriptions.close()
    assert reference() is None
    wake(reference)
