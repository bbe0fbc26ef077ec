"""A broker process with the fault kit; `magnetar standalone` runs it when faultKitPort is set.

The broker may be replaced while the process runs (snapshots); its ports stay. The kit's own port is printed before the
ready line: `magnetar faults http://127.0.0.1:PORT`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from magnetar.broker.descriptors import raise_limit
from magnetar.broker.running import ready_line, take_signals
from magnetar.broker.shutdown import log_or_end
from magnetar.broker.tasks import TaskSet
from magnetar.testing.control import build_control
from magnetar.testing.kit import FaultKit
from magnetar.testing.snapshots import Snapshots

if TYPE_CHECKING:
    import pathlib

    from magnetar.broker.broker import Broker
    from magnetar.broker.settings import Settings

log = structlog.get_logger(__name__)
HOST = "127.0.0.1"


class RunningBroker:
    """The broker of this process, and its snapshots."""

    def __init__(self, settings: Settings) -> None:
        self.kit = FaultKit()
        self.settings = settings
        self.snapshots = Snapshots(settings.data_dir)
        self._broker: Broker
        self._tasks = TaskSet()
        self._changing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._changed.set()

    async def start(self) -> Broker:
        """Start a broker on the live directory; from the second on its ports are those of the first."""
        self.settings.change("data_dir", str(self.snapshots.live))
        self._broker = broker = self.kit.build(self.settings)
        await broker.start(lambda: take_signals(broker))
        self.settings.change("broker_service_port", broker.listeners.binary.port)
        self.settings.change("broker_service_port_tls", broker.listeners.binary.port_tls)
        if broker.listeners.http_port is not None:
            self.settings.change("web_service_port", broker.listeners.http_port)
        if broker.listeners.http_port_tls is not None:
            self.settings.change("web_service_port_tls", broker.listeners.http_port_tls)
        return broker

    async def _start_again(self) -> None:
        try:
            await self.start()
        finally:
            self._changed.set()  # without a broker the process ends

    async def take(self, name: str) -> None:
        """Stop the broker in order, copy its directory, and start it again, also when the copy fails.

        Raises SnapshotError for an invalid name, before the broker stops.
        """
        self.snapshots.check(name)
        async with self._changing:
            self._changed.clear()
            try:
                await self._broker.stop()
                await asyncio.to_thread(self.snapshots.take, name)
            finally:
                await self._start_again()

    async def restore(self, name: str) -> float:
        """Replace the broker by a broker on a copy of the snapshot; returns the milliseconds taken. The former broker
        stops in the background.
        """
        async with self._changing:
            started = time.perf_counter()
            before, left = self.snapshots.restore(name), self._broker
            self._changed.clear()
            self.kit.cut()
            left.listeners.stop_accepting()
            await self._start_again()
            self._tasks.spawn(self._leave(left, before), "faults.leave")
            return (time.perf_counter() - started) * 1000

    async def _leave(self, broker: Broker, directory: pathlib.Path) -> None:
        await broker.stop()
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def wait_stopped(self) -> int:
        """The exit code of the last broker, when it stops and no other takes its place."""
        while True:
            broker = self._broker
            code = await broker.wait_stopped()
            await self._changed.wait()
            if broker is self._broker:
                await self._tasks.settle()
                return code


async def run(settings: Settings) -> int:
    """Run a broker with the kit until SIGTERM or SIGINT; returns the exit code of the process."""
    raise_limit()
    asyncio.get_running_loop().set_exception_handler(log_or_end)
    running = RunningBroker(settings)
    listening = socket.create_server((HOST, settings.fault_kit_port or 0))
    server = _Server(
        uvicorn.Config(build_control(running), lifespan="off", log_config=None, access_log=False, ws="none")
    )
    tasks = TaskSet()
    try:
        broker = await running.start()
        log.warning("faults.enabled", port=listening.getsockname()[1])
        tasks.spawn(server.serve([listening]), "faults.http")
        sys.stdout.write(f"magnetar faults http://{HOST}:{listening.getsockname()[1]}\n{ready_line(broker)}")
        sys.stdout.flush()
        return await running.wait_stopped()
    finally:
        server.should_exit = server.force_exit = True
        await tasks.close()
        listening.close()


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Leave signals to the broker; older uvicorn versions call this method."""

    def capture_signals(self) -> Any:
        """Called by newer versions of uvicorn."""
        return contextlib.nullcontext()
