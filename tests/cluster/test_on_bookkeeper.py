"""`tests.cluster.on_bookkeeper` ends its services and tests, here with stand-ins for both."""

import pathlib
import signal
import subprocess
import sys

import pytest

from tests.waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RUN = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from tests.cluster import on_bookkeeper

class Services:
    zookeeper = "127.0.0.1:1"
    def __init__(self, directory):
        pass
    def up(self, bookies):
        pass
    def down(self):
        pathlib.Path("down").touch()

on_bookkeeper.missing = lambda: None
on_bookkeeper.RealCluster = Services
sys.exit(on_bookkeeper.main("blackbox", *sys.argv[2:]))
"""
ENDLESS = """
import pathlib, subprocess
def test_endless():
    process = subprocess.Popen(["sleep", "600"])
    pathlib.Path("new").write_text(str(process.pid))
    pathlib.Path("new").rename("started")
    process.wait()
"""

TAKEN = """
import os, pathlib
def test_with_a_broker_of_its_own():
    with open("runs", "a") as runs:
        runs.write("x")
    if len(pathlib.Path("runs").read_text()) < FREE_AT:
        pathlib.Path(os.environ["MAGNETAR_TESTS_SKIPPED"]).write_text("test_it.py::test_with_a_broker_of_its_own\\n")
"""


def run(folder, text):
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return [sys.executable, "-c", RUN, str(ROOT), "-p", "no:cacheprovider", "test_it.py"]


def is_alive(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_named_file_runs_and_its_result_is_the_exit_code(tmp_path):
    done = subprocess.run(run(tmp_path, "def test_fails():\n    assert 0\n"), cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == 1
    assert (tmp_path / "down").exists()


@pytest.mark.parametrize(("free_at", "runs", "code"), [(1, 1, 0), (2, 2, 0), (9, 2, 1)])
def test_a_single_test_that_finds_the_cluster_taken_runs_again(free_at, runs, code, tmp_path):
    """A test that runs alone and still finds the cluster taken counts as failed."""
    done = subprocess.run(run(tmp_path, TAKEN.replace("FREE_AT", str(free_at))), cwd=tmp_path, check=False, timeout=120)
    assert (done.returncode, len((tmp_path / "runs").read_text())) == (code, runs)


def test_sigterm_ends_the_tests_their_processes_and_the_services(tmp_path):
    runner = subprocess.Popen(run(tmp_path, ENDLESS), cwd=tmp_path)
    try:
        started = tmp_path / "started"
        wait_for(lambda: started.exists() or runner.poll() is not None, 60, "the endless test")
        pid = int(started.read_text())
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(60) == 128 + signal.SIGTERM
        assert (tmp_path / "down").exists()
        wait_for(lambda: not is_alive(pid), 60, "the end of the process of the test")
    finally:
        if runner.poll() is None:
            runner.terminate()
            runner.wait()
