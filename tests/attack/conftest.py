"""A broker under attack: authentication on, one honest client that watches how long it has to wait."""

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import statistics
import threading
import time
import urllib.parse

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.conftest import new_broker  # noqa: F401 - the fixture
from tests.blackbox.raw import RawPeer, command, frame
from tests.waiting import wait_for

KEY = bytes(range(1, 33))
MIB = 1 << 20
IDLE_PINGS = 100
"""Answers on an idle broker that show the usual wait, in about a quarter of a second."""


def token(role):
    """A signed token for the role."""

    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    body = part(b'{"alg":"HS256"}') + b"." + part(json.dumps({"sub": role}).encode())
    return (body + b"." + part(hmac.new(KEY, body, hashlib.sha256).digest())).decode()


SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProviders": "token",
    "tokenSecretKey": "data:;base64," + base64.b64encode(KEY).decode(),
    "superUserRoles": "admin",
}


def connect(url, role=None, **more):
    """A peer that has proved its role; without a role, a peer that has proved none."""
    peer = RawPeer(url, handshake=False, **more)
    if role is not None:
        proof = {"auth_method_name": "token", "auth_data": token(role).encode()}
        peer.write(frame(command("CONNECT", "connect", client_version="raw", protocol_version=21, **proof)))
        assert peer.receive().type == pb.BaseCommand.CONNECTED
    return peer


class Http:
    """One HTTP connection by hand."""

    def __init__(self, url, timeout=60):
        address = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout)

    def request(self, method, path, body=b"", role=None):
        """Send a request and return (status, body); sending ends when the broker closes the connection."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        if role is not None:
            head += f"Authorization: Bearer {token(role)}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before the end of the body
            self.socket.sendall(head.encode() + b"\r\n" + body)
        answer = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(1 << 16):
                answer += data
        status, _, rest = bytes(answer).partition(b"\r\n\r\n")
        return (int(status.split()[1]) if status else 0), rest

    def close(self):
        self.socket.close()


def http(broker, method, path, body=b"", role=None):
    connection = Http(broker.http)
    try:
        return connection.request(method, path, body, role)
    finally:
        connection.close()


class Watch:
    """An honest client's PINGs, one after the other, beside the work of the test."""

    def __init__(self, broker, role="admin"):
        self._peer = connect(broker.url, role)
        self._peer.socket.settimeout(60)
        self.waits = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        ping = frame(command("PING", "ping"))
        while not self._ended.is_set():
            began = time.monotonic()
            self._peer.write(ping)
            found = self._peer.receive()
            assert found.type == pb.BaseCommand.PONG
            self.waits.append(time.monotonic() - began)
            time.sleep(0.002)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(60)
        self._peer.close()

    @property
    def worst(self):
        return max(self.waits, default=float("inf"))


class Target:
    """A broker, the time that its idle loop lets a client wait, and the greatest allowed cost of an attack."""

    def __init__(self, broker, role="admin"):
        self.broker = broker
        self._role = role
        with Watch(broker, role) as idle:
            wait_for(lambda: len(idle.waits) >= IDLE_PINGS, 60, "the answers to PINGs on an idle broker")
        self._usual = statistics.quantiles(idle.waits, n=20)[-1]
        self._before = broker.rss_bytes

    def watch(self):
        return Watch(self.broker, self._role)

    def unharmed(self, watch, most_seconds=0.5, most_mib=48):
        """Check that the honest client waited at most `most_seconds`, or 100 times its usual wait if that is more (the
        machine may be busy), and that memory grew by less than `most_mib`.
        """
        limit = max(most_seconds, 100 * self._usual)
        assert watch.worst < limit, f"a client waited {watch.worst:.2f} s"
        grown = self.broker.rss_bytes - self._before
        assert grown < most_mib * MIB, f"{grown >> 20} MiB more"


@pytest.fixture
def secured(new_broker):  # noqa: F811
    """A broker with authentication and authorization, ready to be attacked."""
    target = Target(new_broker(**SECURED))
    yield target
    assert "Traceback" not in target.broker.log_text()
    assert target.broker.stop() == 0


@pytest.fixture
def topic(request):
    return f"persistent://public/default/{request.node.name.partition('[')[0]}"
