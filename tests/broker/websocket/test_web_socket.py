"""The socket of a session, over a transport that only remembers."""

import asyncio
import tracemalloc

import pytest

from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.network.pieces import ENCRYPTED_HIGH_BYTES, PIECE_BYTES
from magnetar.broker.network.round_turns import RoundTurns
from magnetar.broker.websocket.web_socket import WebSocket
from tests.model.virtual_loop import VirtualLoop
from tests.twins.fake_connection import FakeTransport
from tests.waiting import until

HEAD = (
    b"GET /ws/v2/producer/persistent/a/b/c HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
MASK = bytes(4)


def frame(opcode, data=b"", *, fin=True):
    assert len(data) < 126
    return bytes([(0x80 if fin else 0) | opcode, 0x80 | len(data)]) + MASK + data


class Link:
    closed = False

    def lost(self, error):
        pass

    def paused(self):
        pass

    def resumed(self):
        pass


class Session:
    def __init__(self):
        self.texts = []

    def start(self):
        pass

    def on_text(self, text):
        self.texts.append(text)

    def close(self):
        pass


async def test_a_session_whose_opening_fails_unexpectedly_keeps_no_connection():
    """The connection stayed open and unread, without any deadline."""
    transport = FakeTransport()
    socket = WebSocket(transport, 1 << 20, 0, 0, RoundTurns(4), lambda: None)

    async def fails(_):
        raise KeyError("no such topic")

    with pytest.raises(KeyError):
        await socket.open(HEAD, fails)
    assert transport.closing


@pytest.mark.parametrize(
    "more",
    [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"a:\r\n" * 1000, b"a: " + b"x" * 9000 + b"\r\n"],
    ids=["a length", "chunks", "a thousand headers", "a long header"],
)
async def test_a_request_with_a_body_or_with_too_many_headers_is_refused(more):
    """The refusal failed with an assertion in the log, and the connection stayed open, without any deadline."""
    transport = FakeTransport()
    socket = WebSocket(transport, 1 << 20, 0, 0, RoundTurns(4), lambda: None)

    async def never(_):
        raise AssertionError("no session for such a request")

    await socket.open(HEAD[:-2] + more + b"\r\n", never)
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert transport.closing


@pytest.fixture
def run():
    """Run a test in an event loop: it gets an open socket, its transport and its session."""

    def runner(test):
        async def body():
            transport, session = FakeTransport(), Session()
            socket = WebSocket(transport, 1 << 20, 0, 0, RoundTurns(4), lambda: None)
            socket.link = Link()

            async def open_session(_socket):
                return session

            await socket.open(HEAD, open_session)
            assert transport.written.startswith(b"HTTP/1.1 101")
            await test(socket, transport, session)

        asyncio.run(body())

    return runner


async def test_nothing_is_read_while_a_session_opens():
    """Hundreds of texts that arrived in part before their sessions opened were not in the account of memory."""
    transport, reading = FakeTransport(), []
    socket = WebSocket(transport, 1 << 20, 0, 0, RoundTurns(4), lambda: None)
    socket.link = Link()

    async def open_session(_socket):
        reading.append(transport.is_reading())
        return Session()

    await socket.open(HEAD, open_session)
    assert reading == [False] and transport.is_reading()


def test_parts_without_bytes_cost_nothing(run):
    async def test(socket, transport, session):
        socket.data_received(frame(1, b"a", fin=False))
        many = frame(0, fin=False) * 1000
        tracemalloc.start()
        try:
            for _ in range(20):
                socket.data_received(many)
                for _ in range(20):
                    await asyncio.sleep(0)
                assert transport.is_reading()
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        socket.data_received(frame(0, b"b"))
        assert session.texts == ["ab"]
        assert kept < 64 << 10

    run(test)


def test_frames_of_one_read_are_handled_in_several_turns(run):
    async def test(socket, transport, session):
        socket.data_received(b"".join(frame(1, b"%d" % i) for i in range(20_000)))
        assert 0 < len(session.texts) < 2_000
        assert not transport.is_reading()
        while len(session.texts) < 20_000:
            before = len(session.texts)
            await asyncio.sleep(0)
            assert len(session.texts) - before < 2_000
        assert session.texts == [str(i) for i in range(20_000)]
        await asyncio.sleep(0)
        assert transport.is_reading()

    run(test)


async def test_the_ends_of_large_texts_of_many_sessions_do_not_come_in_one_round():
    """A hundred sessions whose texts of a MiB ended in one round held the loop for ten seconds."""
    turns, opened = RoundTurns(8), []
    for _ in range(30):
        session = Session()
        socket = WebSocket(FakeTransport(), 1 << 20, 0, 0, turns, lambda: None)
        socket.link = Link()

        async def open_session(_socket, session=session):
            return session

        await socket.open(HEAD, open_session)
        opened.append((socket, session))
    text = large(200_000) + b"x" * 200_000
    for socket, _ in opened:
        socket.data_received(text[:-10])
        await asyncio.sleep(0)
    for socket, _ in opened:
        socket.data_received(text[-10:])
        socket.data_received(frame(1, b"next"))

    def ended():
        return sum(len(text) > 10 for _, session in opened for text in session.texts)

    before = ended()
    assert before <= 1
    while any(len(session.texts) < 2 for _, session in opened):
        await asyncio.sleep(0)
        assert ended() - before <= 1
        before = ended()


async def busy_session(turns, *host):
    """An open session that has received 5,000 frames at once."""
    session = Session()
    socket = WebSocket(FakeTransport(*host), 1 << 20, 0, 0, turns, lambda: None)
    socket.link = Link()

    async def open_session(_socket):
        return session

    await socket.open(HEAD, open_session)
    socket.data_received(frame(1, b"x") * 5_000)
    return session


async def test_of_many_sessions_with_frames_a_few_have_a_turn_in_a_round():
    """With 200 sessions full of PINGs a message of another client waited for 0.7 s of processor time."""
    turns, opened = RoundTurns(2), []
    for _ in range(10):
        opened.append(await busy_session(turns))
    while any(len(session.texts) < 5_000 for session in opened):
        before = [len(session.texts) for session in opened]
        await asyncio.sleep(0)
        had_turns = sum(len(session.texts) > count for session, count in zip(opened, before, strict=True))
        assert 0 < had_turns <= 2


class TlsTransport(FakeTransport):
    """A transport over TLS, whose peer reads on demand."""

    def __init__(self):
        super().__init__()
        self.reads_at_once = False

    def get_extra_info(self, name, default=None):
        return object() if name == "sslcontext" else default


async def encrypted():
    """(transport, socket, session) of an open session over TLS; its calls for room for more texts are counted."""
    transport, session = TlsTransport(), Session()
    socket = WebSocket(transport, 1 << 20, 0, 0, RoundTurns(4), lambda: None)
    transport.on_pause, transport.on_resume = socket.pause_writing, socket.resume_writing
    socket.link, session.calls = Link(), 0

    def on_writable():
        session.calls += 1

    async def open_session(_socket):
        return session

    session.on_writable = on_writable
    await socket.open(HEAD, open_session)
    socket.limit_output(1 << 20, None)
    transport.read(transport.unread_bytes)
    transport.written.clear()
    return transport, socket, session


async def test_over_tls_little_of_a_large_text_is_encrypted_until_the_peer_reads():
    """TLS encrypted the texts as a whole, and kept the buffer: 40 sessions with texts of 4 MB cost 342 MB, now 81."""
    transport, socket, session = await encrypted()
    texts = [bytes([65 + number]) * size for number, size in enumerate((3 << 20, 20, 100_000))]
    for text in texts:
        socket.write_text(text)
    assert not socket.is_writable
    assert transport.unread_bytes <= ENCRYPTED_HIGH_BYTES + PIECE_BYTES
    assert socket.unsent_bytes > sum(map(len, texts))
    while not socket.is_writable:
        assert session.calls == 0
        transport.read(transport.unread_bytes)
        assert transport.unread_bytes <= ENCRYPTED_HIGH_BYTES + PIECE_BYTES
    assert session.calls == 1 and socket.unsent_bytes == transport.unread_bytes
    for text in texts:
        assert transport.written.count(text[:1]) == len(text)
    assert transport.written.endswith(texts[-1])


async def test_a_large_text_is_not_kept_for_its_last_piece():
    transport, socket, _ = await encrypted()
    tracemalloc.start()
    socket.write_text(bytes(4 << 20))
    while socket.unsent_bytes > 1 << 20:
        transport.read(transport.unread_bytes)
        transport.written.clear()
    assert tracemalloc.get_traced_memory()[0] < 2 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(("size", "is_sent"), [(1 << 20, True), (2 << 20, False)])
async def test_over_tls_a_session_that_its_client_ends_sends_the_rest_of_a_usual_text(size, is_sent):
    transport, socket, _ = await encrypted()
    socket.write_text(bytes(size))
    socket.data_received(frame(8))
    assert transport.closing and (len(transport.written) > size) == is_sent


async def test_sessions_of_another_address_have_the_next_turn():
    turns, opened = RoundTurns(1), []
    for host in ("10.0.0.1",) * 10 + ("10.0.0.2",):
        opened.append(await busy_session(turns, host))
    for _ in range(2):
        await asyncio.sleep(0)
    assert opened[-1].texts


def test_a_session_that_holds_reading_back_gets_no_more(run):
    async def test(socket, transport, session):
        socket.data_received(frame(1, b"x") * 5_000)
        socket.hold_reading("memory")
        seen = len(session.texts)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(session.texts) == seen and not transport.is_reading()
        socket.release_reading("memory")
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(session.texts) == 5_000

    run(test)


def large(size):
    """The head of a text frame of so many bytes."""
    return bytes([0x81, 0x80 | 127]) + size.to_bytes(8, "big") + MASK


def test_a_text_that_has_arrived_in_part_is_in_the_account_of_memory(run):
    async def test(socket, transport, session):
        account = MemoryAccount(MemoryLimits(1 << 20, 1 << 20, 1 << 20))
        socket.account(account.share("a", lambda: socket.release_reading("memory")), 60)
        socket.data_received(large(300 << 10) + b"x" * (200 << 10))
        assert 190 << 10 < account.used_bytes <= 200 << 10
        await asyncio.sleep(0)
        socket.data_received(b"x" * (100 << 10))
        assert [len(text) for text in session.texts] == [300 << 10]
        assert account.used_bytes == 0
        await asyncio.sleep(0)
        socket.data_received(frame(1, b"y" * 100, fin=False) + frame(0, b"z" * 100, fin=False) * 1000)
        await until(transport.is_reading)
        assert account.used_bytes == 64 << 10
        socket.connection_lost(None)
        assert account.used_bytes == 0

    run(test)


def test_a_session_that_waits_for_memory_for_too_long_is_ended(run):
    async def test(socket, transport, session):
        account = MemoryAccount(MemoryLimits(128 << 10, 1 << 20, 1 << 20))
        other = account.share("b")
        socket.account(account.share("a", lambda: socket.release_reading("memory")), 0.02)
        other.set("frame", 100 << 10)
        socket.data_received(large(300 << 10) + b"x" * (70 << 10))
        assert not transport.is_reading()
        other.set("frame", 0)
        assert transport.is_reading(), "there is room again"
        await asyncio.sleep(0)
        other.set("frame", 100 << 10)
        socket.data_received(b"x" * (70 << 10))
        assert not transport.is_reading()
        await until(lambda: b"no memory" in transport.written)
        assert (1013).to_bytes(2, "big") in transport.written

    run(test)


def test_a_text_that_is_too_large_is_read_to_its_end_behind_the_close_frame(run):
    """A close with unread input is a reset of the connection, and the peer may never see the reason."""

    async def test(socket, transport, session):
        transport.written.clear()
        for _ in range(20):
            socket.data_received(b"\x81\xff" + (1 << 21).to_bytes(8, "big") + MASK + b"x" * 70_000)
            await asyncio.sleep(0)
        assert bytes(transport.written[:4]) == b"\x88" + bytes([transport.written[1]]) + (1009).to_bytes(2, "big")
        assert transport.ended and transport.is_reading() and not transport.closing
        assert session.texts == []
        assert not socket.eof_received()

    run(test)


def test_an_idle_session_ends_at_the_end_of_the_time_behind_its_last_traffic():
    """A session ended up to twice the time behind its last traffic."""

    async def test():
        transport, session = FakeTransport(), Session()
        socket = WebSocket(transport, 1 << 20, 3.0, 0, RoundTurns(4), lambda: None)
        socket.link = Link()

        async def open_session(_socket):
            return session

        await socket.open(HEAD, open_session)
        await asyncio.sleep(2)
        socket.data_received(frame(1, b"x"))
        await asyncio.sleep(2.5)
        socket.write_text(b"y")
        await asyncio.sleep(2.9)
        assert b"Idle" not in bytes(transport.written)
        await asyncio.sleep(0.2)
        assert b"Idle" in bytes(transport.written)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(test())


def test_a_session_without_any_traffic_ends_after_the_time():
    async def test():
        transport = FakeTransport()
        socket = WebSocket(transport, 1 << 20, 3.0, 0, RoundTurns(4), lambda: None)
        socket.link = Link()

        async def open_session(_socket):
            return Session()

        await socket.open(HEAD, open_session)
        await asyncio.sleep(2.9)
        assert b"Idle" not in bytes(transport.written)
        await asyncio.sleep(0.2)
        assert b"Idle" in bytes(transport.written)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(test())
