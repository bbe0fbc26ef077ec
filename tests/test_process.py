"""`magnetar.start` and `magnetar.start_async`."""

import os
import signal
import socket
import subprocess
import sys

import pulsar
import pytest

import magnetar
from magnetar.process import AsyncBroker, BrokerStartError
from tests.blackbox.clients import quiet_client
from tests.broker.admin.test_admin_server import Certificates
from tests.waiting import wait_for


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
        assert broker.log_path.exists()
        folder, url = broker.data_dir.parent, broker.url
        await broker.kill()
        await broker.start()
        assert broker.url == url
        assert await broker.stop() == 0
        assert await broker.wait_exit() == 0
    assert not folder.exists()


async def test_an_async_broker_outside_its_block_raises():
    with pytest.raises(RuntimeError, match="async with"):
        _ = AsyncBroker().url


def test_an_empty_path_of_the_data_directory_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BrokerStartError, match="the path of the data directory is empty"):
        magnetar.start("")
    assert not list(tmp_path.iterdir())


def test_a_failed_start_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerStartError, match="did you mean maxMessageSize"):
        magnetar.start(maxMesageSize=4096)
    assert not list(tmp_path.iterdir())


def test_a_failed_start_shows_its_own_lines_of_a_kept_log(tmp_path):
    with magnetar.start(tmp_path / "data"):
        with pytest.raises(BrokerStartError, match="in use by process") as refused:
            magnetar.start(tmp_path / "data")
        assert "broker.started" in (tmp_path / "data.log").read_text()
    assert "broker.started" not in str(refused.value), "a line of the other broker"


def test_the_end_of_the_interpreter_ends_the_broker(tmp_path):
    script = "import magnetar; broker = magnetar.start(); print(broker._process.pid, broker.data_dir)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    pid, folder = out.stdout.removesuffix("\n").split(" ", 1)  # the folder's name may have spaces
    assert has_ended(int(pid))
    assert not os.path.exists(folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda each: each.name)
def test_a_broker_ends_with_an_interpreter_that_is_killed(tmp_path, number):
    script = (
        f"import magnetar, time; broker = magnetar.start({str(tmp_path / 'data')!r});"
        " print(broker._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        broker = int(owner.stdout.readline())
        owner.send_signal(number)
    wait_for(lambda: has_ended(broker), subject="the end of the broker")


def has_ended(pid):
    """Whether the process has ended; where no process waits for orphans, a zombie stays."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_an_interrupt_of_the_terminal_reaches_the_owner_alone():
    with magnetar.start() as broker:
        assert os.getpgid(broker._process.pid) != os.getpgrp()


def test_a_forked_process_that_ends_leaves_the_broker_and_its_data():
    with magnetar.start() as broker:
        child = os.fork()
        if child == 0:
            try:
                broker.__exit__(None, None, None)
                broker._finalizer()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert broker.data_dir.exists()
        send_and_receive(broker.url)


def test_directories_whose_names_differ_behind_a_dot_have_separate_logs(tmp_path):
    with magnetar.start(tmp_path / "node.1") as one, magnetar.start(tmp_path / "node.log") as two:
        assert one.log_path == tmp_path / "node.1.log"
        assert two.log_path == tmp_path / "node.log.log"


def test_a_relative_directory_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with magnetar.start(".") as here:
        assert here.data_dir == tmp_path
        assert here.log_path == tmp_path.with_name(f"{tmp_path.name}.log")
    with magnetar.start("data") as broker:
        monkeypatch.chdir("/")
        broker.kill()
        broker.start()
        assert broker.data_dir == tmp_path / "data"
        send_and_receive(broker.url)


def test_a_broker_whose_ports_have_tls_alone_comes_back_where_it_was(tmp_path):
    certificate, key = Certificates(tmp_path).make("localhost")
    settings = {"brokerServicePort": None, "webServicePort": None, "brokerServicePortTls": 0, "webServicePortTls": 0}
    with magnetar.start(tlsCertificateFilePath=certificate, tlsKeyFilePath=key, **settings) as broker:
        addresses = broker.url, broker.http_url
        assert addresses[0].startswith("pulsar+ssl://")
        broker.kill()
        broker.start()
        assert (broker.url, broker.http_url) == addresses


def test_the_faults_of_a_broker_that_comes_back_stay():
    with magnetar.start(faults=True) as broker:
        faults = broker.faults
        broker.kill()
        broker.start()
        assert faults.state() == broker.faults.state()


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


def test_a_start_of_a_running_broker_changes_nothing():
    """A second process found the directory taken, and the broker object lost the first process."""
    with magnetar.start() as broker:
        process, url = broker._process, broker.url
        broker.start()
        assert (broker._process, broker.url) == (process, url)
        assert broker.is_running
    assert process.poll() == 0


def test_a_folder_of_the_same_name_in_the_working_directory_is_not_the_package(tmp_path, monkeypatch):
    """A checkout beside the tests of a user hid the editable installation from the broker's process."""
    (tmp_path / "magnetar").mkdir()
    monkeypatch.chdir(tmp_path)
    with magnetar.start() as broker:
        assert broker.is_running


def test_a_web_port_that_is_taken_fails_the_start(tmp_path):
    """The broker alone serves its clients without the port, and `http_url` was no address then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerStartError, match=f"no web port:(?s:.*)port {port}: Address already in use"):
            magnetar.start(tmp_path / "data", webServicePort=port)
    with magnetar.start(tmp_path / "data", webServicePort=None) as broker:
        assert broker.http_url == "-"
