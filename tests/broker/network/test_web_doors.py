"""Web ports that are open before they are served, and the errors of a port that cannot be opened."""

import socket

import pytest

from magnetar.broker.network.web_doors import open_web_doors, web_doors_or_none
from magnetar.broker.settings import Settings


async def test_a_client_that_comes_early_waits_in_the_socket():
    doors = await open_web_doors(Settings(web_service_port=0))
    try:
        assert doors.ports == (doors.plain.port, None)
        with socket.create_connection(("127.0.0.1", doors.plain.port), timeout=30) as client:
            client.sendall(b"GET /status HTTP/1.1\r\n\r\n")
            accepted, _ = doors.plain.listening[0].accept()
            accepted.setblocking(True)
            assert accepted.recv(100).startswith(b"GET")
            accepted.close()
    finally:
        doors.close()
    doors.close()


async def test_nothing_listens_when_the_certificate_cannot_be_read(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = Settings(
        web_service_port=port,
        web_service_port_tls=0,
        tls_certificate_file_path=str(tmp_path / "nosuch.pem"),
        tls_key_file_path=str(tmp_path / "nosuch.key"),
    )
    with pytest.raises(OSError, match=r"nosuch"):
        await open_web_doors(settings)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


async def test_a_port_that_is_taken_is_an_error_in_the_log_and_no_end(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        doors = await web_doors_or_none(Settings(web_service_port=taken.getsockname()[1]))
    assert doors.ports == (None, None)
    said = capsys.readouterr().out
    assert "admin.failed" in said
    assert "webServicePort" in said
