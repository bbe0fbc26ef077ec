"""`magnetar.start` and `magnetar.start_async`."""

import os
import subprocess
import sys

import pulsar
import pytest

import magnetar
from magnetar.process import AsyncBroker, BrokerStartError
from tests.blackbox.clients import quiet_client


def send_and_receive(url):
    client = quiet_client(url)
    consumer = client.subscribe("started", "sub")
    client.create_producer("started").send(b"one")
    assert consumer.receive(10_000).data() == b"one"
    client.close()


def test_a_broker_for_a_block():
    with magnetar.start(allowAutoTopicCreationType="partitioned") as broker:
        send_and_receive(broker.url)
        folder = broker.data_dir.parent
        assert (broker.data_dir / "VERSION").exists()
    assert not folder.exists()


def test_a_given_data_directory_is_kept(tmp_path):
    with magnetar.start(tmp_path / "data") as broker:
        client = quiet_client(broker.url)
        client.subscribe("kept", "sub")
        client.create_producer("kept").send(b"kept")
        client.close()
    with magnetar.start(str(tmp_path / "data")) as broker:
        client = quiet_client(broker.url)
        assert client.subscribe("kept", "sub").receive(10_000).data() == b"kept"
        client.close()


async def test_for_asyncio():
    async with magnetar.start_async(maxMessageSize=4096) as broker:
        send_and_receive(broker.url)
        assert broker.http_url.startswith("http://127.0.0.1:")
        folder, url = broker.data_dir.parent, broker.url
        await broker.kill()
        await broker.start()
        assert broker.url == url
        assert await broker.stop() == 0
    assert not folder.exists()


async def test_an_async_broker_outside_its_block_raises():
    with pytest.raises(RuntimeError, match="async with"):
        _ = AsyncBroker().url


def test_a_failed_start_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerStartError, match="did you mean maxMessageSize"):
        magnetar.start(maxMesageSize=4096)
    assert not list(tmp_path.iterdir())


def test_the_end_of_the_interpreter_ends_the_broker(tmp_path):
    script = "import magnetar; broker = magnetar.start(); print(broker._process.pid, broker.data_dir)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    pid, folder = out.stdout.split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert not os.path.exists(folder)


def test_importing_the_package_is_cheap():
    script = "import sys, magnetar; print('subprocess' in sys.modules, 'asyncio' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.split() == ["False", "False"]


def test_the_official_client_refuses_entries_beyond_the_setting():
    with magnetar.start(maxMessageSize=4096) as broker:
        client = quiet_client(broker.url)
        with pytest.raises(pulsar.MessageTooBig):
            client.create_producer("t", batching_enabled=False).send(bytes(10_000))
        client.close()
