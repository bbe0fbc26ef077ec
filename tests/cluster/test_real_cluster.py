"""The script behind the tests on real services, with programs in place of Java."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import pytest

from tests.cluster.broker_processes import free_port
from tests.cluster.real_cluster import SCRIPT, RealCluster
from tests.waiting import wait_for

JAVA = """#!/usr/bin/env python3
import socket, sys
if "-version" in sys.argv:
    sys.exit()
{end}
with socket.create_server(("127.0.0.1", {port})) as server:
    while True:
        client, _ = server.accept()
        client.sendall(b"Mode: standalone")
        client.close()
"""


@pytest.fixture
def start(tmp_path):
    """Start a ZooKeeper that is a script. With a pipe as its log the process is no Java before the log has a reader."""
    started = []

    def begin(end="", *, piped=False):
        port = free_port()
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(JAVA.format(port=port, end=end))
        (tmp_path / "bin" / "java").chmod(0o755)
        (tmp_path / "zk.cfg").write_text(f"clientPort={port}\n")
        if piped:
            os.mkfifo(tmp_path / "zk.log")
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        command = [SCRIPT, "-d", str(tmp_path), "start", "zk"]
        environment = os.environ | {"PATH": path, "BK_HOME": str(tmp_path / "home")}
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        wait_for((tmp_path / "zk.pid").exists)
        return started[0]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "zk.pid").read_text()), signal.SIGKILL)


def test_a_service_that_is_not_java_yet_has_not_died(start, tmp_path):
    process = start(piped=True)
    time.sleep(0.5)  # the script looks at the process meanwhile
    with (tmp_path / "zk.log").open("rb"):
        assert process.wait(30) == 0, process.stderr.read()


def test_a_service_that_ends_has_died(start):
    process = start("sys.exit('no memory')")
    assert process.wait(30) == 1
    assert process.stderr.read().splitlines()[-2:] == ["no memory", "bk-cluster: zk died"]


class Services(RealCluster):
    """Two bookies without processes."""

    def __init__(self, directory):
        super().__init__(directory)
        self.bookies = ["a", "b"]
        self.living = {"zk", "b1", "b2"}

    def _run(self, verb, name, **_options):
        {"kill": self.living.discard, "start": self.living.add}[verb](name)
        return ""

    def _lives(self, name):
        return name in self.living


def test_a_bookie_that_ends_is_started_again_unless_a_test_killed_it(tmp_path):
    services = Services(tmp_path)
    with services.supervised():
        services.kill("b1")
        services.living.discard("b2")
        wait_for(lambda: "b2" in services.living)
        services.living.discard("b2")
        wait_for(lambda: "b2" in services.living)
        assert services.living == {"zk", "b2"}
        services.start("b1")
        services.living.discard("b1")
        wait_for(lambda: "b1" in services.living)
