"""Reports of a session on kazoo's threads, without a service."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog
from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import ZnodeStat

from magnetar.bookkeeper import events
from magnetar.bookkeeper.errors import MetadataUnavailableError, TooManyRequestsError
from magnetar.bookkeeper.zookeeper.kazoo_handler import KazooHandler
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import SessionState, ZooKeeperOptions
from tests.waiting import until


class Kazoo:
    """The part of kazoo's client that a session uses here."""

    handler = SimpleNamespace(dispatch_callback=lambda callback: callback.func(*callback.args))

    def add_listener(self, listener):
        self.listener = listener

    def stop(self):
        return

    def close(self):
        return


@pytest.fixture
async def failing():
    """A session, and a call that makes one of kazoo's threads fail."""
    session = ZooKeeperSession(Kazoo(), ZooKeeperOptions("127.0.0.1:1"))
    handler = KazooHandler()
    handler.on_failure = session._on_kazoo_failure

    async def fail(error):
        def work():
            raise error

        await asyncio.to_thread(handler.spawn(work).join)
        await asyncio.sleep(0)

    return session, fail


_CLOSE = struct.pack(">i", -11)


class Service:
    """A service that opens sessions, and answers no requests but that to close a session; ``stop`` ends it, ``start`` starts it again."""

    def __init__(self):
        self.port, self.requests, self._server, self._open = 0, [], None, []
        self.sessions = 0

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self):
        self._server.close()
        self.drop_connections()

    def drop_connections(self):
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader, writer):
        self._open.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._packet(reader)
            self.sessions += 1
            answer = struct.pack(">iiqi16s?", 0, 30_000, self.sessions, 16, bytes(16), False)
            writer.write(struct.pack(">i", len(answer)) + answer)
            while True:
                packet = await self._packet(reader)
                self.requests.append(packet)
                if packet[4:8] == _CLOSE:
                    writer.write(struct.pack(">iiqi", 16, int.from_bytes(packet[:4], "big", signed=True), 0, 0))
                    writer.close()

    async def _packet(self, reader):
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    def answer_what_was_not_asked(self):
        """kazoo's thread of the connection ends at an answer to another request."""
        answer = struct.pack(">iqi", 77_777, 0, 0)
        self._open[-1].write(struct.pack(">i", len(answer)) + answer)

    def wanted(self):
        """Paths of the reads, in the order in which they came."""
        reads = [packet[12:-1].decode() for packet in self.requests if packet[4:8] == b"\0\0\0\4"]
        return list(dict.fromkeys(reads))


@pytest.fixture
async def service():
    made = Service()
    await made.start()
    yield made
    made.stop()


@pytest.fixture
async def session(service):
    opened = await ZooKeeperSession.connect(ZooKeeperOptions(f"127.0.0.1:{service.port}", request_timeout_s=20))
    yield opened
    service.stop()  # the end of the session waits for no answer
    await opened.close()


async def test_a_thousand_requests_of_an_outage_leave_the_loop_turning_and_go_out_in_order(service, session):
    service.stop()
    await until(lambda: session.state is SessionState.SUSPENDED)
    reads = [asyncio.create_task(session.get(f"/{number}")) for number in range(1000)]
    await asyncio.sleep(0)
    await service.start()
    await until(lambda: len(service.wanted()) == 1000)
    assert service.wanted() == [f"/{number}" for number in range(1000)]
    for each in reads:
        each.cancel()


async def test_a_request_whose_deadline_comes_in_an_outage_is_never_sent(service, session):
    service.stop()
    await until(lambda: session.state is SessionState.SUSPENDED)
    with pytest.raises(MetadataUnavailableError):
        await session._call("/late", lambda: session._client.get_async("/late"), 0.01)
    await service.start()
    read = asyncio.create_task(session.get("/next"))
    await until(lambda: "/next" in service.wanted())
    assert service.wanted() == ["/next"]
    read.cancel()


