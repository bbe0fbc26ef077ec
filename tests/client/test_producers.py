"""The producers of a connection."""

import pytest

from magnetar.client.address import Credentials
from magnetar.client.connection import open_connection
from magnetar.client.errors import RetryError
from magnetar.client.producers import Producers
from magnetar.client.send_window import SendWindow
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer


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
