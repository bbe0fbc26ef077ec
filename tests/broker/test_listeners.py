"""The HTTP server of a broker: loaded for the first HTTP client, and its failures."""

import asyncio
import dataclasses
import errno
import pathlib
import socket
import ssl
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from magnetar.broker import broker as broker_module
from magnetar.broker import listeners
from magnetar.broker.broker import Broker
from magnetar.broker.settings import Settings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from tests.broker.admin.test_admin_server import Certificates, get
from tests.trusting import trusting
from tests.waiting import until

_LOADED = """
import asyncio, dataclasses, sys
from magnetar.broker.broker import Broker
from magnetar.broker.settings import Settings

async def main():
    broker = Broker(dataclasses.replace(Settings(), data_dir=sys.argv[1], broker_service_port=0, web_service_port=0))
    await broker.start()
    print(*(name in sys.modules for name in ("uvicorn", "starlette", "magnetar.broker.admin.app")))
    await broker.stop()

asyncio.run(main())
"""


_SPARED = """
import gc
from magnetar.broker.start_up import spare_later_modules

spare_later_modules()
assert gc.get_freeze_count() == 0
gc.freeze()
before = gc.get_freeze_count()
later = [[] for _ in range(100)]
spare_later_modules()
assert gc.get_freeze_count() >= before + len(later)
"""


def settings(tmp_path, **more):
    given = {"data_dir": str(tmp_path / "data"), "broker_service_port": 0, "web_service_port": 0} | more
    return dataclasses.replace(Settings(), **given)


def certificate_in(path):
    return ssl.PEM_cert_to_DER_cert(pathlib.Path(path).read_text())


async def test_a_client_that_comes_before_the_broker_serves_topics_waits_for_its_answer(tmp_path, monkeypatch):
    broker = Broker(settings(tmp_path))
    going_on, clients = broker._start_maintenance, []

    async def comes_early():
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.listeners.binary.port)
        connect = pb.CommandConnect(client_version="early", protocol_version=20)
        writer.write(encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect)))
        await going_on()
        assert not list(broker.resources.connections)
        clients.append((reader, writer))

    monkeypatch.setattr(broker, "_start_maintenance", comes_early)
    await broker.start()
    [(reader, writer)] = clients
    assert await asyncio.wait_for(reader.read(4), 30)
    writer.close()
    await broker.stop()


@pytest.fixture
async def broker(tmp_path):
    made = Broker(settings(tmp_path))
    await made.start()
    yield made
    await made.stop()


def test_a_broker_without_an_http_client_has_no_http_server_in_memory(tmp_path):
    command = [sys.executable, "-c", _LOADED, str(tmp_path / "data")]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert "False False False" in run.stdout.splitlines()


async def test_the_log_of_a_start_names_every_port(tmp_path):
    authority = Certificates(tmp_path)
    certificate, key = authority.make("localhost")
    files = {"tls_certificate_file_path": certificate, "tls_key_file_path": key}
    made = Broker(settings(tmp_path, broker_service_port_tls=0, web_service_port_tls=0, **files))
    with capture_logs() as logged:
        await made.start()
    started = next(each for each in logged if each["event"] == "broker.started")
    ports = [started[name] for name in ("port", "port_tls", "http_port", "http_port_tls")]
    assert len({*ports}) == 4
    for port in ports:
        socket.create_connection(("127.0.0.1", port)).close()
    await made.stop()


async def test_the_first_client_gets_its_answer_and_so_do_all_that_came_with_it(broker):
    assert broker.listeners.web is None
    port = broker.listeners.http_port
    answers = await asyncio.gather(*(get(port, "/admin/v2/brokers/ready") for _ in range(3)))
    assert answers == [(200, b"ok")] * 3
    assert broker.listeners.web is not None
    assert (await get(port, "/metrics"))[0] == 200


async def test_a_stop_with_a_client_that_waits_for_the_server_ends(broker):
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.listeners.http_port)
    await broker.stop()
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    with pytest.raises(OSError, match=r"refused|Connect"):
        await get(broker.listeners.http_port, "/status")


