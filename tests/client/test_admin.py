import http.server
import json
import socket
import threading
import urllib.error
from urllib.parse import urlsplit

import pytest

from magnetar.client.address import Credentials
from magnetar.client.admin import AdminApi


@pytest.fixture
def server():
    """An HTTP server on loopback that remembers requests: path -> (method, authorization, body)."""
    seen = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen[self.path] = (self.command, self.headers.get("Authorization"), body)
            answer = b"" if self.path == "/empty" else json.dumps({"ok": 1}).encode()
            self.send_response(404 if self.path == "/gone" else 200)
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_args):
            pass

    httpd = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/", seen
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_calls_carry_credentials_and_parse_answers(server):
    url, seen = server
    admin = AdminApi(url, Credentials(token="t"))
    assert admin.call("GET", "/x") == {"ok": 1}
    assert admin.call("POST", "/empty", b"true") is None
    assert seen == {"/x": ("GET", "Bearer t", b""), "/empty": ("POST", "Bearer t", b"true")}


@pytest.fixture
def proxied(server, monkeypatch):
    """The environment names the server as the proxy of HTTP."""
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("http_proxy", server[0])
    monkeypatch.setattr("urllib.request._opener", None)  # the opener keeps the proxies of its first request
    return server


def test_a_call_to_another_machine_uses_the_proxy_of_the_environment(proxied):
    assert AdminApi("http://broker.invalid:8080", Credentials()).call("GET", "/x") == {"ok": 1}
    assert list(proxied[1]) == ["http://broker.invalid:8080/x"]


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("http://127.0.0.1:1", False),
        ("http://127.1.2.3:1", False),
        ("http://[::1]:1", False),
        ("http://LocalHost:1", False),
        ("http://broker.invalid:1", True),
    ],
)
def test_a_call_to_a_loopback_address_and_a_direct_call_use_no_proxy(proxied, monkeypatch, url, direct):
    reached = []

    def refused(address, *_, **__):
        reached.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refused)
    with pytest.raises(OSError, match="urlopen error"):
        AdminApi(url, Credentials(), direct=direct).call("GET", "/x")
    assert [host.lower() for host in reached] == [urlsplit(url).hostname]
    assert not proxied[1]


def test_a_refusal_is_raised(server):
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        AdminApi(server[0], Credentials()).call("GET", "/gone")
    refused.value.close()


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
def test_a_service_that_does_not_speak_http_or_ends_early_does_not_answer(answer):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OSError, match="no answer in HTTP"):
            AdminApi(f"http://127.0.0.1:{listening.getsockname()[1]}", Credentials()).call("GET", "/x")
        thread.join()
