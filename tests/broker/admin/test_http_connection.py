"""Seats and deadlines of the web port, over real sockets; the deadlines are fired by the test."""

import asyncio
import contextlib
import gc
import itertools
import tracemalloc

import pytest
import structlog
import uvicorn
from uvicorn.server import ServerState

from magnetar.broker.admin.admin_server import start_admin
from magnetar.broker.admin.http_connection import CERTIFICATE, HttpConnection
from magnetar.broker.admin.http_turns import EVENTS_IN_ONE_TURN, read_turns
from magnetar.broker.descriptors import DescriptorShares
from magnetar.broker.network.seats import Seats
from magnetar.broker.network.tls_gate import RECORDS
from magnetar.broker.settings import Settings
from tests.broker.admin_fakes import open_client
from tests.cycles import cycles
from tests.twins.fake_connection import FakeTransport
from tests.waiting import until

SHORT_S = 0.05
REQUEST = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Web:
    def __init__(self, admin):
        self.admin = admin
        self._writers = []

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin.port)
        self._writers.append(writer)
        return reader, writer

    async def get(self, path, pair=None):
        """(status, connection) of a request on a new or a given connection."""
        reader, writer = pair or await self.connect()
        writer.write(REQUEST % path)
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1]), (reader, writer)

    async def close(self):
        for writer in self._writers:
            writer.close()
        await self.admin.close()


@pytest.fixture
async def web():
    opened = []

    async def new(seats=2, idle_s=30):
        broker = (await open_client(Settings(web_service_port=0))).broker
        broker.descriptors = DescriptorShares(1000, 10, seats, 10)
        opened.append(Web(await start_admin(broker)))
        opened[-1].admin._servers[0].config.timeout_keep_alive = idle_s
        return opened[-1]

    yield new
    for each in opened:
        await each.close()


async def ended(pair):
    """Wait until the broker closes the connection."""
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(pair[0].read(), 20)


async def test_the_connection_that_is_idle_for_longest_gives_way(web):
    there = await web(seats=2)
    first, second = await there.connect(), await there.connect()
    status, third = await there.get(b"/admin/v2/tenants")
    assert status == 200
    await ended(first)
    assert (await there.get(b"/status", second))[0] == 200
    assert (await there.get(b"/metrics", third))[0] == 200


async def test_a_request_keeps_its_connection_and_probes_answer_beyond_the_seats(web):
    there = await web(seats=2)
    busy = [await there.connect() for _ in range(2)]
    for _, writer in busy:
        writer.write(
            b"PUT /admin/v2/tenants/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 50\r\n\r\n{"
        )
    await until(lambda: there.admin.seats.taken >= 2 and not there.admin.seats._idle)
    for path, status in ((b"/status", 200), (b"/admin/v2/tenants", 503), (b"/metrics", 200)):
        assert (await there.get(path))[0] == status
    reader, writer = busy[0]
    writer.write(b" " * 48 + b"}")
    assert b" 4" in await reader.readuntil(b"\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /status HT",
        b"PUT /admin/v2/tenants/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_connections_without_progress_are_closed(web, sent):
    there = await web(idle_s=SHORT_S)
    pair = await there.connect()
    pair[1].write(sent)
    await ended(pair)
    assert there.admin.seats.taken == 0


async def test_a_head_that_trickles_has_no_more_time(web):
    there = await web(idle_s=0.2)
    reader, writer = await there.connect()
    over = asyncio.ensure_future(ended((reader, writer)))
    for letter in b"GET /status HTTP/1.1\r\nA: " + b"x" * 100_000:
        if over.done():
            break
        try:
            writer.write(bytes([letter]))
            await writer.drain()
        except ConnectionError:
            break
        await asyncio.sleep(0.01)
    await over
    assert there.admin.seats.taken == 0


async def test_a_peer_that_reads_no_answer_is_closed(web):
    there = await web(idle_s=SHORT_S)
    reader, writer = await there.connect()
    reader._transport.pause_reading()
    connections = there.admin._servers[0].server_state.connections
    await until(lambda: connections)
    [connection] = connections
    connection._socket.write(bytes(32 << 20))  # more than the system's buffers hold
    await until(lambda: not there.admin.seats.taken)


async def test_a_peer_that_leaves_in_its_body_is_no_error_of_the_broker(web):
    there = await web()
    with structlog.testing.capture_logs() as logs:
        _, writer = await there.connect()
        path = b"/admin/v2/persistent/public/default/t/subscription/s/resetcursor"
        writer.write(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\nhalf" % path)
        await writer.drain()
        state = there.admin._servers[0].server_state
        await until(lambda: state.tasks)
        writer.close()
        await until(lambda: not state.tasks)
    assert not [entry for entry in logs if entry["log_level"] == "error"]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "illegal request line"),
        (b"GET /status HTTP/1.1\r\nHost: localhost\r\nAuthorization: secret\0\r\n\r\n", "illegal header line"),
        (b"GET /status HTTP/3.0\r\nHost: localhost\r\n\r\n", "another version of HTTP"),
    ],
)
async def test_the_log_names_the_address_of_a_client_that_sends_no_request(web, sent, reason):
    """The line of uvicorn, a warning, had neither address nor reason."""
    there = await web()
    with structlog.testing.capture_logs() as logs:
        reader, writer = await there.connect()
        writer.write(sent)
        assert (await reader.read()).startswith(b"HTTP/1.1 ")
    [line] = logs
    assert (line["event"], line["log_level"]) == ("request.refused", "info")
    assert (line["address"], line["reason"]) == ("127.0.0.1", reason)


