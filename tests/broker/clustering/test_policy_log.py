"""The reading of the policies of topics: readers at a broker that does not answer."""

import asyncio
from types import SimpleNamespace

from magnetar.broker.clustering.policy_log import PolicyLog
from magnetar.broker.tasks import TaskSet
from magnetar.client.address import Credentials
from magnetar.client.pool import ConnectionPool
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.client.pushing_topic import success
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer


def last_message(_, command):
    place = pb.MessageIdData(ledgerId=1, entryId=0xFFFFFFFFFFFFFFFF)
    request_id = command.getLastMessageId.request_id
    response = pb.CommandGetLastMessageIdResponse(request_id=request_id, last_message_id=place)
    return answer(KIND.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=response)


async def created_ms(_):
    return 1


async def test_the_readers_of_all_partitions_are_closed_when_the_broker_does_not_answer():
    """The connection is shared and stays, so a forgotten reader would fill the memory with its messages."""
    closed, lost = asyncio.Queue(), []

    def subscribe(_, command):
        return success(command.subscribe.request_id)

    def last_message_of_all(broker, command):
        reader_id = command.getLastMessageId.consumer_id
        if reader_id == 3 and not lost:
            lost.append(1)
            closing = pb.CommandCloseConsumer(consumer_id=1, request_id=0)
            return last_message(broker, command) + answer(KIND.CLOSE_CONSUMER, close_consumer=closing)
        return last_message(broker, command)

    def note(_, command):
        closed.put_nowait(command.close_consumer.consumer_id)
        return b""

    broker = ScriptedBroker(
        PARTITIONED_METADATA=lambda broker, command: broker.partitions(command, 3),
        SUBSCRIBE=subscribe,
        FLOW=lambda *_: b"",
        GET_LAST_MESSAGE_ID=last_message_of_all,
        CLOSE_CONSUMER=note,
    )
    async with broker:
        pool, tasks = ConnectionPool(Credentials()), TaskSet()
        peers = SimpleNamespace(service=broker.address, connections=pool)
        topics = SimpleNamespace(events_exist=lambda _: True, events_created_ms=created_ms)
        log = PolicyLog("public/default", peers, topics, lambda _: None, tasks)
        async with asyncio.timeout(20):
            assert {await closed.get(), await closed.get()} == {2, 3}
        log.stop()
        await tasks.close()
        await pool.wait_closed()
