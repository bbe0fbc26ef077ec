"""Killing processes of a running Spark stream, and keeping the stream going."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

from tests.pipeline.spark.standalone_cluster import SUBMIT
from tests.waiting import wait_for

EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "pyspark.daemon"


def processes():
    """All processes: (pid, parent, session, command line)."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append((int(entry.name), int(stat[1]), int(stat[3]), command))
    return found


def children(*pids):
    """All descendants of these processes: (pid, command line)."""
    by_parent = {}
    for pid, parent, _session, command in processes():
        by_parent.setdefault(parent, []).append((pid, command))
    found, waiting = [], list(pids)
    while waiting:
        for each in by_parent.get(waiting.pop(), []):
            found.append(each)
            waiting.append(each[0])
    return found


def send(number, pids):
    """Send the signal to those of the processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Driver:
    """A command in a session of its own, started again whenever it has ended.

    cluster: the standalone cluster whose workers run the executors; None: the driver runs the tasks.
    """

    def __init__(self, command, log, cluster=None):
        self._command, self._log, self._cluster, self._process = command, log, cluster, None
        self.starts = 0
        self.ensure()

    def ensure(self):
        """Start the driver if it has ended."""
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                self.kill()  # the rest of the session: the JVM may outlive its Python process for a while
            self.starts += 1
            with self._log.open("ab") as log:
                environment = os.environ | {
                    "PYTHONPATH": str(pathlib.Path(__file__).parents[3]),
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    **({"PYSPARK_SUBMIT_ARGS": SUBMIT} if self._cluster is not None else {}),
                }
                self._process = subprocess.Popen(
                    self._command, stdout=log, stderr=log, env=environment, start_new_session=True
                )

    def kill(self):
        """Kill the driver with its JVM and all other processes of its session; executors of a cluster outlive the
        driver.
        """
        send(signal.SIGKILL, self._session())
        self._process.wait()

    @contextlib.contextmanager
    def paused(self):
        """Suspend the driver during the block: it plans and commits nothing."""
        pids = self._session()
        send(signal.SIGSTOP, pids)
        try:
            yield
        finally:
            send(signal.SIGCONT, pids)

    def executors(self):
        """Pids of the JVMs of executors; none without a cluster."""
        return [pid for pid, command in self._task_processes() if EXECUTOR in command]

    def workers(self):
        """Pids of the Python processes that run tasks."""
        return [pid for pid, command in self._task_processes() if WORKER in command]

    def _task_processes(self):
        if self._cluster is None:
            return children(self._process.pid)
        return children(*(worker.process.pid for worker in self._cluster.workers))

    def _session(self):
        return [pid for pid, _parent, session, _command in processes() if session == self._process.pid]


def python(*arguments):
    return [sys.executable, *arguments]


def wait_while_driven(condition, seconds, driver, subject, *, every=0.5, ignoring=()):
    """Wait until the condition holds; the driver is started again whenever it has ended."""

    def holds():
        driver.ensure()
        return condition()

    return wait_for(holds, seconds, subject, every=every, ignoring=(OSError, *ignoring))
