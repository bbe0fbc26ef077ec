"""Records in pieces, and TLS over the loopback with the event loop of the broker and with that of asyncio."""

import asyncio
import random
import socket
import ssl

import pytest
import uvloop

from magnetar.broker.network import tls_gate
from magnetar.broker.network.bind import bind
from magnetar.broker.network.round_turns import RoundTurns
from magnetar.broker.network.seats import Seats
from magnetar.broker.network.tls_gate import MOST_GREETING_BYTES, RECORDS_IN_ONE_TURN, TlsGate, cut_records
from tests.broker.admin.test_admin_server import Certificates
from tests.broker.network.test_acceptor import Door
from tests.trusting import trusting
from tests.twins.fake_connection import FakeTransport
from tests.waiting import until


def record(size, content=b"x"):
    return b"\x17\x03\x03" + size.to_bytes(2) + content * size


def test_a_cut_is_behind_so_many_records():
    data = b"".join(record(size) for size in (0, 5, 300, 2))
    assert [cut_records(memoryview(data), 0, most) for most in range(1, 6)] == [
        (5, 0),
        (15, 0),
        (320, 0),
        (327, 0),
        (327, 0),
    ]


def test_pieces_of_any_size_are_cut_at_the_same_records():
    drawn = random.Random(3)
    data = b"".join(record(drawn.choice((0, 1, 22, 2000))) for _ in range(300))
    at = begun = 0
    rest, heads = b"", []
    while at < len(data):
        size = drawn.choice((1, 4, 6, 700, 9000))
        piece = rest + data[at : at + size]
        at += size
        while True:
            behind = begun
            end, begun = cut_records(memoryview(piece), begun, 1)
            heads += [piece[behind : behind + 3]] if end > behind else []
            piece, stuck = piece[end:], end == 0
            if stuck or not piece:
                break
        rest = piece
    assert heads == [b"\x17\x03\x03"] * 300


class Tls:
    """In place of TLS: keeps the bytes that the gate passes on."""

    def __init__(self, *_arguments, **_options):
        self.passed, self._room = [], bytearray(1000)

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return memoryview(self._room)

    def buffer_updated(self, size):
        self.passed.append(bytes(self._room[:size]))


async def test_a_lost_connection_resumes_nothing(monkeypatch):
    """uvloop may report room for writes behind the end, when its TLS has no protocol: an error with a traceback."""
    called = []

    class Lost(Tls):
        def connection_lost(self, exc):
            called.append(exc)

        def resume_writing(self):
            called.append("resumed")

    monkeypatch.setattr(tls_gate, "_protocol_of", lambda _loop: Lost)
    loop, room = asyncio.get_running_loop(), memoryview(bytearray(1000))
    gate = TlsGate(loop, asyncio.Protocol(), None, 1, RoundTurns(1), room, RoundTurns(4))
    gate.connection_made(FakeTransport())
    gate.ready.set_result(None)
    gate.resume_writing()
    gate.connection_lost(None)
    gate.resume_writing()
    assert called == ["resumed", None]


async def test_the_records_of_one_read_have_several_turns(monkeypatch):
    monkeypatch.setattr(tls_gate, "_protocol_of", lambda _loop: Tls)
    loop, transport = asyncio.get_running_loop(), FakeTransport()
    room = memoryview(bytearray(1 << 17))
    gate = TlsGate(loop, asyncio.Protocol(), None, 1, RoundTurns(1), room, RoundTurns(4))
    gate.connection_made(transport)
    gate.ready.set_result(None)
    sent = record(22) * 1000 + record(22)[:-1]

    def passed():
        return b"".join(gate._tls.passed)

    gate.get_buffer(-1)[: len(sent)] = sent
    gate.buffer_updated(len(sent))
    assert passed() == sent[: RECORDS_IN_ONE_TURN * 27] and not transport.is_reading()
    gate._tls.transport.pause_reading()
    gate._tls.transport.resume_reading()
    assert not transport.is_reading(), "TLS resumed the reading that the gate holds"
    for turn in range(2, 9):
        await asyncio.sleep(0)
        assert len(passed()) == min(turn * RECORDS_IN_ONE_TURN * 27, len(sent))
    assert passed() == sent and transport.is_reading()


class Peer:
    """A connection in its handshake, over a transport that only remembers."""

    def __init__(self, handshakes, behind=b"", host=""):
        self.transport, self._room = FakeTransport(host), memoryview(bytearray(1 << 17))
        loop = asyncio.get_running_loop()
        self.gate = TlsGate(loop, asyncio.Protocol(), None, 1, RoundTurns(2), self._room, handshakes)
        self.gate.connection_made(self.transport)
        self.send(record(500) + behind)  # the ClientHello, and bytes that do not wait for its answer

    def send(self, data):
        self._room[: len(data)] = data
        self.gate.buffer_updated(len(data))

    @property
    def passed(self):
        return sum(map(len, self.gate._tls.passed))