CHUNKED = b"%s /status HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("method", [b"HEAD", b"PUT"])
@pytest.mark.parametrize("turns", [0, 5], ids=["at once", "later"])
@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "within the answer"])
async def test_an_invalid_body_ends_its_connection_without_an_error_of_the_broker(method, turns, begun, caplog):
    """A peer without a proved role can send invalid HTTP at any rate: a traceback for each request would fill the log."""
    ended = []

    async def application(_scope, receive, send):
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"part", "more_body": True})
        while (await receive()).get("more_body"):
            pass
        if not begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"rest"})
        ended.append(True)

    loop, problems = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, context: problems.append(context))
    config = uvicorn.Config(application, ws="none", lifespan="off", loop="none", log_config=None)
    config.load()
    connection, wire = HttpConnection(config, ServerState(), {}, Seats(2).take()), FakeTransport()
    connection.connection_made(wire)
    connection.data_received(CHUNKED % method)
    for _ in range(turns):
        await asyncio.sleep(0)
    connection.data_received(b"no number\r\n")
    assert wire.closing
    await until(lambda: ended)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert not problems
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    if not (begun and turns):
        assert b"HTTP/1.1 400 " in wire.written


async def test_an_invalid_body_of_a_head_request_gets_a_head(web):
    there = await web()
    reader, writer = await there.connect()
    writer.write(CHUNKED % b"HEAD" + b"no number\r\n")
    assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 400 ")


