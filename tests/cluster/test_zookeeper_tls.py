"""TLS to a real ZooKeeper, which takes clients with a certificate alone."""

from __future__ import annotations

import datetime as dt
import gc
import ipaddress
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from magnetar.bookkeeper.errors import MetadataUnavailableError
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions
from magnetar.broker.clustering.zookeeper_client_file import read_security
from tests.cluster.broker_processes import free_port
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # kazoo leaves TLS sockets to the collector
]


@pytest.fixture(autouse=True)
def _collected():
    yield
    gc.collect()


def issued(name, issuer=None, issuer_key=None):
    """(certificate, key): self-signed, or issued by another one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
    )
    return builder.sign(issuer_key or key, hashes.SHA256()), key


def pem(certificate, key=None):
    data = certificate.public_bytes(serialization.Encoding.PEM)
    if key is not None:
        kinds = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        data += key.private_bytes(serialization.Encoding.PEM, *kinds)
    return data


@pytest.fixture(scope="module")
def secure(_services, tmp_path_factory):
    """A ZooKeeper with a TLS port: (its address, the directory of certificates)."""
    directory = pathlib.Path(tmp_path_factory.mktemp("tls"))
    authority, authority_key = issued("authority")
    (directory / "ca.pem").write_bytes(pem(authority))
    for name in ("server", "client"):
        (directory / f"{name}.pem").write_bytes(pem(*issued(name, authority, authority_key)))
    (directory / "stranger.pem").write_bytes(pem(*issued("stranger")))
    port = free_port()
    configuration = {
        "dataDir": directory / "data",
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": directory / "server.pem",
        "ssl.trustStore.location": directory / "ca.pem",
        "ssl.clientAuth": "need",
        "admin.enableServer": "false",
        "tickTime": 500,
    }
    (directory / "data").mkdir()
    (directory / "zk.cfg").write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
    cache = pathlib.Path(os.environ.get("BK_HOME") or pathlib.Path.home() / ".cache" / "magnetar" / "bookkeeper")
    lib = max(cache.glob("*/lib"))
    command = ["java", "-Xmx96m", "-cp", f"{lib}/*", "org.apache.zookeeper.server.ZooKeeperServerMain"]
    with (directory / "zk.log").open("wb") as log:
        process = subprocess.Popen([*command, str(directory / "zk.cfg")], stdout=log, stderr=log)
    try:
        wait_for(lambda: "binding to port" in (directory / "zk.log").read_text() or process.poll() is not None, 60)
        assert process.poll() is None, (directory / "zk.log").read_text()[-2000:]
        yield f"127.0.0.1:{port}", directory
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def client_file(directory, own="client.pem"):
    file = directory / f"{own}.properties"
    file.write_text(
        "zookeeper.client.secure=true\n"
        f"zookeeper.ssl.trustStore.location={directory}/ca.pem\n"
        f"zookeeper.ssl.keyStore.location={directory}/{own}\n"
    )
    return str(file)


def options(servers, path):
    found = read_security(path)
    return ZooKeeperOptions(
        servers,
        connect_timeout_s=10.0,
        tls=found.tls,
        tls_ca_file=found.ca_file,
        tls_certificate_file=found.certificate_file,
        tls_key_file=found.certificate_file,
        tls_verify_names=found.verify_names,
    )


async def test_a_session_over_tls(secure):
    servers, directory = secure
    session = await ZooKeeperSession.connect(options(servers, client_file(directory)))
    await session.create("/over-tls", b"x")
    assert (await session.get("/over-tls")).value == b"x"
    await session.close()


async def test_a_stranger_and_a_plain_client_do_not_get_in(secure):
    servers, directory = secure
    for each in (
        options(servers, client_file(directory, "stranger.pem")),
        ZooKeeperOptions(servers, connect_timeout_s=3.0),
    ):
        with pytest.raises(MetadataUnavailableError):
            await ZooKeeperSession.connect(each)


def test_the_command_and_a_broker_take_the_file(secure, tmp_path):
    servers, directory = secure
    path = client_file(directory)
    command = [sys.executable, "-m", "magnetar"]
    made = subprocess.run(
        [
            *(*command, "initialize-cluster-metadata", "--cluster", "c1", "--metadata-store", f"zk:{servers}"),
            *("--metadata-store-config-path", path, "--web-service-url", "http://127.0.0.1:8080"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nodes made" in made.stdout
    file = tmp_path / "broker.conf"
    settings = {
        "clusterName": "c1",
        "metadataStoreUrl": f"zk:{servers}",
        "metadataStoreConfigPath": path,
        "brokerServicePort": 0,
        "webServicePort": 0,
        "advertisedAddress": "127.0.0.1",
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    process = subprocess.Popen([*command, "broker", "--config", str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert re.search("magnetar ready", process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        process.stdout.close()
