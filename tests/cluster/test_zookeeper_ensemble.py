"""A ZooKeeper of three servers under two brokers: its leader is killed, or hangs, under eight producers."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from tests.cluster.broker_processes import free_port, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.real_cluster import RealCluster
from tests.cluster.scenes import SESSION_S, SHORT_LEDGERS, end, loaded, two_members
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
SERVERS = 3


class Ensemble:
    """Three servers of ZooKeeper that elect a leader."""

    def __init__(self, directory):
        self.directory = directory
        self.ports = [free_port() for _ in range(SERVERS)]
        self._processes = {}
        peers = [f"127.0.0.1:{free_port()}:{free_port()}" for _ in range(SERVERS)]
        self._configuration = {
            "tickTime": 500,
            "initLimit": 20,
            "syncLimit": 6,
            "maxClientCnxns": 0,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            **{f"server.{number + 1}": peer for number, peer in enumerate(peers)},
        }

    @property
    def servers(self):
        return [f"127.0.0.1:{port}" for port in self.ports]

    def start(self, number):
        data = self.directory / f"zk{number}"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(str(number + 1))
        own = {"dataDir": data, "clientPort": self.ports[number]}
        configuration = self.directory / f"zk{number}.cfg"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in (self._configuration | own).items()))
        cache = pathlib.Path(os.environ.get("BK_HOME") or pathlib.Path.home() / ".cache" / "magnetar" / "bookkeeper")
        main = ["-cp", f"{max(cache.glob('*/lib'))}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
        with (self.directory / f"zk{number}.log").open("ab") as log:
            command = ["java", "-Xmx96m", *main, str(configuration)]
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def mode(self, number):
        """leader, follower, or an empty text without an answer."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[number]), 1) as asked:
            asked.settimeout(1)
            asked.sendall(b"srvr")
            text = b""
            while piece := asked.recv(4096):
                text += piece
            _, _, found = text.decode().partition("Mode: ")
            return found.partition("\n")[0]
        return ""

    def leader(self):
        """Number of the leader, once there is one."""
        return wait_for(lambda: [each for each in range(SERVERS) if self.mode(each) == "leader"], 60, "a leader")[0]

    def signal(self, number, which):
        self._processes[number].send_signal(which)

    def kill(self, number):
        self._processes[number].kill()
        self._processes[number].wait()

    def down(self):
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def scene(_services, tmp_path_factory):
    """(servers of ZooKeeper, bookies, brokers)."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-ensemble-"))
    ensemble, cluster = Ensemble(directory), RealCluster(directory / "bk")
    try:
        for number in range(SERVERS):
            ensemble.start(number)
        wait_for(lambda: all(map(ensemble.mode, range(SERVERS))), 60, "three servers")
        uri = f"metadataServiceUri=zk+hierarchical://{';'.join(ensemble.servers)}/ledgers"
        cluster.up(3, BK_CONF=uri)
        cluster.zookeeper = ",".join(ensemble.servers)
        initialize(cluster)
        members = two_members(tmp_path_factory.mktemp("members"), cluster.zookeeper, **SHORT_LEDGERS)
        with cluster.supervised(), serving(members):
            yield ensemble, cluster, members
    finally:
        cluster.down()
        ensemble.down()
        shutil.rmtree(directory, ignore_errors=True)


def test_the_leader_of_zookeeper_is_killed(scene):
    ensemble, cluster, members = scene
    cluster.make_whole()
    with loaded(members) as load:
        for _ in range(3):
            killed = ensemble.leader()
            ensemble.kill(killed)
            load.more(300)
            time.sleep(SESSION_S)
            ensemble.start(killed)
            wait_for(lambda each=killed: ensemble.mode(each), 60, "the server")
        end("leader of ZooKeeper killed, three times", load, 2 * SESSION_S)


def test_the_leader_of_zookeeper_hangs(scene):
    ensemble, cluster, members = scene
    cluster.make_whole()
    with loaded(members) as load:
        hangs = ensemble.leader()
        ensemble.signal(hangs, signal.SIGSTOP)
        time.sleep(2 * SESSION_S)
        ensemble.signal(hangs, signal.SIGCONT)
        end("leader of ZooKeeper suspended for 12 s", load, 2 * SESSION_S)
