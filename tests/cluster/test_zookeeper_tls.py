"""TLS to a real ZooKeeper, which takes clients with a certificate alone."""

from __future__ import annotations

import gc
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from magnetar.bookkeeper.errors import MetadataUnavailableError
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions
from magnetar.broker.clustering.zookeeper_client_file import read_security
from tests.cluster.broker_processes import free_port
from tests.cluster.certificates import issued, pem
from tests.cluster.real_cluster import zookeeper_server

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
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": directory / "server.pem",
        "ssl.trustStore.location": directory / "ca.pem",
        "ssl.clientAuth": "need",
    }
    with zookeeper_server(directory, configuration):
        yield f"127.0.0.1:{port}", directory


def client_file(directory, own="client.pem"):
    file = directory / f"{own}.properties"
    file.write_text(
        "zookeeper.client.secure=true\n"
        f"zookeeper.ssl.trustStore.location={directory}/ca.pem\n"
        f"zookeeper.ssl.keyStore.location={directory}/{own}\n"
    )
    return str(file)


def options(servers, path, connect_timeout_s=10.0):
    found = read_security(path)
    return ZooKeeperOptions(
        servers,
        connect_timeout_s=connect_timeout_s,
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
        options(servers, client_file(directory, "stranger.pem"), connect_timeout_s=3.0),
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
