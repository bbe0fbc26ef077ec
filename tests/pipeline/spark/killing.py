"""Killing processes of a running Spark stream, and keeping the stream going."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

from tests.waiting import wait_for


def children(pid):
    """All descendants of a process: (pid, command line)."""
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            stat = (entry / "stat").read_text()
            parent = int(stat.rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parents.setdefault(parent, []).append((int(entry.name), command))
    found, waiting = [], [pid]
    while waiting:
        for each in parents.get(waiting.pop(), []):
            found.append(each)
            waiting.append(each[0])
    return found


class Driver:
    """A command in a session of its own, started again whenever it has ended."""

    def __init__(self, command, log):
        self._command, self._log, self._process = command, log, None
        self.starts = 0
        self.ensure()

    def ensure(self):
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            with self._log.open("ab") as log:
                environment = os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parents[3])}
                self._process = subprocess.Popen(
                    self._command, stdout=log, stderr=log, env=environment, start_new_session=True
                )

    def kill(self):
        """The driver with its JVM and everything below."""
        everything = [pid for pid, _ in children(self._process.pid)]
        for pid in (self._process.pid, *everything):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self, choose):
        """One Python worker that runs tasks; False when there is none."""
        workers = [pid for pid, command in children(self._process.pid) if "pyspark.daemon" in command]
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(choose(workers), signal.SIGKILL)
        return True


def python(*arguments):
    return [sys.executable, *arguments]


def wait_while_driven(condition, seconds, driver):
    """Wait until the condition holds; the driver is started again whenever it has ended."""

    def holds():
        driver.ensure()
        return condition()

    wait_for(holds, seconds, "progress of the stream", every=0.5, ignoring=OSError)
