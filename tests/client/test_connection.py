"""A connection whose broker falls silent, or whose peer is no broker."""

import asyncio

import pytest

from magnetar.cli.session import cli_error
from magnetar.client.address import Address, Credentials
from magnetar.client.connection import open_connection, refusal
from magnetar.client.errors import ClientError, RefusedError, RetryError
from magnetar.client.lookup import partitions
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies, requests
from tests.importing.scripted_broker import KIND, ScriptedBroker
from tests.waiting import until

TOPIC = "persistent://public/default/t"


async def test_a_silent_broker_ends_the_connection(monkeypatch):
    monkeypatch.setattr("magnetar.client.connection.KEEP_ALIVE_S", 0.02)
    async with ScriptedBroker(PING=lambda *_: b"", PARTITIONED_METADATA=lambda *_: b"") as broker:
        connection = await open_connection(broker.address, Credentials())
        with pytest.raises(RetryError, match="not answered a PING"):
            await connection.ask(lambda n: requests.partitioned_metadata(n, TOPIC))
        await connection.wait_closed()
        await until(lambda: not broker.connections)


async def test_a_connection_stays_open_while_the_broker_answers_and_while_nothing_is_read():
    """The test makes the turns of the timer, since a busy machine may stop for longer than a short interval."""
    async with ScriptedBroker() as broker:
        connection = await open_connection(broker.address, Credentials())
        for _ in range(4):
            connection._keep_alive()
            await connection.ask(lambda n: requests.partitioned_metadata(n, TOPIC))  # behind the PONG
        connection.pause_reading()
        for _ in range(4):
            connection._keep_alive()
        await until(lambda: broker.seen.count(KIND.PING) == 8)
        connection.resume_reading()
        assert connection.lost is None
        await connection.wait_closed()


async def test_a_caller_that_gives_up_waiting_for_the_transport_leaves_the_others_waiting():
    async with ScriptedBroker() as broker:
        connection = await open_connection(broker.address, Credentials())
        connection.pause_writing()
        gives_up, waits = (asyncio.create_task(connection.wait_writable()) for _ in range(2))
        await asyncio.sleep(0)
        gives_up.cancel()
        await asyncio.wait({gives_up})
        assert not waits.done()
        connection.resume_writing()
        await waits
        await connection.wait_closed()


def test_an_error_of_a_broker_that_answers_suggests_no_other_address():
    full = refusal(pb.PersistenceError, "No space left on device")
    assert isinstance(full, RetryError)
    assert str(cli_error(full)) == "PersistenceError: No space left on device"
    assert "is the broker up" in str(cli_error(RetryError("127.0.0.1:1 does not answer")))


async def test_a_missing_topic_is_named_though_the_broker_gives_no_reason():
    def missing(_broker, command):
        return replies.partitioned_metadata_failed(command.partitionMetadata.request_id, pb.TopicNotFound, "")

    async with ScriptedBroker(PARTITIONED_METADATA=missing) as broker:
        connection = await open_connection(broker.address, Credentials())
        with pytest.raises(RefusedError, match=f"Topic {TOPIC} does not exist$"):
            await partitions(connection, TOPIC)
        assert not await partitions(connection, TOPIC, absent_ok=True)


async def foreign_peer(answer):
    """A listener that answers any bytes with `answer` and closes; returns the server and its address."""

    async def serve(reader, writer):
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("scheme", "answer", "said"),
    [
        ("pulsar", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Pulsar's protocol"),
        ("pulsar+ssl", b"HTTP/1.1 400 Bad Request\r\n\r\n", "TLS with 127.0.0.1"),
        ("pulsar+ssl", b"", "closed"),
        ("pulsar", b"", "a port with TLS needs pulsar+ssl://"),
    ],
)
async def test_the_port_of_another_server_counts_as_no_answer(scheme, answer, said):
    server, port = await foreign_peer(answer)
    async with server:
        with pytest.raises(ClientError) as raised:
            await open_connection(Address.parse(f"{scheme}://127.0.0.1:{port}"), Credentials())
    found = cli_error(raised.value)
    assert (found.exit_code, raised.value.exit_code) == (69, 69)
    assert said in str(found)
    assert "Give --url" in str(found)
