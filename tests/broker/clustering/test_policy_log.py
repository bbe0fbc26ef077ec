"""The reading of the policies of topics: readers at a broker that does not answer."""

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.clustering.policy_events import NOTHING
from magnetar.broker.clustering.policy_log import PolicyLog
from magnetar.broker.tasks import TaskSet
from magnetar.client.address import Credentials
from magnetar.client.errors import RetryError
from magnetar.client.pool import ConnectionPool
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import StorageUnavailableError
from tests.client.pushing_topic import success
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer
from tests.waiting import until


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


class Events:
    """The topic of events; the metadata service answers while ``answers``."""

    def __init__(self):
        self.answers, self.time_ms = True, 1

    def events_exist(self, _namespace):
        return True

    async def events_created_ms(self, _topic):
        if not self.answers:
            raise StorageUnavailableError("no answer")
        return self.time_ms


@pytest.fixture
async def world(monkeypatch):
    """A complete log, its topic of events, and a function that waits for the next reader."""
    monkeypatch.setattr("magnetar.broker.clustering.policy_log._LOOK_AGAIN_S", 0.05)
    opened = asyncio.Queue()

    def subscribe(broker, command):
        opened.put_nowait(command.subscribe.consumer_id)
        return success(command.subscribe.request_id)

    broker = ScriptedBroker(
        PARTITIONED_METADATA=lambda broker, command: broker.partitions(command, 0),
        SUBSCRIBE=subscribe,
        FLOW=lambda *_: b"",
        GET_LAST_MESSAGE_ID=last_message,
        CLOSE_CONSUMER=lambda _, command: success(command.close_consumer.request_id),
    )
    async with broker:
        pool, tasks, events = ConnectionPool(Credentials()), TaskSet(), Events()
        peers = SimpleNamespace(service=broker.address, connections=pool)
        log = PolicyLog("public/default", peers, events, lambda _: None, tasks)
        async with asyncio.timeout(20):
            await opened.get()
            await log.wait_complete()
            yield log, events, opened, pool
        log.stop()
        await tasks.close()
        await pool.wait_closed()


async def lose_reader(log, opened):
    """The connection of the reader ends; return when the log has opened another reader."""
    (part,) = log._parts
    log._queue.put_nowait((part, RetryError("the connection was lost")))
    await opened.get()


async def test_a_lost_reader_is_opened_again_while_the_metadata_service_is_away(world):
    log, events, opened, _ = world
    events.answers = False
    await lose_reader(log, opened)
    await log.catch_up()
    events.answers = True
    await until(lambda: log._looked)
    assert log.is_complete
    assert opened.empty()


async def test_a_topic_created_anew_meanwhile_is_noticed_when_the_service_is_back(world):
    log, events, opened, _ = world
    log._known["persistent://public/default/t"] = NOTHING
    events.answers = False
    await lose_reader(log, opened)
    events.answers, events.time_ms = True, 2
    await opened.get()
    await log.wait_complete()
    assert log.get("persistent://public/default/t") is None


async def test_the_first_reader_waits_for_the_metadata_service(world):
    log, events, opened, pool = world
    events.answers = False
    tasks = TaskSet()
    first = PolicyLog("public/other", log._peers, events, lambda _: None, tasks)
    await until(lambda: "no answer" in first._problem)
    assert opened.empty()
    events.answers = True
    await opened.get()
    await first.wait_complete()
    first.stop()
    await tasks.close()