async def test_certificates_of_many_clients_have_turns_by_their_bytes(monkeypatch):
    """The certificates of 60 clients, none of them trusted, made a PING wait for seconds of processor time."""
    monkeypatch.setattr(tls_gate, "_protocol_of", lambda _loop: Tls)
    handshakes = RoundTurns(4)
    large, small = record(16_000) * 2, record(900)
    peers = [Peer(handshakes) for _ in range(10)]
    for peer in peers[:4]:
        peer.send(large[:-1])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    before = [peer.passed for peer in peers]
    for number, peer in enumerate(peers):
        peer.send(large[-1:] if number < 4 else small)
    moved = []
    for _ in range(10):
        moved.append([peer.passed > was for peer, was in zip(peers, before, strict=True)])
        assert all(peer.transport.is_reading() == moves for peer, moves in zip(peers, moved[-1], strict=True))
        await asyncio.sleep(0)
    assert [sum(each) for each in moved[:4]] == [1, 2, 3, 4], "one large flight in a round"
    assert all(moved[-1])
    for peer in peers:
        peer.gate.ready.set_result(None)
        peer.send(record(9_000) * 7)
        assert peer.transport.is_reading() and not peer.transport.closing


async def test_addresses_have_the_turns_of_handshakes_and_records_one_after_the_other(monkeypatch):
    monkeypatch.setattr(tls_gate, "_protocol_of", lambda _loop: Tls)
    handshakes = RoundTurns(1)
    peers = [Peer(handshakes, host=host) for host in ("10.0.0.1",) * 5 + ("10.0.0.2",)]
    greeting = peers[0].passed
    for peer in peers:
        peer.send(record(900))
    await asyncio.sleep(0)
    assert [peer.passed > greeting for peer in peers] == [True, True, False, False, False, False]
    await asyncio.sleep(0)
    assert peers[-1].passed > greeting, "the first turn of its address"
    records = RoundTurns(1)
    for peer in peers:
        peer.gate._turns, before = records, peers[-1].passed
        peer.gate.ready.set_result(None)
        peer.gate._rest = b""
        peer.send(record(1) * 3 * RECORDS_IN_ONE_TURN)
    for _ in range(2):
        await asyncio.sleep(0)
    assert peers[-1].passed - before == 2 * 6 * RECORDS_IN_ONE_TURN


async def test_certificates_directly_behind_the_greeting_have_turns(monkeypatch):
    monkeypatch.setattr(tls_gate, "_protocol_of", lambda _loop: Tls)
    handshakes, large = RoundTurns(4), record(16_000) * 2
    peers = [Peer(handshakes, behind=large) for _ in range(4)]
    counts = []
    for _ in range(4):
        assert all(peer.passed in (505, 505 + len(large)) for peer in peers)
        counts.append(sum(peer.passed > 505 for peer in peers))
        await asyncio.sleep(0)
    assert counts == [1, 2, 3, 4] and all(peer.transport.is_reading() for peer in peers)


async def test_certificates_without_end_end_the_connection(monkeypatch):
    monkeypatch.setattr(tls_gate, "_protocol_of", lambda _loop: Tls)
    peer = Peer(RoundTurns(4))
    most, sent = MOST_GREETING_BYTES, 505
    while not peer.transport.closing:
        assert sent <= most
        peer.send(record(4_000))
        sent += 4_005
        for _ in range(3):
            await asyncio.sleep(0)
    assert sent > most >= peer.passed


async def test_bytes_behind_the_end_of_a_handshake_have_no_limit(monkeypatch):
    class Ready(Tls):
        def buffer_updated(self, size):
            super().buffer_updated(size)
            if sum(map(len, self.passed)) > 1000 and not peer.gate.ready.done():
                peer.gate.ready.set_result(None)

    monkeypatch.setattr(tls_gate, "_protocol_of", lambda _loop: Ready)
    peer = Peer(RoundTurns(4))
    sent = record(900) + record(15_000) * 7
    peer.send(sent)
    assert peer.passed == 505 + len(sent) and peer.transport.is_reading()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_client_with_too_long_a_handshake_leaves_its_seat(new_loop, tmp_path, monkeypatch):
    """The seat stayed taken for ever: TLS took the end without an error for the end of the handshake."""
    monkeypatch.setattr(tls_gate, "MOST_GREETING_BYTES", 100)
    files = Certificates(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*files.make("localhost"))
    trusted = trusting(files.authority[0])

    async def run():
        [listening] = await bind(asyncio.get_running_loop(), "127.0.0.1", 0)
        door = Door(listening, Seats(10), context=served)
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(
                "127.0.0.1", door.acceptor.port, ssl=trusted, server_hostname="localhost", family=socket.AF_INET
            )
        await until(lambda: not door.seats.taken)
        await door.close()

    loop = new_loop()
    loop.run_until_complete(asyncio.wait_for(run(), 60))
    loop.close()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_client_gets_its_bytes_back(new_loop, tmp_path):
    files = Certificates(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*files.make("localhost"))
    trusted = trusting(files.authority[0])
    drawn = random.Random(5)
    parts = [bytes([n % 251]) * drawn.choice((1, 1, 1, 50, 70_000)) for n in range(1500)]

    class Echo(asyncio.Protocol):
        def __init__(self, seat):
            self.seat = seat

        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)

        def connection_lost(self, exc):
            self.seat.leave()

    async def run():
        [listening] = await bind(asyncio.get_running_loop(), "127.0.0.1", 0)
        door = Door(listening, Seats(10), context=served)
        door.acceptor._make = Echo
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", door.acceptor.port, ssl=trusted, server_hostname="localhost", family=socket.AF_INET
        )

        async def write():
            for part in parts:
                writer.write(part)
                await writer.drain()

        writing = asyncio.ensure_future(write())
        expected = b"".join(parts)
        assert await asyncio.wait_for(reader.readexactly(len(expected)), 30) == expected
        await writing
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), 10)
        await door.close()

    loop = new_loop()
    loop.run_until_complete(asyncio.wait_for(run(), 60))
    loop.close()
