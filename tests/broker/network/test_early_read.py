"""Early reads of a connection over a real socket: exactly one SEND is handled at once, all else in a later callback."""

import asyncio
import contextlib
import socket

import pytest

from magnetar.broker.network.early_read import EarlyRead
from magnetar.broker.network.read_buffer import ReadBuffer, SharedReadBuffer
from magnetar.protocol import replies
from magnetar.protocol.requests import send
from magnetar.protocol.runs import EntryRun
from tests.twins.fake_connection import FakeTransport

SEND = send(1, 1, 1, 1, b"entry")
PING = replies.ping()


def names_of(items):
    """The name of each command of the items; a run has one SEND for each entry."""
    return [
        name for item in items for name in (["PING"] if len(item) == 2 else ["SEND"] * EntryRun.from_cut(item).count)
    ]


class Reader(asyncio.BufferedProtocol):
    """The reading half of a connection, with the items that it handles."""

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self.holds = set()
        self.items = []
        self.buffer = ReadBuffer(SharedReadBuffer(), 1 << 20)
        self.buffer.admit(1 << 20)
        self.transport = None

    @property
    def is_reading(self):
        return not self.holds

    def get_buffer(self, sizehint):
        del sizehint
        return self.buffer.room()

    def buffer_updated(self, nbytes):
        items, error = self.buffer.received(nbytes)
        assert error is None
        self.items += names_of(items)

    def hold_reading(self, reason):
        self.holds.add(reason)
        self.transport.pause_reading()

    def release_reading(self, reason):
        self.holds.discard(reason)
        self.transport.resume_reading()


@contextlib.asynccontextmanager
async def connected():
    """A reader, its early read, and the peer's socket."""
    ours, peer = socket.socketpair()
    transport, reader = await asyncio.get_running_loop().create_connection(Reader, sock=ours)
    reader.transport = transport
    read = EarlyRead(reader, reader.buffer, transport).function
    assert read is not None
    try:
        yield reader, read, peer
    finally:
        transport.abort()
        peer.close()


async def handled(reader, count):
    for _ in range(1000):
        if len(reader.items) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(reader.items)


async def test_a_send_is_handled_within_the_call():
    async with connected() as (reader, read, peer):
        for _ in range(3):
            peer.send(SEND)
            assert read(0.0)
        assert reader.items == ["SEND"] * 3


async def test_without_a_message_the_call_ends_with_its_time():
    async with connected() as (reader, read, _):
        assert not read(0.0)
        assert not read(0.001)
        assert reader.items == []


@pytest.mark.parametrize(
    ("data", "names"),
    [
        pytest.param(PING, ["PING"], id="another command"),
        pytest.param(SEND + PING, ["SEND", "PING"], id="a command behind the SEND"),
        pytest.param(SEND * 2, ["SEND", "SEND"], id="two SENDs"),
        pytest.param(PING + SEND, ["PING", "SEND"], id="a SEND behind a command"),
    ],
)
async def test_other_commands_are_handled_later_and_in_their_order(data, names):
    async with connected() as (reader, read, peer):
        peer.send(data)
        assert read(0.0)
        assert reader.items == [] and not reader.is_reading
        peer.send(SEND)
        assert not read(0.0), "the bytes that wait come first"
        await handled(reader, len(names) + 1)
        assert reader.items == [*names, "SEND"] and reader.is_reading


async def test_a_message_in_pieces_arrives_whole():
    async with connected() as (reader, read, peer):
        frame = send(1, 1, 1, 1, bytes(10_000))
        peer.send(frame[:5000])
        assert read(0.0)
        assert not read(0.0), "the first piece waits for its callback"
        await asyncio.sleep(0)
        assert not read(0.0), "the connection has a part of a frame"
        peer.send(frame[5000:])
        await handled(reader, 1)
        assert reader.items == ["SEND"]


async def test_the_end_of_the_connection_is_left_to_the_transport():
    async with connected() as (reader, read, peer):
        peer.close()
        assert not read(0.0)
        assert reader.items == []


@pytest.mark.parametrize("state", ["closed", "held", "closing"])
async def test_a_connection_that_does_not_read_reads_nothing_early(state):
    async with connected() as (reader, read, peer):
        peer.send(SEND)
        reader.closed = state == "closed"
        if state == "held":
            reader.hold_reading("test")
        elif state == "closing":
            reader.transport.abort()
        assert not read(0.0)
        assert reader.items == []


@pytest.mark.parametrize("has_tls", [False, True])
async def test_only_a_plain_socket_is_read_early(has_tls):
    class Transport(FakeTransport):
        def get_extra_info(self, name, default=None):
            if has_tls:
                return {"socket": socket.socket, "sslcontext": object()}.get(name, default)
            return default

    reader = Reader()
    assert EarlyRead(reader, reader.buffer, Transport()).function is None