async def test_chunks_of_a_byte_take_turns_with_other_work():
    """A read of 256 KiB has forty thousand chunks, and held the loop for half a second."""
    chunks, bodies = 20 * EVENTS_IN_ONE_TURN, []

    async def application(_scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        bodies.append(body)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(application, ws="none", lifespan="off", loop="none", log_config=None)
    config.load()
    connection, wire = HttpConnection(config, ServerState(), {}, Seats(2).take()), FakeTransport()
    connection.connection_made(wire)
    connection.data_received(CHUNKED % b"PUT" + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n")
    assert len(connection.cycle.body) <= EVENTS_IN_ONE_TURN
    held = 0
    while not bodies:
        held += wire.held
        await asyncio.sleep(0)
    assert held >= 19, "nothing is read while events wait, though the application takes all there is"
    assert bodies == [b"x" * chunks]
    await until(lambda: wire.written.startswith(b"HTTP/1.1 204"))
    assert not wire.held
    connection.connection_lost(None)


async def test_a_request_with_a_length_and_chunks_is_refused(web):
    """Behind a proxy that goes by the length, the rest of its body was a request of another client's connection."""
    reader, writer = await (await web()).connect()
    hidden = REQUEST % b"/status"
    body = b"0\r\n\r\n" + hidden
    head = b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head % len(body) + body)
    answer = await asyncio.wait_for(reader.read(), 20)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def served(application, turns=None, wire=None, upgrades=None, seats=None):
    """A connection of the application over a transport that only remembers; `turns`: shared turns of connections. No
    connection ends for its idleness within the test, however slow the machine is.
    """
    config = uvicorn.Config(
        application, ws="none", lifespan="off", loop="none", log_config=None, timeout_keep_alive=3600
    )
    config.load()
    seat, wire = (seats or Seats(2)).take(), wire or FakeTransport()
    connection = HttpConnection(config, ServerState(), {}, seat, upgrades, turns)
    connection.connection_made(wire)
    return connection, wire


async def no_content(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


LONG_HEAD = REQUEST[:-2] % b"/" + b"".join(b"%x:\r\n" % number for number in range(0x1000, 0x1000 + 1000)) + b"\r\n"


class Upgradable(FakeTransport):
    protocol = None

    def set_protocol(self, protocol):
        self.protocol = protocol


class Sessions:
    """Serves every request for a WebSocket session."""

    def refusal(self, _request, _headers, _address):
        return None

    def serve(self, *_connection):
        return asyncio.Protocol()


async def test_a_session_that_follows_a_request_keeps_its_connection():
    """The connection counted as idle behind the answer: the session lost its seat, and its socket at the deadline."""
    wire, seats = Upgradable(), Seats(2)
    connection, _ = served(no_content, wire=wire, upgrades=Sessions(), seats=seats)
    connection.timeout_keep_alive = SHORT_S
    asked = REQUEST[:-2] % b"/ws/v2/producer/t" + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    connection.data_received(REQUEST % b"/status" + asked)
    await until(lambda: wire.protocol)
    await asyncio.sleep(0)
    assert not seats._idle and not wire.closing
    assert connection._timer.cancelled()


class Encrypted(FakeTransport):
    """A transport over TLS, which passes on all bytes of an answer; `waiting` has those that wait for the socket."""

    def __init__(self):
        super().__init__()
        self.waiting = FakeTransport()

    def get_extra_info(self, name, default=None):
        return self.waiting if name == RECORDS else default


async def test_a_client_that_reads_its_answer_over_tls_keeps_its_connection():
    """TLS leaves out the bytes that wait for the socket: the connection counted as idle, and the answer was cut."""
    connection, wire = served(no_content, wire=Encrypted())
    connection.data_received(REQUEST % b"/")
    await until(lambda: wire.written.startswith(b"HTTP/1.1 204"))
    for left in (5000, 3000, 1000):
        wire.waiting.unread_bytes = left
        connection._look()
        assert not wire.closing
    connection._look()
    assert wire.closing, "the client has read nothing"


async def test_of_many_connections_with_long_heads_a_few_are_parsed_in_a_round():
    """1,000 heads of 6 KiB that ended together made a PING wait for 2.6 s of processor time."""
    heads = read_turns()
    pairs = [served(no_content, heads) for _ in range(20)]
    for connection, _ in pairs:
        connection.data_received(LONG_HEAD[:-2])
    for connection, _ in pairs:
        connection.data_received(LONG_HEAD[-2:])
    parsed = [sum(connection.cycle is not None for connection, _ in pairs)]
    while parsed[-1] < len(pairs):
        await asyncio.sleep(0)
        parsed.append(sum(connection.cycle is not None for connection, _ in pairs))
        assert all(wire.held for connection, wire in pairs if connection.cycle is None), "the others are read on"
    assert max(after - before for before, after in itertools.pairwise([0, *parsed])) <= 2
    await until(lambda: all(wire.written.startswith(b"HTTP/1.1 204") for _, wire in pairs))
    assert not any(wire.held for _, wire in pairs)
    for connection, wire in pairs:
        connection.data_received(REQUEST % b"/")
        await until(lambda wire=wire: wire.written.count(b"HTTP/1.1 204") == 2)
        connection.connection_lost(None)


async def test_a_connection_that_is_lost_before_the_turn_of_its_head_begins_no_request():
    heads = read_turns()
    (first, _), (second, wire) = served(no_content, heads), served(no_content, heads)
    for connection in first, second:
        connection.data_received(LONG_HEAD)
    assert second.cycle is None
    wire.close()
    second.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert second.cycle is None and not wire.written
    first.connection_lost(None)


async def test_an_idle_connection_keeps_no_head():
    """1,000 idle connections kept 158 MiB of the heads of their last requests."""
    connections = [served(no_content) for _ in range(10)]
    tracemalloc.start()
    try:
        for connection, wire in connections:
            connection.data_received(LONG_HEAD)
            await until(lambda wire=wire: wire.written)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] // len(connections)
    finally:
        tracemalloc.stop()
    assert kept < 16 << 10
    for connection, _ in connections:
        connection.connection_lost(None)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 426),
        (b"GET /status HTTP/2.0\r\nHost: localhost\r\n\r\n", 426),
        (b"GET /status HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /status HTTP/0.9\r\nHost: localhost\r\n\r\n", 505),
    ],
    ids=["the preface of HTTP/2", "2.0", "3.0", "0.9"],
)
async def test_another_version_of_http_is_refused_once(web, sent, status):
    """As by Apache Pulsar; the preface of HTTP/2 was answered as two requests, with 404 and 400."""
    reader, writer = await (await web()).connect()
    writer.write(sent)
    answer = await asyncio.wait_for(reader.read(), 20)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_request_to_continue_with_http_2_is_ignored(web):
    reader, writer = await (await web()).connect()
    writer.write(REQUEST[:-2] % b"/status" + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n")
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).startswith(b"HTTP/1.1 200 ")


