import asyncio
import contextlib
import os
import socket

import pytest

from magnetar.broker.consumers.consumer import Consumer, ConsumerSpec
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.network.output import TIGHT_BYTES, WEIGHED_BYTES, WRITE_HIGH_BYTES, Output
from magnetar.broker.network.pieces import ENCRYPTED_HIGH_BYTES, PIECE_BYTES
from magnetar.broker.network.tls_gate import RECORDS
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import speed
from magnetar.protocol.topic_name import TopicName
from tests.storage.records_for_tests import slab_of
from tests.twins.fake_connection import FakeTransport

MIB = 1 << 20


def new(total=64 * MIB, account=None):
    account = account or MemoryAccount(MemoryLimits(total, total // 2, total // 8))
    transport = FakeTransport()
    transport.reads_at_once = False
    output = Output(transport, account.share("a"))
    transport.on_pause, transport.on_resume = output.paused, output.resumed
    output.admit()
    return account, transport, output


def test_before_the_handshake_little_may_wait_though_it_comes_in_small_writes():
    account = MemoryAccount(MemoryLimits(64 * MIB, 32 * MIB, 8 * MIB))
    transport = FakeTransport()
    transport.reads_at_once = False
    output = Output(transport, account.share("a"))
    transport.on_pause, transport.on_resume = output.paused, output.resumed
    while output.writable:
        transport.write(bytes(20))
    assert transport.unread_bytes <= TIGHT_BYTES + 20
    assert account.used_bytes == transport.unread_bytes
    output.admit()
    assert not output.writable
    transport.read(transport.unread_bytes)
    assert output.writable
    transport.write(bytes(2 * TIGHT_BYTES))
    assert output.writable


def test_a_peer_that_reads_costs_the_account_nothing():
    account, transport, output = new()
    for _ in range(100):
        assert output.write(bytes(300_000))
        transport.read(transport.unread_bytes)
    assert account.most_bytes == 0 and output.writable


def test_unread_output_is_counted_until_it_is_read():
    account, transport, output = new()
    called = []
    output.when_writable(lambda: called.append(1))
    while output.writable:
        assert output.write(bytes(WEIGHED_BYTES))
    assert account.used_bytes >= WRITE_HIGH_BYTES
    transport.read(transport.unread_bytes // 2)
    assert not output.writable and not called
    transport.read(transport.unread_bytes)
    assert output.writable and called == [1] and account.used_bytes == 0


def test_a_slow_peer_that_is_sent_more_than_one_may_hold_is_given_up():
    _, _, output = new(total=16 * MIB)
    assert output.write(bytes(MIB))
    assert output.write(bytes(500_000))
    assert not output.writable
    assert not output.write(bytes(600_000))


def test_over_a_share_little_may_wait():
    account, transport, output = new()
    other = account.share("b")
    other.set("frame", 65 * MIB)
    output.write(bytes(TIGHT_BYTES))
    assert output.writable
    output.write(bytes(WEIGHED_BYTES))
    assert not output.writable and transport.high == TIGHT_BYTES
    other.close()
    transport.read(transport.unread_bytes)
    assert output.writable and transport.high == WRITE_HIGH_BYTES


def test_a_peer_is_stuck_when_it_read_nothing_between_two_looks():
    _, transport, output = new()
    output.write(bytes(MIB))
    output.write(b"x")
    assert not output.writable
    assert not output.is_stuck()  # the peer may be slow since a moment only
    transport.read(1)
    assert not output.is_stuck()
    output.write(b"y" * 20)
    assert output.is_stuck()
    transport.read(transport.unread_bytes)
    assert not output.is_stuck() and not output.is_stuck()


def test_small_writes_are_counted_when_looked_at():
    account, transport, output = new()
    transport.write(bytes(TIGHT_BYTES))
    assert account.used_bytes == 0
    output.is_stuck()
    assert account.used_bytes == TIGHT_BYTES
    transport.read(TIGHT_BYTES)
    output.is_stuck()
    assert account.used_bytes == 0


@contextlib.asynccontextmanager
async def connected(takes_little=False):
    """An output over a socket, its transport, and the peer's socket."""
    ours, peer = socket.socketpair()
    if takes_little:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    account = MemoryAccount(MemoryLimits(64 * MIB, 32 * MIB, 8 * MIB))
    output = Output(transport, account.share("a"))
    output.admit()
    peer.setblocking(False)
    try:
        yield output, transport, peer
    finally:
        transport.abort()
        peer.close()


class Outbox:
    closed, peer_version, wants_entry_metadata, knows_entry_metadata = False, 21, False, False

    def __init__(self, output):
        self.output, self.written = output, []

    def write(self, data):
        self.written.append(data)
        self.output.write(data)


async def test_a_short_answer_is_sent_within_the_call():
    async with connected() as (output, _, peer):
        assert output.write_now(b"receipt")
        assert peer.recv(100) == b"receipt"


async def test_an_answer_does_not_overtake_bytes_that_wait():
    async with connected(takes_little=True) as (output, transport, peer):
        output.write(bytes(MIB))
        assert transport.get_write_buffer_size()
        assert not output.write_now(b"receipt")
        peer.recv(100)


async def test_the_rest_of_an_answer_follows_it():
    async with connected(takes_little=True) as (output, transport, peer):
        answer = bytes(range(256)) * 4096
        assert output.write_now(answer)
        assert transport.get_write_buffer_size()
        output.write(b"next")
        data = b""
        while len(data) < len(answer) + 4:
            with contextlib.suppress(BlockingIOError):
                data += peer.recv(MIB)
            await asyncio.sleep(0)
        assert data == answer + b"next"


async def test_a_socket_that_takes_nothing_leaves_the_answer_to_the_transport():
    async with connected(takes_little=True) as (output, transport, _):
        descriptor = transport.get_extra_info("socket").fileno()
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(descriptor, bytes(4096))
        assert not transport.get_write_buffer_size()
        assert not output.write_now(b"receipt")


async def test_a_closing_connection_sends_no_answer_at_once():
    async with connected() as (output, transport, _):
        transport.close()
        assert not output.write_now(b"receipt")


async def test_large_entries_go_to_the_socket_in_the_order_of_the_frames():
    async with connected(takes_little=True) as (output, transport, peer):
        outbox = Outbox(output)
        consumer = Consumer(outbox, ConsumerSpec(3, TopicName.parse("t"), "s", pb.CommandSubscribe.Exclusive))
        slab = slab_of(
            5, 0, [bytes([number]) * size for number, size in enumerate((20, 70_000, 20_000, 10, 90_000, 3))]
        )
        parts = [(0, 1), (1, 3), (3, 4), (4, 5), (5, 6)]
        for turn in (parts[:2], parts[2:]):
            for start, end in turn:
                consumer.push(slab.slice(start, end), end - start)
            consumer.flush(1)
        assert transport.get_write_buffer_size()
        expected = speed.encode_messages(3, slab.data, slab.offsets, 0, 6, -1, 0, -1, None)
        data = b""
        while len(data) < len(expected):
            with contextlib.suppress(BlockingIOError):
                data += peer.recv(MIB)
            await asyncio.sleep(0)
        assert data == expected
        assert sum(map(len, outbox.written)) < len(expected) - 4096


async def test_bytes_that_wait_take_the_descriptor():
    async with connected(takes_little=True) as (output, transport, _):
        assert output.free_descriptor() == transport.get_extra_info("socket").fileno()
        output.write(bytes(MIB))
        assert output.free_descriptor() == -1
        output.close()
        assert output.free_descriptor() == -1


@pytest.mark.parametrize("has_tls", [False, True])
def test_only_a_plain_socket_takes_an_answer_at_once(has_tls):
    class Transport(FakeTransport):
        def get_extra_info(self, name, default=None):
            if has_tls:
                return {"socket": socket.socket, "sslcontext": object()}.get(name, default)
            return default

    output = Output(Transport(), MemoryAccount(MemoryLimits(MIB, MIB, MIB)).share("a"))
    assert not output.write_now(b"receipt")


async def test_a_peer_that_has_left_is_seen_behind_bytes_that_nothing_has_read(monkeypatch):
    account, transport, output = new()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setattr(transport, "get_extra_info", lambda name: ours if name == "socket" else None)
        theirs.send(b"unread")
        assert not output.peer_has_left()
        theirs.close()
        assert output.peer_has_left()
    output.close()
    assert not output.peer_has_left()


def test_a_long_answer_that_waits_is_counted_at_once():
    """An answer below the limit of a connection was counted when it was checked for its keep-alive: 16 of 1 MiB each."""
    account, transport, output = new()
    output.write_long(bytes(WRITE_HIGH_BYTES - 1))
    assert account.used_bytes == WRITE_HIGH_BYTES - 1 and not output.writable
    transport.read(transport.unread_bytes)
    assert account.used_bytes == 0 and output.writable
    assert output.write(bytes(2 * TIGHT_BYTES)) and output.writable, "the limit is the usual limit again"


def test_a_long_answer_that_is_read_at_once_costs_the_account_nothing():
    account, transport, output = new()
    transport.reads_at_once = True
    output.write_long(bytes(WRITE_HIGH_BYTES))
    transport.reads_at_once = False
    assert account.most_bytes == 0
    assert output.write(bytes(2 * TIGHT_BYTES)) and output.writable


def test_a_closed_connection_gets_no_long_answer():
    _account, transport, output = new()
    transport.close()
    output.write_long(bytes(WRITE_HIGH_BYTES))
    output.close()
    output.write_long(bytes(WRITE_HIGH_BYTES))
    assert not transport.unread_bytes


class Records:
    """The transport below TLS: TLS passes it the bytes of a write, and forgets them."""

    def __init__(self):
        self.size = 0

    def get_write_buffer_size(self):
        return self.size


class TlsTransport(FakeTransport):
    """A transport over TLS, which notes the sizes of the writes."""

    def __init__(self):
        super().__init__()
        self.records, self.sizes = Records(), []
        self.reads_at_once = False

    def get_extra_info(self, name, default=None):
        return {"socket": socket.socket, "sslcontext": object(), RECORDS: self.records}.get(name, default)

    def write(self, data):
        self.sizes.append(len(data))
        super().write(data)


def encrypted():
    account = MemoryAccount(MemoryLimits(64 * MIB, 32 * MIB, 8 * MIB))
    transport = TlsTransport()
    output = Output(transport, account.share("a"))
    transport.on_pause, transport.on_resume = output.paused, output.resumed
    output.admit()
    return account, transport, output


def test_over_tls_a_long_answer_goes_in_pieces_and_counts_as_a_whole():
    """TLS encrypted 24 MB in a turn of 0.2 s, and the memory account saw none of them."""
    account, transport, output = encrypted()
    answer, called = os.urandom(MIB), []
    output.write_long(answer)
    output.when_writable(lambda: called.append(1))
    assert output.write(b"behind") and not output.writable
    assert transport.unread_bytes <= ENCRYPTED_HIGH_BYTES
    output.is_stuck()
    assert account.used_bytes == MIB + len(b"behind")
    while not output.writable:
        transport.read(transport.unread_bytes)
        assert transport.unread_bytes <= ENCRYPTED_HIGH_BYTES
    assert called == [1]
    assert transport.written == answer + b"behind" and max(transport.sizes) == PIECE_BYTES
    transport.read(transport.unread_bytes)
    output.is_stuck()
    assert account.used_bytes == 0


def test_over_tls_a_peer_that_reads_gets_a_long_answer_at_once():
    account, transport, output = encrypted()
    transport.reads_at_once = True
    answer = os.urandom(MIB + 1)
    output.write_long(answer)
    assert transport.written == answer and output.writable and account.most_bytes == 0


def test_over_tls_little_of_the_messages_of_a_slow_peer_is_encrypted():
    """The buffer of TLS keeps its greatest size: a connection that had been slow once kept 2 MiB until its end."""
    account, transport, output = encrypted()
    written = b""
    for size in (3 * MIB, 20, WEIGHED_BYTES, 70_000):
        data = os.urandom(size)
        written += data
        assert output.write(data) and not output.writable
        assert transport.unread_bytes <= ENCRYPTED_HIGH_BYTES + PIECE_BYTES
    assert account.used_bytes == output.waiting_bytes == len(written)
    while not output.writable:
        transport.read(transport.unread_bytes)
        assert transport.unread_bytes <= ENCRYPTED_HIGH_BYTES + PIECE_BYTES
    assert transport.written == written and max(transport.sizes) == PIECE_BYTES


def test_over_tls_a_peer_that_reads_gets_messages_at_once():
    account, transport, output = encrypted()
    transport.reads_at_once = True
    data = os.urandom(3 * MIB)
    assert output.write(data) and output.writable
    assert transport.written == data and account.most_bytes == 0


@pytest.mark.parametrize(("size", "is_sent"), [(MIB, True), (MIB + 1, False)])
def test_a_connection_that_closes_sends_the_waiting_bytes_but_for_a_long_answer(size, is_sent):
    _account, transport, output = encrypted()
    output.write(bytes(2 * PIECE_BYTES + 1))
    encrypted_bytes = len(transport.written)
    assert output.waiting_bytes == 2 * PIECE_BYTES + 1
    output.write(bytes(size - (2 * PIECE_BYTES + 1 - encrypted_bytes)))
    output.end()
    assert transport.closing
    assert len(transport.written) == encrypted_bytes + (size if is_sent else 0)
    output.close()
    output.end()


def test_encrypted_bytes_that_wait_for_the_socket_count():
    account, transport, output = encrypted()
    transport.records.size = MIB
    assert output.waiting_bytes == MIB
    output.is_stuck()
    assert account.used_bytes == MIB


def test_a_closed_connection_forgets_the_rest_of_a_long_answer():
    _account, transport, output = encrypted()
    output.write_long(bytes(MIB))
    output.close()
    written = len(transport.written)
    output.resumed()
    assert output.waiting_bytes == 0 and len(transport.written) == written
