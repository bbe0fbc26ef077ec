"""Early reads of a connection over a real socket: exactly one SEND is handled at once, all else in a later callback."""

import asyncio
import contextlib
import socket

import pytest

from magnetar.broker.network.early_read import EarlyRead
from magnetar.broker.network.read_buffer import ReadBuffer, SharedReadBuffer
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.requests import send
from magnetar.protocol.runs import EntryRun
from tests.broker.network.test_connection import Client, encoded
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

    def buffer_updated(self, nbytes, *, later=False):
        items, error = self.buffer.received(nbytes)
        assert error is None
        if later and items:
            self.hold_reading("turn")
            self.loop.call_soon(self.handle_later, items)
        else:
            self.items += names_of(items)

    def handle_later(self, items):
        self.items += names_of(items)
        self.release_reading("turn")

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


@pytest.fixture
def client():
    made = Client()
    yield made
    made.world.close()


def read_early(client, data, *, share=16 * 1024):
    """Read the data early on a connection of a broker, and handle all; return the types of the answers in order. The
    next round of the event loop begins with this share of a connection, and with no room for further commands.
    """
    connection, pipe = client.peer.connection, client.peer._out

    def receive(room, wait_s):
        del wait_s
        count = min(len(room), len(pipe))
        room[:count] = pipe[:count]
        del pipe[:count]
        return count

    async def go():
        pipe.extend(data)
        assert EarlyRead(connection, connection._buffer, connection._transport, receive).function(0.0)
        assert not client.world.network.take(), "a command is handled early"
        connection._rounds.share = share
        connection.services.request_turns.count(connection.loop, 1 << 20)

    client.world.run(go())
    return [each.type for each in client.take()]


def test_bytes_behind_a_command_that_waits_for_its_round_are_handled_behind_it(client):
    """The share of the next round ended behind the command, and the connection handled the bytes behind the share."""
    client.consume(pb.CommandSubscribe.Shared)
    close = encoded(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=7))
    sent = client.send_of(0, bytes(16_000))
    data = client.send_of(0, bytes(16_000 + 16 * 1024 - len(sent) - len(close))) + close + PING
    assert len(data) == 16 * 1024 + len(PING)
    kinds = read_early(client, data)
    assert [kind for kind in kinds if kind != pb.BaseCommand.SEND_RECEIPT] == [
        pb.BaseCommand.SUCCESS,
        pb.BaseCommand.PONG,
    ]
    assert client.peer.connection.is_reading


def test_a_fault_behind_commands_of_an_early_read_closes_the_connection_after_them(client):
    """The bytes of a frame that was refused were cut into commands when the share of the round ended among them."""
    broken = (1 << 30).to_bytes(4, "big") + bytes(16 * 1024 - 4 - 20 * len(PING))
    kinds = read_early(client, PING * 20 + broken + PING * 3)
    assert kinds == [pb.BaseCommand.PONG] * 20
    assert not client.peer.alive


@pytest.mark.parametrize("size", [5, 5000])
def test_a_part_of_a_frame_holds_no_reading(client, size):
    frame = client.send_of(0, bytes(10_000))
    assert read_early(client, frame[:size]) == []
    assert client.peer.connection.is_reading
    assert [each.type for each in client.send_bytes(frame[size:])] == [pb.BaseCommand.SEND_RECEIPT]
