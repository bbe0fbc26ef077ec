"""The listeners: real sockets, TLS with client certificates, and the errors of unavailable ports and files."""

import asyncio
import dataclasses
import datetime as dt
import json
import socket

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from magnetar.broker.admin.admin_server import start_admin
from magnetar.broker.settings import Settings
from tests.broker.admin_fakes import open_client
from tests.trusting import trusting


async def get(port, path, context=None):
    """(status, body) of a GET over a connection of its own."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None
    )
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def broker_with(**more):
    return (await open_client(dataclasses.replace(Settings(), web_service_port=0, **more))).broker


async def test_serves_on_a_free_port_and_closes():
    admin = await start_admin(await broker_with())
    try:
        assert admin.port_tls is None
        assert await get(admin.port, "/admin/v2/brokers/ready") == (200, b"ok")
        assert await get(admin.port, "/admin/v2/persistent/public/default/a%2Fb/stats") == (
            412,
            b'{"reason":"Topic name is not valid"}',
        )
        status, body = await get(admin.port, "/metrics")
        assert status == 200
        assert b"pulsar_broker_topics_count" in body
    finally:
        await admin.close()
    await admin.close()
    with pytest.raises(OSError, match=r"refused|Connect"):
        await get(admin.port, "/")


@pytest.mark.parametrize("together", [True, False])
async def test_an_unannounced_body_gets_its_answer_and_ends_the_connection(together):
    """Node's http module sends a DELETE's body without a length and keeps the connection for its next request."""
    admin = await start_admin(await broker_with())
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
        request = b"DELETE /admin/v2/brokers/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
        if together:
            writer.write(request + b"{}")
            head = await reader.readuntil(b"\r\n\r\n")
        else:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"{}")
        assert head.startswith(b"HTTP/1.1 405")
        rest = await asyncio.wait_for(reader.read(), 20)
        assert rest.count(b"HTTP/1.1") == rest.count(b"HTTP/1.1 400 Bad Request\r\n") == 1
        writer.close()
    finally:
        await admin.close()


async def test_port_in_use_is_an_error_and_nothing_else():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = await broker_with()
        broker.settings = dataclasses.replace(broker.settings, web_service_port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await start_admin(broker)


async def test_garbage_on_the_port_harms_no_client():
    admin = await start_admin(await broker_with())
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
        writer.write(b"\x00\x00\x00\x05garbage\r\n\r\n")
        await reader.read()
        writer.close()
        assert (await get(admin.port, "/status"))[0] == 200
    finally:
        await admin.close()


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_stop_ends_a_request_in_progress_without_a_traceback(has_begun):
    """The stop left the request to the end of the event loop, where the log got a traceback of CancelledError."""
    at_work, ended = asyncio.Event(), asyncio.Event()

    async def app(_scope, _receive, send):
        if has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    admin = await start_admin(await broker_with(), app=app)
    reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
    writer.write(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await at_work.wait()
    with capture_logs() as lines:
        await admin.close()
    assert ended.is_set()
    answer = await reader.read()
    if has_begun:
        assert answer.endswith(b"begun")
    else:
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert answer.endswith(b'\r\n\r\n{"reason":"the broker is stopping"}')
    assert [line for line in lines if line["log_level"] == "error"] == []
    writer.close()


class Certificates:
    """A certificate authority with a server's and a client's certificate, as PEM files."""

    def __init__(self, folder, name="test authority"):
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.authority = self._write("ca", self._key, self._sign(self._name, self._key, ca=True))

    def make(self, common_name, end=None):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        return self._write(common_name, key, self._sign(name, key, ca=False, end=end))

    def _sign(self, name, key, *, ca, end=None):
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(end or now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name, key, certificate):
        paths = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return str(paths[0]), str(paths[1])


async def test_role_from_a_client_certificate_over_tls(tmp_path):
    authority = Certificates(tmp_path)
    certificate, key = authority.make("localhost")
    broker = await broker_with(
        web_service_port_tls=0,
        tls_certificate_file_path=certificate,
        tls_key_file_path=key,
        tls_trust_certs_file_path=authority.authority[0],
        authentication_enabled=True,
        authorization_enabled=True,
        authentication_providers=("tls",),
        super_user_roles=("operator",),
    )
    admin = await start_admin(broker)
    try:
        for role, status in (("operator", 200), ("somebody", 401), (None, 401)):
            context = trusting(authority.authority[0])
            if role:
                context.load_cert_chain(*authority.make(role))
            found, body = await get(admin.port_tls, "/admin/v2/tenants", context)
            assert found == status, role
        assert json.loads(body)["reason"]
        assert (await get(admin.port, "/admin/v2/tenants"))[0] == 401
    finally:
        await admin.close()


@pytest.mark.parametrize(("size", "end", "status"), [(1500, True, 200), (3000, True, 431), (4096, False, 400)])
async def test_a_head_beyond_http_max_request_header_size_is_refused(size, end, status):
    broker = await broker_with(http_max_request_header_size=2048)
    admin = await start_admin(broker)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
        head = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * size
        writer.write(head + b"\r\n\r\n" if end else head)
        assert (await reader.readline()).startswith(b"HTTP/1.1 %d" % status)
        writer.close()
    finally:
        await admin.close()