async def test_a_bounded_number_of_requests_waits_in_an_outage(service):
    options = ZooKeeperOptions(f"127.0.0.1:{service.port}", request_timeout_s=20, max_waiting=3)
    session = await ZooKeeperSession.connect(options)
    service.stop()
    await until(lambda: session.state is SessionState.SUSPENDED)
    reads = [asyncio.create_task(session.get(f"/{number}")) for number in range(4)]
    with pytest.raises(TooManyRequestsError):
        await reads[3]
    reads[0].cancel()
    await asyncio.sleep(0)
    await service.start()
    reads[3] = asyncio.create_task(session.get("/3"))
    await until(lambda: service.wanted() == ["/1", "/2", "/3"])
    for each in reads:
        each.cancel()
    service.stop()
    await session.close()


async def test_the_end_of_a_session_ends_the_requests_of_an_outage(service, session):
    service.stop()
    await until(lambda: session.state is SessionState.SUSPENDED)
    read = asyncio.create_task(session.get("/x"))
    await asyncio.sleep(0)
    await session.close()
    with pytest.raises(MetadataUnavailableError):
        await read


def test_options_show_no_secret():
    options = ZooKeeperOptions("h:1", auth=(("digest", "user:secret"),), sasl={"password": "secret"})
    assert "secret" not in repr(options)
    assert "h:1" in repr(options)


async def test_a_thread_that_fails_at_the_start_fails_the_start(failing):
    session, fail = failing
    with structlog.testing.capture_logs() as logged:
        await fail(kazoo_errors.AuthFailedError())
    assert isinstance(session._starting.exception(), kazoo_errors.AuthFailedError)
    assert not logged


async def test_kazoo_is_started_again_when_its_thread_fails(service, session, monkeypatch):
    monkeypatch.setattr(session, "_pause_s", 0.01)
    states, first = [], session.session_id
    session.on_state(states.append)
    with structlog.testing.capture_logs() as logged:
        waiting = asyncio.create_task(session.create("/in-flight"))
        await until(lambda: service.requests)
        service.answer_what_was_not_asked()
        with pytest.raises(MetadataUnavailableError):
            await waiting
        await until(lambda: states == [SessionState.LOST, SessionState.CONNECTED])
    assert [each["event"] for each in logged] == [events.ZOOKEEPER_ENDED]
    assert states == [SessionState.LOST, SessionState.CONNECTED]
    assert session.session_id not in (0, first), "another session: nodes of the first are not this one's"
    read = asyncio.create_task(session.get("/later"))
    await until(lambda: "/later" in service.wanted())
    read.cancel()


async def test_kazoo_is_started_again_when_a_login_fails(service, session, monkeypatch):
    """kazoo's thread ends without an error when the service closes the connection during the login."""
    monkeypatch.setattr(session, "_pause_s", 0.01)
    monkeypatch.setattr(session, "_options", replace(session.options, session_timeout_ms=10))
    connect, refusals, states = session._client._connection._connect, [], []
    session.on_state(states.append)

    def refuse_twice(*arguments):
        pauses = connect(*arguments)
        if len(refusals) < 2:
            refusals.append(True)
            raise kazoo_errors.AuthFailedError("Connection dropped in SASL")
        return pauses

    monkeypatch.setattr(session._client._connection, "_connect", refuse_twice)
    with structlog.testing.capture_logs() as logged:
        service.drop_connections()
        # The refused logins come behind sessions that are open for a moment: the fourth session stays.
        await until(lambda: service.sessions == 4 and session.state is SessionState.CONNECTED)
        read = asyncio.create_task(session.get("/later"))
        await until(lambda: "/later" in service.wanted())
        read.cancel()
    assert SessionState.LOST in states
    assert [each["event"] for each in logged] == [events.ZOOKEEPER_ENDED] * 2


async def test_the_session_after_a_failed_thread_is_not_closed(service, session, monkeypatch):
    monkeypatch.setattr(session, "_pause_s", 0.01)
    states = []
    session.on_state(states.append)
    service.answer_what_was_not_asked()
    await until(lambda: states == [SessionState.LOST, SessionState.CONNECTED])
    read = asyncio.create_task(session.get("/later"))
    await until(lambda: "/later" in service.wanted())
    read.cancel()
    assert [packet for packet in service.requests if packet[4:8] == _CLOSE] == []


