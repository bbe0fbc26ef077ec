"""Brokers behind addresses of another network: TLS on both ports, and a listener of its own for clients.

Clients reach the cluster at 127.0.0.2 alone (``network``), as through a load balancer or a forwarded port; the brokers
reach each other at 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import threading

import pulsar
import pytest
import requests

from tests.cluster.broker_processes import Member, free_port, initialize, serving
from tests.cluster.certificates import issued, pem
from tests.cluster.conftest import LONG
from tests.cluster.network import FRONT, Network
from tests.cluster.scenes import SESSION_S, SETTINGS, SHORT_LEDGERS, end, loaded
from tests.cluster.two_kinds import bring

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
NAME = {"listenerName": "outside"}
PORTS = ("brokerServicePort", "brokerServicePortTls", "webServicePort", "webServicePortTls")
ESTABLISHED = "01"


def listeners():
    ports = {each: free_port() for each in PORTS}
    plain, tls, _, web_tls = ports.values()
    urls = [f"inside:pulsar://127.0.0.1:{plain}", f"inside:pulsar+ssl://127.0.0.1:{tls}"]
    urls += [f"outside:pulsar+ssl://{FRONT}:{tls}", f"outside:https://{FRONT}:{web_tls}"]
    return {**ports, "advertisedListeners": ",".join(urls), "internalListenerName": "inside"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = pathlib.Path(tmp_path_factory.mktemp("tls"))
    authority, authority_key = issued("authority")
    broker, broker_key = issued("broker", authority, authority_key, hosts=(FRONT,))
    (directory / "ca.pem").write_bytes(pem(authority))
    (directory / "broker.pem").write_bytes(pem(broker))
    (directory / "broker-key.pem").write_bytes(pem(broker, broker_key).partition(pem(broker))[2])
    return directory


@pytest.fixture(scope="module")
def network():
    made = Network()
    yield made
    made.close()


@pytest.fixture(scope="module")
def members(cluster, files, network, tmp_path_factory):
    tls = {
        "tlsCertificateFilePath": files / "broker.pem",
        "tlsKeyFilePath": files / "broker-key.pem",
        "tlsTrustCertsFilePath": files / "ca.pem",
        "brokerClientTrustCertsFilePath": files / "ca.pem",
    }
    initialize(cluster)
    directory = tmp_path_factory.mktemp("members")
    settings = SETTINGS | SHORT_LEDGERS | tls
    made = [Member(directory, name, cluster.zookeeper, **settings | listeners()) for name in ("n1", "n2")]
    with serving(made):
        for each in made:
            for port in ("brokerServicePortTls", "webServicePortTls"):
                network.serve(int(each.settings[port]))
        yield made


@pytest.fixture
def client(members, files):
    hosts = ",".join(f"{FRONT}:{each.settings['brokerServicePortTls']}" for each in members)
    return pulsar.Client(
        f"pulsar+ssl://{hosts}",
        listener_name="outside",
        tls_trust_certs_file_path=str(files / "ca.pem"),
        tls_validate_hostname=True,
        operation_timeout_seconds=60,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(files / "client.log")),
    )


def web_port(broker):
    return broker.settings["webServicePortTls"]


def connections(ports):
    """(address, port of this process) of each open connection of this process to one of these ports."""
    inodes = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/self/fd/{name}"))
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, *rest = line.split()
        host, _, port = there.partition(":")
        if state == ESTABLISHED and int(port, 16) in ports and f"socket:[{rest[5]}]" in inodes:
            yield ".".join(str(byte) for byte in reversed(bytes.fromhex(host))), int(here.partition(":")[2], 16)


class Watch(threading.Thread):
    """Collects the addresses at which the client of this process reaches the brokers."""

    def __init__(self, members, network):
        super().__init__(daemon=True)
        self._found, self._finished, self._network = set(), threading.Event(), network
        self._ports = {int(each.settings[key]) for each in members for key in PORTS[:2]}

    def run(self):
        while True:
            self._found.update(connections(self._ports))
            if self._finished.wait(0.2):
                return

    def finish(self):
        self._finished.set()
        self.join(10)
        return {address for address, port in self._found if port not in self._network.own_ports}


def lookup(front, path, files):
    answer = requests.get(f"{front}/lookup/v2/topic/{path}", params=NAME, verify=files / "ca.pem", timeout=60)
    return answer.json()


def check_addresses(members, owner, topic, files):
    """Every broker names the outside addresses of the owner, for clients and for requests of administrators."""
    path = topic.replace("://", "/")
    stats = f"admin/v2/{path}/stats"
    for each in members:
        front = f"https://{FRONT}:{web_port(each)}"
        found = lookup(front, path, files)
        assert found["brokerUrlTls"] == f"pulsar+ssl://{FRONT}:{owner.settings['brokerServicePortTls']}"
        assert found["httpUrlTls"] == f"https://{FRONT}:{web_port(owner)}"
        answer = requests.get(f"{front}/{stats}", verify=files / "ca.pem", timeout=60, allow_redirects=False)
        there = answer.headers.get("Location", "").partition("?")[0] or None
        wanted = (200, None) if each is owner else (307, f"https://{FRONT}:{web_port(owner)}/{stats}")
        assert (answer.status_code, there) == wanted, (each.name, owner.name, answer.text)


def test_clients_of_another_network_follow_their_topics(members, network, client, files):
    watch = Watch(members, network)
    watch.start()
    with loaded(members, pause_s=0.01, client=client) as load:
        for to in (members[1], members[0], members[1]):
            bring(members[0], load, to)
            load.more(100)
            check_addresses(members, to, load.lanes[0].topic, files)
        members[1].terminate()
        load.more()
        members[1].start()
        bring(members[0], load, members[1])
        members[1].kill()
        load.more()
        members[1].start()
        end("TLS and a listener of another network: moves, a stop, a kill", load, 4 * SESSION_S)
    assert watch.finish() == {FRONT}, "connections at addresses of the inside"


def test_a_connection_at_an_address_of_the_inside_is_found(members, network):
    watch = Watch(members, network)
    with socket.create_connection(("127.0.0.1", members[0].settings["brokerServicePortTls"])):
        watch.start()
        assert "127.0.0.1" in watch.finish()
