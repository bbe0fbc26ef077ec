"""A broker in a separate process, started from Python by `magnetar.start`.

with magnetar.start(maxMessageSize=4096) as broker:
client = pulsar.Client(broker.url)

async with magnetar.start_async() as broker:
...
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, Self

from magnetar.testing.client import Faults

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AsyncBroker", "BrokerProcess", "BrokerStartError"]

_READY = "magnetar ready "
_FAULTS = "magnetar faults "
_PORTS = {
    "pulsar": "brokerServicePort",
    "pulsar+ssl": "brokerServicePortTls",
    "http": "webServicePort",
    "https": "webServicePortTls",
}
_STOP_TIMEOUT_S = 30


class BrokerStartError(RuntimeError):
    """The broker did not start; the text ends with its log."""


class BrokerProcess:
    """A broker in a process of its own.

    url        for clients; it stays the same over `stop`, `kill` and `start`, and so does the data
    http_url   of the admin API
    data_dir   the data directory of the broker
    log_path   its log
    faults     faults on demand; only with `faults=True` (docs/fault-kit.md)

    A context manager: the broker stops at the end of the block. Without a `with` block call `stop`; a broker without
    references, or that is left when the interpreter ends, is killed. If the interpreter itself is killed, the broker
    stops, and a temporary directory stays. An interrupt of the terminal does not reach the broker. Forked processes
    leave the broker alone.
    """

    def __init__(
        self,
        data_dir: pathlib.Path | str | None = None,
        settings: dict[str, Any] | None = None,
        *,
        faults: bool = False,
    ) -> None:
        """Start the broker, and return when it takes clients. Raises: BrokerStartError.

        Args:    data_dir: kept after the end; None for a temporary directory that is removed with the last `stop`.
                 settings: by Pulsar's key names, in Python's types. Free ports are chosen unless given.
                 faults: with the fault kit, on a separate port.
        """
        _check_names(settings or {})
        if data_dir == "":
            raise BrokerStartError("the path of the data directory is empty; None makes a temporary directory")
        self._temporary: str | None = None
        if data_dir is None:  # the log stands beside the data, in the directory that is removed
            self._temporary = tempfile.mkdtemp(prefix="magnetar-")
            data_dir = pathlib.Path(self._temporary, "data")
        self.data_dir = pathlib.Path(os.path.abspath(data_dir))  # noqa: PTH100 - without ".." the name is a name
        self.log_path = self.data_dir.with_name(f"{self.data_dir.name}.log")
        self._settings = {"brokerServicePort": 0, "webServicePort": 0} | (settings or {})
        if faults:
            self._settings.setdefault("faultKitPort", 0)
        self._faults: Faults | None = None
        self._finalizer: weakref.finalize[..., BrokerProcess] | None = None
        self._owner = os.getpid()
        try:
            self.start()
        except BaseException:
            _remove(self._temporary)
            raise

    def start(self) -> None:
        """Start the broker unless it runs, and return when it takes clients. Raises: BrokerStartError."""
        if self._finalizer is not None and self.is_running:
            return
        arguments = [*_program(), "standalone", "--stop-with-stdin"]
        arguments += ["--data-dir", str(self.data_dir)]
        for key, value in self._settings.items():
            arguments += ["--set", f"{key}={_as_text(value)}"]
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - this project's program
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0
            )
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _abandon, self._process, self._temporary, self._owner)
        self.url, self.http_url = self._wait_ready()
        self._keep_ports()

    def _keep_ports(self) -> None:
        """The next start gets the ports that the system has chosen."""
        chosen = {_PORTS[url.partition("://")[0]]: url for url in (self.url, self.http_url) if url != "-"}
        if self._faults is not None:
            chosen["faultKitPort"] = self._faults.url
        for key, url in chosen.items():
            if self._settings.get(key) == 0:
                self._settings[key] = int(url.rpartition(":")[2])

    def _wait_ready(self) -> tuple[str, str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_FAULTS):
                self._faults = Faults(line.removeprefix(_FAULTS).strip())
            if line.startswith(_READY):
                url, http_url = line.removeprefix(_READY).split()
                if http_url == "-" and self._wants_web():
                    self.stop()
                    raise BrokerStartError(f"the broker has no web port:\n{self._log_of_start()}")
                return url, http_url
        code = self._ended()
        raise BrokerStartError(f"the broker did not start, exit code {code}:\n{self._log_of_start()}")

    def _log_of_start(self) -> str:
        """The log since this start began: a kept log also has the lines of all starts before."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode("utf-8", "replace")

    def _wants_web(self) -> bool:
        return any(self._settings.get(key) not in (None, "") for key in ("webServicePort", "webServicePortTls"))

    def __repr__(self) -> str:
        return f"<BrokerProcess {getattr(self, 'url', 'without an address')}, data in {self.data_dir}>"

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended; after `start` it takes clients."""
        return self._process.poll() is None

    @property
    def faults(self) -> Faults:
        """The fault kit. Raises: RuntimeError without a fault kit."""
        if self._faults is None:
            raise RuntimeError("this broker has no fault kit: start it with faults=True")
        return self._faults

    def stop(self) -> int:
        """SIGTERM, and wait until everything is on the disk; the exit code. Safe to call twice."""
        self._process.terminate()
        return self._ended()

    def kill(self) -> None:
        """SIGKILL: the effect of a crash of the broker on its clients. `start` begins where it was.
        Safe to call twice.
        """
        self._process.kill()
        self._ended()

    def wait_exit(self) -> int:
        """The exit code of a broker that ends by itself, as after a failed sync of its disk."""
        return self._ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if os.getpid() == self._owner:
            self.stop()
            _remove(self._temporary)

    def _ended(self) -> int:
        code = self._process.wait(_STOP_TIMEOUT_S)
        _close_pipes(self._process)
        return code


class AsyncBroker:
    """The same for asyncio: nothing waits on the loop. Use with `async with`; arguments of BrokerProcess."""

    def __init__(
        self,
        data_dir: pathlib.Path | str | None = None,
        settings: dict[str, Any] | None = None,
        *,
        faults: bool = False,
    ) -> None:
        self._data_dir, self._settings, self._with_faults = data_dir, settings, faults
        self._broker: BrokerProcess | None = None

    async def __aenter__(self) -> Self:
        self._broker = await asyncio.to_thread(BrokerProcess, self._data_dir, self._settings, faults=self._with_faults)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._started.__exit__, kind, error, where)

    @property
    def url(self) -> str:
        """For clients."""
        return self._started.url

    @property
    def http_url(self) -> str:
        """Of the admin API."""
        return self._started.http_url

    @property
    def data_dir(self) -> pathlib.Path:
        """Where the broker keeps everything."""
        return self._started.data_dir

    @property
    def log_path(self) -> pathlib.Path:
        """The log of the broker."""
        return self._started.log_path

    @property
    def faults(self) -> Faults:
        """The fault kit, whose calls wait: use it with `asyncio.to_thread` where the loop must go on."""
        return self._started.faults

    async def stop(self) -> int:
        """As `BrokerProcess.stop`."""
        return await asyncio.to_thread(self._started.stop)

    async def kill(self) -> None:
        """As `BrokerProcess.kill`."""
        await asyncio.to_thread(self._started.kill)

    async def wait_exit(self) -> int:
        """As `BrokerProcess.wait_exit`."""
        return await asyncio.to_thread(self._started.wait_exit)

    async def start(self) -> None:
        """As `BrokerProcess.start`. Raises: BrokerStartError."""
        await asyncio.to_thread(self._started.start)

    @property
    def _started(self) -> BrokerProcess:
        if self._broker is None:
            raise RuntimeError("the broker is not started: use `async with magnetar.start_async() as broker`")
        return self._broker


def _program() -> list[str]:
    """The command of this package. The working directory stays on the path, for classes that settings name, unless its
    folder `magnetar`, such as a checkout beside the tests, would take the place of the installed package.
    """
    found = pathlib.Path("magnetar")
    hides = found.is_dir() and not found.samefile(pathlib.Path(__file__).parent)
    return [sys.executable, *(["-P"] if hides else []), "-m", "magnetar"]


def _check_names(settings: dict[str, Any]) -> None:
    """Raise BrokerStartError for an unknown setting, with the nearest name."""
    from magnetar.broker.setting_areas.ignored import is_ignored  # noqa: PLC0415 - only where a broker starts
    from magnetar.broker.setting_areas.refused import REFUSED  # noqa: PLC0415 - the same
    from magnetar.broker.setting_suggestions import nearest  # noqa: PLC0415 - the same
    from magnetar.broker.settings import SETTINGS  # noqa: PLC0415 - the same

    for name in settings:
        if name not in SETTINGS and name not in REFUSED and not is_ignored(name):
            found = nearest(name)
            hint = f"did you mean {found}?" if found else "docs/settings.md has them all"
            raise BrokerStartError(f"unknown setting {name}; {hint}")


def _abandon(process: subprocess.Popen[str], temporary: str | None, owner: int) -> None:
    """The owner is gone without a stop. A forked process, which ends too, owns nothing."""
    if os.getpid() != owner:
        return
    if process.poll() is None:
        process.kill()
        process.wait()
    _close_pipes(process)
    _remove(temporary)


def _close_pipes(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _remove(temporary: str | None) -> None:
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)


def _as_text(value: Any) -> str:
    """A value as settings are written: lists with commas, booleans in lower case, None as nothing."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(each) for each in value)
    return "" if value is None else str(value)
