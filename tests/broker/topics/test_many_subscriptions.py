"""The end of a topic with many subscriptions."""

import asyncio

from magnetar.broker.topics.subscribe_request import SubscribeRequest
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
