"""Fake connections: `FakeConnection` in place of a client's connection, `FakeTransport` in place of its socket.

Bytes move only on demand: the test decides when the peer reads, and finds all written frames, decoded, in order.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Message:
    """A MESSAGE as the client receives it."""

    consumer_id: int
    position: Position
    payload: bytes
    count: int = 0
    ack_set: tuple = ()
    epoch: int | None = None
    partition: int = -1


class FakeConnection:
    """A connection as consumers, producers, watchers and rates see it: keeps decoded frames in order.

    `writable` and `become_writable()` imitate a peer that reads slowly; `held` has the reasons for which the broker
    reads nothing from the connection, `alive` is the peer's answer to a PING, and `allowed` has its rights.
    """

    _ids = count(1)

    def __init__(self) -> None:
        self.peer_version = 21
        self.wants_entry_metadata = False
        self.knows_entry_metadata = False
        self.closed = False
        self.connection_id = next(self._ids)
        self.address = "/127.0.0.1:1"
        self.client_version = "test"
        self.role = None
        self.consumers: dict = {}
        self.sought_consumers: dict = {}
        self.frames: list[tuple[str, Any]] = []
        self.writes = 0
        self.writable = True
        self.alive = True
        self.allowed = True
        self.held: set[str] = set()
        self.spent = 0
        self.waiting: list = []
        self.on_message: Callable[[Message], None] | None = None

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes += 1
        at = 0
        while at < len(data):
            size, command_size = struct.unpack_from(">II", data, at)
            base = pb.BaseCommand.FromString(data[at + 8 : at + 8 + command_size])
            rest = data[at + 8 + command_size : at + 4 + size]
            at += 4 + size
            self._received(base, rest)

    @property
    def output(self) -> FakeConnection:
        return self

    def free_descriptor(self) -> int:
        return -1

    def write_long(self, data: bytes) -> None:
        self.write(data)

    def write_now(self, data: bytes) -> bool:
        self.write(data)
        return True

    def _received(self, base: pb.BaseCommand, rest: bytes) -> None:
        name = pb.BaseCommand.Type.Name(base.type)
        value: Any = None
        if name == "MESSAGE":
            m = base.message
            value = Message(
                m.consumer_id,
                Position(m.message_id.ledgerId, m.message_id.entryId),
                rest,
                m.redelivery_count,
                tuple(m.ack_set),
                m.consumer_epoch if m.HasField("consumer_epoch") else None,
                m.message_id.partition,
            )
        elif name == "ACTIVE_CONSUMER_CHANGE":
            value = base.active_consumer_change.is_active
        elif name == "WATCH_TOPIC_UPDATE":
            value = base.watchTopicUpdate
        elif name == "WATCH_TOPIC_LIST_SUCCESS":
            value = base.watchTopicListSuccess
        elif name == "GET_TOPICS_OF_NAMESPACE_RESPONSE":
            value = base.getTopicsOfNamespaceResponse
        self.frames.append((name, value))
        if isinstance(value, Message) and self.on_message:
            self.on_message(value)

    def close_notice(self, frame: bytes, since_version: int) -> None:
        del since_version
        self.write(frame)

    def is_writable(self) -> bool:
        return self.writable

    def when_writable(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def become_writable(self) -> None:
        self.writable = True
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()

    def spend(self, commands: int) -> None:
        self.spent += commands

    def hold_reading(self, reason: str) -> None:
        assert reason not in self.held
        self.held.add(reason)

    def release_reading(self, reason: str) -> None:
        self.held.remove(reason)

    def may_namespace(self, _command_type: int, _namespace: str) -> bool:
        return self.allowed

    async def check_alive(self) -> bool:
        await asyncio.sleep(0)
        return self.alive

    def take(self, name: str = "MESSAGE") -> list:
        """The values of the frames of that name that the broker sent since the last call."""
        found = [value for kind, value in self.frames if kind == name]
        self.frames = [frame for frame in self.frames if frame[0] != name]
        return found

    def names(self) -> list[str]:
        return [name for name, _ in self.frames]


class FakeTransport(asyncio.Transport):
    """A socket that keeps the written bytes.

    Its peer reads at once; after `reads_at_once = False` only by `read()`, and the writer is paused and resumed at its
    limits by `on_pause` and `on_resume`, as by asyncio's transports.
    """

    def __init__(self, host: str = "") -> None:
        super().__init__({"peername": (host, 1)} if host else None)
        self.written = bytearray()
        self.unread_bytes = 0
        self.reads_at_once = True
        self.held = self.closing = self.ended = self.paused = False
        self.high, self.low = 64 << 10, 16 << 10
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        assert isinstance(data, bytes | bytearray | memoryview)
        self.written += data
        if not self.reads_at_once:
            self.unread_bytes += len(data)
            self._check()

    def read(self, size: int) -> None:
        """The peer reads that many bytes."""
        self.unread_bytes -= size
        if self.paused and self.unread_bytes <= self.low:
            self.paused = False
            self.on_resume()

    def _check(self) -> None:
        if not self.paused and self.unread_bytes > self.high:
            self.paused = True
            self.on_pause()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = self.high if high is None else high
        self.low = self.high // 4 if low is None else low
        self._check()

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_reading(self) -> bool:
        return not self.held

    def pause_reading(self) -> None:
        self.held = True

    def resume_reading(self) -> None:
        self.held = False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.close()
