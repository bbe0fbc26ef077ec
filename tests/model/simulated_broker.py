"""A whole broker without sockets, threads or a real disk: clients hand bytes to its connections and get bytes back.

The broker, its connections and its storage are real. Simulated are the disk (`SimDisk`: a crash loses unsynced bytes),
the metadata store, the clock, and the transport under a connection.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from magnetar.broker import broker as broker_module
from magnetar.broker.broker import Broker
from magnetar.broker.network.connection import Connection
from magnetar.broker.settings import Settings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from magnetar.storage.embedded.engine import EngineEnvironment, EngineSettings
from magnetar.storage.embedded.lanes import InlineThreads
from tests.model.virtual_loop import EarlyLoop, LoopClock, VirtualLoop
from tests.twins.fake_connection import FakeTransport
from tests.twins.lane_frame_writer import LaneFrameWriter
from tests.twins.memory_metadata import MemoryMetadataStore
from tests.twins.pool_direct_reader import PoolDirectReader
from tests.twins.sim_files import SimDisk

_PAIR = struct.Struct(">II")
Command = pb.BaseCommand

SMALL = EngineSettings(
    journal_segment_bytes=36 << 10,
    journal_first_segment_bytes=12 << 10,
    journal_max_frame_bytes=4 << 10,
    checkpoint_bytes=16 << 10,
    checkpoint_interval_s=7,
    write_behind_bytes=512,
    unwritten_memory_bytes=4 << 10,
    cache_bytes=4 << 10,
    max_record_bytes=64 << 10,
    read_piece_bytes=4 << 10,
)
"""So small that a short run rolls, recycles, checkpoints and reads from files."""


@dataclass
class Frame:
    """A frame that the broker sent."""

    peer: Peer
    command: pb.BaseCommand
    payload: bytes


class Network:
    """All frames that brokers sent, in order."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def take(self) -> list[Frame]:
        frames, self.frames = self.frames, []
        return frames


class _Pipe(FakeTransport):
    """The transport of a connection: unbounded, with a `Peer` at its other end."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer

    def write(self, data: Any) -> None:
        if not self.closing:
            self._peer.received(bytes(data))

    def close(self) -> None:
        if not self.closing:
            super().close()
            asyncio.get_running_loop().call_soon(self._peer.lost)

    def resume_reading(self) -> None:
        super().resume_reading()
        asyncio.get_running_loop().call_soon(self._peer.deliver)


class Peer:
    """The client's end of one connection. All calls are made on the loop."""

    def __init__(self, broker: Broker, network: Network) -> None:
        self.network = network
        self.alive = True
        self._out = bytearray()
        self._pipe = _Pipe(self)
        self.connection = Connection(broker.resources, broker.services)
        self.connection.connection_made(self._pipe)
        connect = pb.CommandConnect(client_version="model", protocol_version=21)
        self.send(Command(type=Command.CONNECT, connect=connect))

    def send(self, command: pb.BaseCommand, payload: bytes = b"") -> None:
        self.send_bytes(encode_command(command, payload))

    def send_bytes(self, data: bytes) -> None:
        self._out += data
        self.deliver()

    def deliver(self) -> None:
        """Hand over the bytes that the broker is willing to read."""
        while self._out and self.alive and self._pipe.is_reading():
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(self._out))
            room[:count] = self._out[:count]
            del self._out[:count]
            self.connection.buffer_updated(count)

    def received(self, data: bytes) -> None:
        at = 0
        while at < len(data):  # the broker writes whole frames
            total, size = _PAIR.unpack_from(data, at)
            command = Command.FromString(data[at + 8 : at + 8 + size])
            payload = data[at + 8 + size : at + 4 + total]
            at += 4 + total
            if command.type == Command.PING:
                asyncio.get_running_loop().call_soon(self.send, Command(type=Command.PONG, pong=pb.CommandPong()))
            else:
                self.network.frames.append(Frame(self, command, payload))
        assert at == len(data)

    def close(self) -> None:
        """The client is gone, without a word."""
        self._pipe.close()

    def lost(self) -> None:
        if self.alive:
            self.alive = False
            self.connection.connection_lost(None)


@dataclass
class Simulation:
    """A world in which brokers live one after another."""

    settings: dict[str, Any] = field(default_factory=dict)
    loop: VirtualLoop = field(default_factory=EarlyLoop)
    disk: SimDisk = field(default_factory=SimDisk)
    metadata: MemoryMetadataStore = field(default_factory=MemoryMetadataStore)
    network: Network = field(default_factory=Network)
    broker: Broker = field(init=False)

    def __post_init__(self) -> None:
        self._ids = itertools.count()
        self._entropy = random.Random(7).randbytes
        self.clock = LoopClock(self.loop)

    def run(self, work: Any, seconds: float = 0.3) -> Any:
        """Do `work` on the loop and all that follows from it in `seconds`."""

        async def and_settle() -> Any:
            result = await work
            await asyncio.sleep(seconds)
            return result

        result = self.loop.run_until_complete(and_settle())
        assert not self.loop.problems, self.loop.problems
        return result

    def start(self) -> None:
        self.run(self._start())

    async def _start(self) -> None:
        settings = Settings(data_dir="/data", broker_service_port=None, web_service_port=None, **self.settings)
        threads = InlineThreads()
        environment = EngineEnvironment(self.disk, self.clock, threads, self.loop, self._entropy, self.metadata)
        environment.frame_writer = lambda: LaneFrameWriter(threads)
        environment.direct_reader = lambda: PoolDirectReader(threads)
        self.broker = Broker(settings, environment)
        with mock.patch.object(broker_module, "engine_settings", return_value=SMALL):
            await self.broker.start()

    def stop(self) -> None:
        self.run(self.broker.stop())

    def restart(self) -> None:
        """Stop in order and start again on the same disk."""
        self.stop()
        self.network.take()
        self.metadata = self.metadata.snapshot()
        self.start()

    def crash(self, mode: str, seed: int) -> None:
        """End the process now; the next process finds unsynced bytes as `mode` decides."""
        disk, metadata = self.disk.after_crash(mode, seed), self.metadata.snapshot()
        self.stop()  # alone, on a disk that the test no longer reads
        self.network.take()
        self.disk, self.metadata = disk, metadata
        self.start()

    def close(self) -> None:
        self.stop()
        self.loop.close()

    def next_id(self) -> int:
        return next(self._ids)
