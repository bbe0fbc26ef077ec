"""The processes under measurement: the broker and the limit server, each on a free port with a fresh directory."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Self

SOURCE = pathlib.Path(__file__).with_name("limit_server.c")


class Server:
    """A process that was started for one measurement; a context manager that ends it and drops its files."""

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: str,
        environment: dict[str, str] | None = None,
        *,
        output: int = subprocess.PIPE,
        cwd: str | None = None,
    ):
        self.name, self.folder = name, folder
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.DEVNULL, env=os.environ | (environment or {}), cwd=cwd
        )
        self.port = 0

    def wait_ready(self) -> Server:
        """Read the line that names the port."""
        line = self.process.stdout.readline().decode()
        found = re.search(r"pulsar://[^ ]*:(\d+)", line) or re.fullmatch(r"(\d+)\n", line)
        if not found:
            raise RuntimeError(f"{self.name} did not start: {line!r}")
        self.port = int(found[1])
        return self

    def rss_mb(self) -> float:
        """Resident memory in 10^6 bytes."""
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def peak_mb(self) -> float:
        """The largest resident memory so far."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6

    def cpu_seconds(self) -> float:
        """CPU time of the process: of its living threads, in nanoseconds, if the system counts it so; else of all its
        threads, in clock ticks.
        """
        folder = pathlib.Path(f"/proc/{self.process.pid}")
        try:
            each = [int(path.read_text().split()[0]) for path in folder.glob("task/*/schedstat")]
        except (OSError, ValueError, IndexError):
            each = []
        if each and any(each):
            return sum(each) / 1e9
        fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def broker(
    port: int = 0,
    pure: bool = False,
    settings: dict[str, object] | None = None,
    folder: str | None = None,
    environment: dict[str, str] | None = None,
) -> Server:
    """The broker with its default settings, except for ``settings``; ``pure`` runs it without the compiled helper.
    ``folder``: an existing data directory; leaving the server removes it too.
    """
    folder = folder or tempfile.mkdtemp(prefix="magnetar-bench-")
    command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", folder]
    command += ["--set", f"brokerServicePort={port}", "--set", "webServicePort=0"]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    return Server("ours", command, folder, (environment or {}) | ({"MAGNETAR_PURE": "1"} if pure else {}))


def build_limit_server(folder: str) -> str | None:
    """The path of the compiled limit server; None where there is no compiler or no SSE 4.2."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    target = os.path.join(folder, "limit_server")
    done = subprocess.run([compiler, "-O2", "-msse4.2", str(SOURCE), "-o", target], capture_output=True, check=False)
    return target if done.returncode == 0 else None


def limit(binary: str) -> Server:
    folder = tempfile.mkdtemp(prefix="limit-bench-")
    return Server("limit", [binary, os.path.join(folder, "ring")], folder)
