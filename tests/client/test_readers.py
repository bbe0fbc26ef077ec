"""Readers of a connection: permits."""

import asyncio

import pytest

from magnetar.client import connection as connection_module
from magnetar.client.address import Credentials
from magnetar.client.connection import open_connection
from magnetar.client.errors import RetryError
from magnetar.client.readers import Readers
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from tests.client.pushing_topic import PushingTopic, batch
from tests.importing.scripted_broker import ScriptedBroker


class Messages:
    """Keeps the messages of a reader."""

    def __init__(self):
        self.queue = asyncio.Queue()

    def on_message(self, message):
        self.queue.put_nowait(message)

    def on_closed(self, error):
        self.queue.put_nowait(error)


def chunk(number, total):
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=7, publish_time=1000, uuid="u", chunk_id=number, num_chunks_from_msg=total
    )
    return encode_entry(metadata, b"x"), 1


@pytest.mark.parametrize(
    ("entries", "messages"),
    [
        ([batch(100, encrypted=True)] * 20, 20),
        ([batch(100, compacted_out=range(99))] * 20, 20),
        ([chunk(n, 300) for n in range(300)] * 4, 4),
    ],
    ids=["encrypted", "compacted", "chunks"],
)
async def test_permits_of_messages_that_an_entry_lacks_return(entries, messages):
    topic, got = PushingTopic(*entries), Messages()
    async with topic.broker() as broker:
        connection = await open_connection(broker.address, Credentials())
        await Readers(connection).open("persistent://public/default/t", got)
        async with asyncio.timeout(5):
            assert all([(await got.queue.get()).publish_time_ms for _ in range(messages)])
        await connection.wait_closed()


async def test_a_reader_without_an_answer_in_time_is_closed_at_the_broker(monkeypatch):
    closed = asyncio.Queue()

    def note(broker, command):
        closed.put_nowait(command.close_consumer.consumer_id)
        return b""

    async with ScriptedBroker(SUBSCRIBE=lambda *_: b"", CLOSE_CONSUMER=note) as broker:
        connection = await open_connection(broker.address, Credentials())
        monkeypatch.setattr(connection_module, "TIMEOUT_S", 0.01)
        with pytest.raises(RetryError, match="no answer"):
            await Readers(connection).open("persistent://public/default/t", Messages())
        async with asyncio.timeout(10):
            assert await closed.get() == 1
        await connection.wait_closed()
