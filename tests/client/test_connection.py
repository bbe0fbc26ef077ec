"""A connection whose broker falls silent."""

import asyncio

import pytest

from magnetar.client.address import Credentials
from magnetar.client.connection import open_connection
from magnetar.client.errors import RetryError
from magnetar.protocol import requests
from tests.importing.scripted_broker import KIND, ScriptedBroker


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("magnetar.client.connection.KEEP_ALIVE_S", 0.02)


async def test_a_silent_broker_ends_the_connection():
    async with ScriptedBroker(PING=lambda *_: b"", PARTITIONED_METADATA=lambda *_: b"") as broker:
        connection = await open_connection(broker.address, Credentials())
        with pytest.raises(RetryError, match="not answered a PING"):
            await connection.ask(lambda n: requests.partitioned_metadata(n, "persistent://public/default/t"))
        await connection.wait_closed()
        assert broker.connections == 0


async def test_a_connection_stays_open_while_the_broker_answers_and_while_nothing_is_read():
    got = asyncio.Queue()

    def on_ping(broker, command):
        got.put_nowait(command)
        return broker.pong()

    async with ScriptedBroker(PING=on_ping) as broker:
        connection = await open_connection(broker.address, Credentials())
        for paused in (False, True):
            if paused:
                connection.pause_reading()
            for _ in range(4):
                await got.get()
        connection.resume_reading()
        assert connection.lost is None
        await connection.wait_closed()
    assert broker.seen.count(KIND.PING) >= 8