async def test_a_thread_that_fails_at_once_is_started_again(service, session, monkeypatch):
    monkeypatch.setattr(session, "_pause_s", 0.01)
    starts = []

    def start_async():
        starts.append(True)
        session._on_kazoo_failure(RuntimeError("at once"))

    monkeypatch.setattr(session._client, "start_async", start_async)
    service.answer_what_was_not_asked()
    await until(lambda: len(starts) >= 3)


async def test_a_process_without_a_thread_tries_again(service, session, monkeypatch):
    monkeypatch.setattr(session, "_pause_s", 0.01)
    start, refused, states = threading.Thread.start, [], []
    session.on_state(states.append)

    def refuse(thread):
        if thread.name == "zookeeper session" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    service.answer_what_was_not_asked()
    await until(lambda: states == [SessionState.LOST, SessionState.CONNECTED])
    assert refused


async def test_a_session_that_closes_is_not_started_again(service, session):
    waiting = asyncio.create_task(session.get("/in-flight"))
    await until(lambda: service.requests)
    service.answer_what_was_not_asked()
    await until(lambda: session.state is SessionState.LOST)
    await session.close()
    with pytest.raises(MetadataUnavailableError):
        await waiting
    assert service.sessions == 1
    assert session.state is SessionState.CLOSED


async def test_a_thread_that_fails_later_is_reported(failing):
    session, fail = failing
    session._starting.set_result(None)
    with structlog.testing.capture_logs() as logged:
        await fail(kazoo_errors.SessionClosedRequireSaslError())
        await session.close()
        await fail(OSError("its socket is closed"))
    assert [(each["event"], each["error"]) for each in logged] == [
        (events.ZOOKEEPER_ENDED, "SessionClosedRequireSaslError()")
    ]


async def test_the_newest_value_of_a_node_takes_one_round_trip(service, session):
    read = asyncio.create_task(session.get_latest("/n"))
    await until(lambda: service.wanted() == ["/n"])
    kinds = [int.from_bytes(packet[4:8], "big") for packet in service.requests if b"/n" in packet]
    assert kinds == [9, 4]  # sync, and the read behind it before any answer
    read.cancel()


class Answer:
    """The result of a request in kazoo."""

    def __init__(self, value=None, exception=None):
        self.value, self.exception = value, exception

    def rawlink(self, callback):
        callback(self)

    def successful(self):
        return self.exception is None

    def get(self, block=True):
        if self.exception is not None:
            raise self.exception
        return self.value


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(Answer((b"old", ZnodeStat(*[0] * 11))), id="value"),
        pytest.param(Answer(exception=kazoo_errors.NoNodeError()), id="absent"),
    ],
)
async def test_a_read_whose_sync_was_lost_is_repeated(monkeypatch, first):
    session, asked = ZooKeeperSession(Kazoo(), ZooKeeperOptions("127.0.0.1:1")), []
    syncs = [Answer(exception=kazoo_errors.ConnectionLoss()), Answer("/n")]
    reads = [first, Answer((b"new", ZnodeStat(*[0] * 11)))]

    def answered(name, answers):
        def request(path, **_):
            asked.append(name)
            return answers.pop(0)

        monkeypatch.setattr(session._client, f"{name}_async", request, raising=False)

    answered("sync", syncs)
    answered("get", reads)
    session._usable.set()
    assert (await session.get_latest("/n")).value == b"new"
    assert asked == ["sync", "get", "sync", "get"]


async def test_results_of_one_moment_wake_the_loop_once_and_keep_their_order(monkeypatch):
    session = ZooKeeperSession(Kazoo(), ZooKeeperOptions("127.0.0.1:1"))
    loop, wakes, called = asyncio.get_running_loop(), [], []
    wake = loop.call_soon_threadsafe
    counting = SimpleNamespace(
        call_soon=loop.call_soon, call_soon_threadsafe=lambda *given: wakes.append(given) or wake(*given)
    )
    monkeypatch.setattr(session, "_loop", counting)
    thread = threading.Thread(target=lambda: [session._post(called.append, number) for number in range(100)])
    thread.start()
    thread.join()  # the loop does not turn meanwhile
    await until(lambda: len(called) == 100)
    assert called == list(range(100))
    assert len(wakes) == 1
    session._post(called.append, 100)
    await until(lambda: len(called) == 101)
    assert len(wakes) == 2