async def test_a_connection_keeps_the_subject_of_a_certificate_alone():
    """9,000 other names of a certificate took a MiB of each connection."""
    subject, seen = ((("commonName", "client"),),), []

    class Tls:
        def getpeercert(self):
            return {"subject": subject, "subjectAltName": (("DNS", "a"),) * 9000}

    class TlsTransport(FakeTransport):
        def get_extra_info(self, name, default=None):
            return Tls() if name == "ssl_object" else default

    async def application(scope, receive, send):
        seen.append(scope["extensions"][CERTIFICATE])
        await no_content(scope, receive, send)

    connection, wire = served(application, wire=TlsTransport())
    connection.data_received(REQUEST % b"/")
    await until(lambda: wire.written)
    assert seen == [{"subject": subject}]
    connection.connection_lost(None)


async def test_chunks_of_many_connections_share_the_rounds_of_the_loop():
    """Each of 50 connections handled 256 chunks in a round of the loop: a hundred milliseconds together."""
    turns, chunks = read_turns(), 4 * EVENTS_IN_ONE_TURN
    pairs = [served(no_content, turns) for _ in range(10)]
    for connection, _ in pairs:
        connection.data_received(CHUNKED % b"PUT")
    await until(lambda: all(connection.cycle is not None for connection, _ in pairs))
    for connection, _ in pairs:
        connection.data_received(b"1\r\nx\r\n" * chunks + b"0\r\n\r\n" + REQUEST % b"/")
    left = [len(connection.conn.trailing_data[0]) for connection, _ in pairs]
    while any(left):
        await asyncio.sleep(0)
        before, left = left, [len(connection.conn.trailing_data[0]) for connection, _ in pairs]
        assert sum(was - now > EVENTS_IN_ONE_TURN for was, now in zip(before, left, strict=True)) <= 2
    await until(lambda: all(wire.written.count(b"HTTP/1.1 204") == 2 for _, wire in pairs))
    assert not any(wire.held for _, wire in pairs)
    for connection, _ in pairs:
        connection.connection_lost(None)


@pytest.mark.parametrize("request_", [b"GET\r\n\r\n", REQUEST % b"/" + b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
async def test_a_connection_with_a_malformed_request_does_not_wait_for_the_garbage_collector(web, request_):
    """A frame of the parser kept the error, whose traceback has the frames of the connection."""
    there = await web()

    async def refused():
        pair = await there.connect()
        pair[1].write(request_)
        await ended(pair)
        pair[1].close()
        await asyncio.sleep(SHORT_S)

    await refused()
    gc.collect()
    gc.disable()
    try:
        await refused()
        assert not cycles()
    finally:
        gc.enable()
