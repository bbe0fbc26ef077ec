"""The consumers of a topic by host, and the limit of consumers from an address."""

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Consumer, ConsumerSpec
from magnetar.broker.consumers.host_counts import HostCounts
from magnetar.broker.errors import ConsumerBusyError
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.storage.position import EARLIEST
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.calls import Calls
from tests.twins.fake_connection import FakeConnection


def at(address):
    return SimpleNamespace(outbox=SimpleNamespace(address=address))


def test_consumers_of_a_host_count_together():
    hosts = HostCounts()
    first, second, other = at("/[::1]:1"), at("/[::1]:2"), at("/10.0.0.1:1")
    for each in (first, second, other):
        hosts.joined(each)
    assert (hosts.total, hosts.of(first), hosts.of(other), hosts.of(at("/10.0.0.2:1"))) == (3, 2, 1, 0)
    for each in (first, second):
        hosts.left(each)
    assert (hosts.total, hosts.of(first), hosts.of(other), len(hosts._by_host)) == (1, 0, 1, 1)


class Joining:
    """Joins consumers of one address to subscriptions of a topic."""

    def __init__(self, bench):
        self._bench, self._ids = bench, 0

    async def join(self, subscription, sub_type, *, durable=True):
        self._ids += 1
        spec = ConsumerSpec(self._ids, NAME, subscription, sub_type, f"c{self._ids}")
        consumer = Consumer(FakeConnection(), spec)
        request = SubscribeRequest(subscription, durable=durable, start=None if durable else EARLIEST)
        await self._bench.topic.subscriptions.subscribe(consumer, request)
        return consumer


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
@pytest.mark.parametrize("durable", [True, False])
async def test_every_end_of_a_consumer_frees_its_place(kind, durable):
    bench = TopicBench(max_same_address_consumers_per_topic=2)
    topic = await bench.open()
    [position] = await bench.publish(b"a")
    join, subscriptions = Joining(bench).join, topic.subscriptions
    more = kind != EXCLUSIVE

    async def fill():
        found = [await join("a", kind, durable=durable), await join("a" if more else "b", kind, durable=durable)]
        with pytest.raises(ConsumerBusyError):
            await join("c", kind, durable=durable)
        assert subscriptions._hosts.total == subscriptions.consumer_count == 2
        return found

    def leave(joined):
        for each in joined:
            each.subscription.remove_consumer(each)
            each.subscription.remove_consumer(each)

    joined = await fill()
    leave(joined)
    assert subscriptions._hosts.total == 0
    joined = await fill()
    await joined[0].subscription.seek(position)
    assert subscriptions._hosts.total == subscriptions.consumer_count
    leave(joined)
    joined = await fill()
    for each in joined:
        each.subscription.disconnect_all()
    assert subscriptions._hosts.total == 0
    joined = await fill()
    for name in list(subscriptions.by_name):
        await subscriptions.delete(name)
    assert subscriptions._hosts.total == subscriptions.consumer_count == 0
    leave(joined)
    await fill()
    await bench.close()


async def test_the_limit_of_an_address_looks_at_no_other_consumers():
    """Each SUBSCRIBE walked through all consumers of the topic."""
    calls = []
    for others in (10, 1000):
        bench = TopicBench(max_same_address_consumers_per_topic=others + 1, max_consumers_per_topic=others + 1)
        topic = await bench.open()
        join = Joining(bench).join
        for number in range(others):
            await join(f"s{number % 7}", SHARED)
        new = at(FakeConnection().address)
        with Calls() as counted:
            topic.subscriptions._check_same_address(new)
            topic.subscriptions.check_room()
        calls.append(counted.count)
        await join("s", SHARED)
        with pytest.raises(ConsumerBusyError):
            topic.subscriptions._check_same_address(new)
        topic.subscriptions._context.turns._call_later = asyncio.get_running_loop().call_later  # CLOSE_CONSUMERs
        await bench.close()
    assert calls[0] == calls[1], calls
