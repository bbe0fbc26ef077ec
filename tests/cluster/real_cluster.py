"""A real ZooKeeper and real bookies on loopback (``bk-cluster.sh``), as an object with faults."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import threading
import time

from kazoo.client import KazooClient

from tests.waiting import wait_for

__all__ = ["RealCluster", "missing", "zookeeper_server"]

SCRIPT = pathlib.Path(__file__).with_name("bk-cluster.sh")
_BOOKIE_SESSION_S = 5.0
"""``zkTimeout`` of the bookies, and two seconds for the bookie to notice the end of its session."""


def missing() -> str | None:
    """Why no real cluster can run here, in one line; None when one can."""
    absent = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if absent:
        return f"tests on real bookies need Java 17 and Maven: {' and '.join(absent)} not found"
    done = subprocess.run([SCRIPT, "fetch"], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return f"the jars of BookKeeper cannot be fetched: {last}"
    return None


class RealCluster:
    """``up`` starts the services, ``down`` ends all of their processes. Names of services: zk, b1, b2, ..."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.zookeeper = ""
        self.bookies: list[str] = []
        self._environment: dict[str, str] = {}
        self._killed: set[str] = set()
        self.disturbed = False
        """Whether a service was killed, started or continued since the last ``make_whole``."""
        self._zookeeper_back_s = -_BOOKIE_SESSION_S
        self._starts: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)

    def up(self, bookies: int = 3, **environment: str) -> None:
        first = random.SystemRandom().randrange(
            20_000, 32_000, 10
        )  # clusters that start at the same moment look for ports in other ranges
        ports = {"BK_ZK_PORT": str(first), "BK_PORT": str(first + 1)}
        self._environment = environment
        self._run("up", str(bookies), environment=ports | environment)
        lines = (self.directory / "cluster.env").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines)
        self.zookeeper = found["ZK"]
        self.bookies = found["BOOKIES"].strip('"').split()

    def kill(self, name: str) -> None:
        """SIGKILL: a crash."""
        self._killed.add(name)
        self.disturbed = True
        self._run("kill", name)

    def start(self, name: str) -> None:
        """Start an ended service again on its old directories and port; return when it answers."""
        with self._starts[name]:
            if not self._lives(name):
                self.disturbed = True
                self._run("start", name, environment=self._environment)
            self._killed.discard(name)
        if name == "zk":
            self._zookeeper_back_s = time.monotonic()

    def stop(self, name: str) -> None:
        """Suspend the service by SIGSTOP: it hangs."""
        self._run("stop", name)

    def go_on(self, name: str) -> None:
        """Continue a suspended service by SIGCONT."""
        self.disturbed = True
        self._run("cont", name)
        if name == "zk":
            self._zookeeper_back_s = time.monotonic()

    def mend(self) -> None:
        """Start killed services and continue suspended services; a service that does not start fails the tests that
        need it.
        """
        for line in self._run("status").splitlines():
            name, _, _, state = line.split()
            with contextlib.suppress(AssertionError):
                if state == "down":
                    self.start(name)
                elif state == "stopped":
                    self.go_on(name)

    @contextlib.contextmanager
    def supervised(self):
        """Start bookies again that end in this block, but for those that a test killed. An Apache bookie ends when it
        cannot register again after its session expired ("Couldn't register bookie with zookeeper, shutting down"), up
        to seconds after ZooKeeper is back, and expects a supervisor.
        """
        finished = threading.Event()

        def watch() -> None:
            while not finished.wait(0.2):
                for name in (f"b{number}" for number in range(1, len(self.bookies) + 1)):
                    if name not in self._killed and not self._lives(name):
                        with contextlib.suppress(AssertionError):
                            self.start(name)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()

    def make_whole(self) -> None:
        """``mend``, then wait until every bookie is registered. A bookie that has not registered again may still end
        within a session after ZooKeeper is back.
        """
        self.disturbed = False
        time.sleep(max(0.0, self._zookeeper_back_s + _BOOKIE_SESSION_S - time.monotonic()))
        self.mend()
        client = KazooClient(self.zookeeper)
        client.start(30)
        try:
            wait_for(lambda: set(self.bookies) <= set(client.get_children("/ledgers/available")), 60, "all bookies")
        finally:
            client.stop()
            client.close()

    def shell(self, *arguments: str) -> str:
        """BookKeeper's own shell (1 to 2 s); its output."""
        return self._run("shell", *arguments)

    def java(self, *arguments: str) -> str:
        """A one-file Java program on the cluster's class path (3 to 5 s); its output."""
        return self._run("java", *arguments)

    def down(self) -> None:
        self._run("down")

    def _lives(self, name: str) -> bool:
        with contextlib.suppress(OSError):
            process = (self.directory / f"{name}.pid").read_text().strip()
            return pathlib.Path(f"/proc/{process}/cmdline").read_bytes() != b""
        return False

    def _run(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [SCRIPT, "-d", str(self.directory), *arguments],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            env={**os.environ, **(environment or {})},
        )
        assert done.returncode == 0, f"bk-cluster {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout + done.stderr


@contextlib.contextmanager
def zookeeper_server(directory, configuration, *flags):
    """One ZooKeeper with settings of its own, ready for clients; in a directory used before it has the data of then."""
    (directory / "data").mkdir(exist_ok=True)
    given = {"dataDir": directory / "data", "admin.enableServer": "false", "tickTime": 500, **configuration}
    (directory / "zk.cfg").write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    cache = pathlib.Path(os.environ.get("BK_HOME") or pathlib.Path.home() / ".cache" / "magnetar" / "bookkeeper")
    lib = max(cache.glob("*/lib"))
    command = ["java", "-Xmx96m", *flags, "-cp", f"{lib}/*", "org.apache.zookeeper.server.ZooKeeperServerMain"]
    with (directory / "zk.log").open("wb") as log:
        process = subprocess.Popen([*command, str(directory / "zk.cfg")], stdout=log, stderr=log)
    try:
        wait_for(lambda: "binding to port" in (directory / "zk.log").read_text() or process.poll() is not None, 60)
        assert process.poll() is None, (directory / "zk.log").read_text()[-2000:]
        yield
    finally:
        process.kill()
        process.wait()