async def test_closed_ports_stay_closed_though_a_client_was_there(broker):
    """The fault kit closes the ports of a broker that another broker replaces, and stops it later."""
    _reader, writer = await asyncio.open_connection("127.0.0.1", broker.listeners.http_port)
    await until(lambda: broker.listeners._loading)
    broker.listeners.stop_accepting()
    with socket.create_server(("127.0.0.1", broker.listeners.http_port)):
        await broker.listeners._loading.settle()
    with pytest.raises(OSError, match=r"refused|Connect"):
        await get(broker.listeners.http_port, "/status")
    writer.close()


async def test_a_server_that_cannot_be_loaded_is_an_error_in_the_log_and_its_port_closes(broker, monkeypatch, capsys):
    async def fails(_name):
        raise ImportError("no such library")

    monkeypatch.setattr(listeners, "import_later", fails)
    with pytest.raises(OSError, match=r"reset|Connection|0 bytes"):
        await get(broker.listeners.http_port, "/status")
    assert "no such library" in capsys.readouterr().out
    with pytest.raises(OSError, match=r"refused|Connect"):
        await get(broker.listeners.http_port, "/status")
    assert broker.listeners.binary.port


async def test_clients_wait_while_the_process_lacks_descriptors(broker, monkeypatch, capsys):
    load, failures = listeners.import_later, [OSError(errno.EMFILE, "Too many open files"), RuntimeError("no thread")]

    async def fails_at_first(name):
        if failures:
            raise failures.pop(0)
        return await load(name)

    monkeypatch.setattr(listeners, "import_later", fails_at_first)
    monkeypatch.setattr(listeners, "_AGAIN_S", 0.01)
    assert await get(broker.listeners.http_port, "/admin/v2/brokers/ready") == (200, b"ok")
    assert "Too many open files" in capsys.readouterr().out
    assert not failures


@pytest.mark.parametrize("connections", [0, 101])
async def test_connections_that_are_open_at_the_first_visit_leave_memory(broker, monkeypatch, connections):
    """Objects that the collector ignores are never found as cycles."""
    spared = []
    monkeypatch.setattr(broker_module, "spare_later_modules", lambda: spared.append(True))
    open_ones = [await asyncio.open_connection("127.0.0.1", broker.listeners.binary.port) for _ in range(connections)]
    await until(lambda: len(broker.resources.connections) == connections)
    assert (await get(broker.listeners.http_port, "/status"))[0] == 200
    await broker.listeners._loading.settle()
    assert bool(spared) == (not connections)
    for _reader, writer in open_ones:
        writer.close()


async def test_a_missing_library_is_an_error_of_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(listeners, "_WEB_LIBRARIES", ("nosuchlibrary",))
    broker = Broker(settings(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="nosuchlibrary"):
        await broker.start()
    await broker.stored.stores.close()


async def test_the_first_tls_client_gets_a_certificate_that_changed_before(tmp_path):
    authority = Certificates(tmp_path)
    certificate, key = authority.make("localhost")
    given = settings(
        tmp_path,
        web_service_port=None,
        web_service_port_tls=0,
        tls_certificate_file_path=certificate,
        tls_key_file_path=key,
        tls_cert_refresh_check_duration_sec=1,
    )
    broker = Broker(given)
    await broker.start()
    try:
        authority.make("localhost")
        tls = broker.listeners._doors.tls
        assert tls.certificates.check()
        context = trusting(authority.authority[0])
        _reader, writer = await asyncio.open_connection("127.0.0.1", tls.port, ssl=context, server_hostname="localhost")
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert found == certificate_in(certificate)
        writer.close()
    finally:
        await broker.stop()


def test_the_collector_ignores_later_modules_only_where_it_ignores_those_of_the_start():
    """In a process of its own: the collector of this process may ignore the objects of other tests."""
    subprocess.run([sys.executable, "-c", _SPARED], check=True, timeout=60)
