"""The producers of a connection."""

import asyncio

import pytest

from magnetar.client import connection as connection_module
from magnetar.client.address import Credentials
from magnetar.client.connection import open_connection
from magnetar.client.errors import RetryError
from magnetar.client.producers import Producers
from magnetar.client.send_window import SendWindow
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer, error


async def test_a_producer_that_the_broker_closes_with_its_answer_fails():
    def closed_at_once(broker, command):
        closing = pb.CommandCloseProducer(producer_id=command.producer.producer_id, request_id=0)
        return broker.producer(command) + answer(KIND.CLOSE_PRODUCER, close_producer=closing)

    async with ScriptedBroker(PRODUCER=closed_at_once) as broker:
        connection = await open_connection(broker.address, Credentials())
        window = SendWindow(lambda *_: None)
        await Producers(connection).open("persistent://public/default/t", "name", window)
        with pytest.raises(RetryError, match="closed the producer"):
            await window.wait_room(1)
        await connection.wait_closed()


async def test_a_producer_without_an_answer_in_time_is_closed_at_the_broker(monkeypatch):
    """The name would stay in use as long as the connection, which other producers share."""
    closed = asyncio.Queue()

    def note(broker, command):
        closed.put_nowait(command.close_producer.producer_id)
        return b""

    async with ScriptedBroker(PRODUCER=lambda *_: b"", CLOSE_PRODUCER=note) as broker:
        connection = await open_connection(broker.address, Credentials())
        monkeypatch.setattr(connection_module, "TIMEOUT_S", 0.01)
        with pytest.raises(RetryError, match="no answer"):
            await Producers(connection).open("persistent://public/default/t", "name", SendWindow(lambda *_: None))
        async with asyncio.timeout(10):
            assert await closed.get() == 1
        await connection.wait_closed()


async def test_a_refused_producer_is_not_closed():
    def refuse(broker, command):
        return error(command.producer.request_id, pb.ProducerBusy)

    async with ScriptedBroker(PRODUCER=refuse) as broker:
        connection = await open_connection(broker.address, Credentials())
        producers = Producers(connection)
        for _ in range(2):
            with pytest.raises(RetryError, match="ProducerBusy"):
                await producers.open("persistent://public/default/t", "name", SendWindow(lambda *_: None))
        assert KIND.CLOSE_PRODUCER not in broker.seen
        await connection.wait_closed()


async def test_a_producer_on_a_lost_connection_is_not_closed():
    async with ScriptedBroker(PRODUCER=lambda *_: None) as broker:
        connection = await open_connection(broker.address, Credentials())
        with pytest.raises(RetryError, match="lost"):
            await Producers(connection).open("persistent://public/default/t", "name", SendWindow(lambda *_: None))
        assert KIND.CLOSE_PRODUCER not in broker.seen
