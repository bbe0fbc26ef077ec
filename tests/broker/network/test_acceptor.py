"""Real sockets of the loopback; a fake socket plays the refusals of the system."""

import asyncio
import contextlib
import errno
import socket
import ssl

import pytest
from structlog.testing import capture_logs

from magnetar.broker.network.acceptor import Acceptor
from magnetar.broker.network.bind import bind
from magnetar.broker.network.seats import Seats
from magnetar.broker.tasks import TaskSet
from tests.broker.admin.test_admin_server import Certificates
from tests.waiting import until

EXTRA_SEATS = Seats(0).extra


class Protocol(asyncio.Protocol):
    busy = False

    def __init__(self, seat, made):
        self.seat, self._made = seat, made

    def connection_made(self, transport):
        self.transport = transport
        self._made.append(self)
        if self.busy:
            self.seat.busy()
        else:
            self.seat.idle(transport.abort)

    def connection_lost(self, exc):
        self.seat.leave()


class Door:
    """An acceptor on a free port and its clients."""

    def __init__(self, listening, seats, **more):
        self.seats, self.made, self.tasks, self._clients = seats, [], TaskSet(), []
        loop = asyncio.get_running_loop()
        self.acceptor = Acceptor(loop, listening, seats, lambda seat: Protocol(seat, self.made), self.tasks, **more)
        self.acceptor.start()

    async def connect(self, count=1):
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", self.acceptor.port))
            client.setblocking(False)
            self._clients.append(client)
        return self._clients[-count:]

    async def close(self):
        self.acceptor.close()
        self.acceptor.close()
        for each in self.made:
            each.transport.abort()
        for client in self._clients:
            client.close()
        await self.tasks.close()


@pytest.fixture
async def door():
    opened = []

    async def new(most, **more):
        [listening] = await bind(asyncio.get_running_loop(), "127.0.0.1", 0)
        opened.append(Door(more.pop("wrap", lambda s: s)(listening), Seats(most), **more))
        return opened[-1]

    yield new
    for each in opened:
        await each.close()


async def test_a_hundred_connections(door):
    there = await door(1000)
    await there.connect(100)
    await until(lambda: len(there.made) == 100)
    assert there.seats.taken == 100


async def test_idle_connections_give_way_oldest_first(door):
    there = await door(3)
    for _ in range(5):
        await there.connect()
        count = len(there.made)
        await until(lambda count=count: len(there.made) > count)
    assert [each.transport.is_closing() for each in there.made] == [True, True, False, False, False]


async def test_beyond_the_seats_a_few_are_made_and_others_wait(door, monkeypatch):
    monkeypatch.setattr(Protocol, "busy", True)
    there = await door(2)
    for count in range(2 + EXTRA_SEATS):
        await there.connect()
        await until(lambda count=count: len(there.made) > count)
    await there.connect(5)
    assert [each.seat.is_extra for each in there.made] == [False] * 2 + [True] * EXTRA_SEATS
    for count in range(5):
        assert len(there.made) == 2 + EXTRA_SEATS + count
        there.made[count].transport.abort()
        await until(lambda count=count: len(there.made) > 2 + EXTRA_SEATS + count)


async def test_a_tls_handshake_has_a_deadline_and_gives_way(door):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there = await door(2, context=context, handshake_s=0.05)
    await there.connect(2)
    await until(lambda: there.seats.taken == 2)
    await until(lambda: there.seats.taken == 0)
    slow = await door(2, context=context, handshake_s=1000)
    await slow.connect(5)
    await until(lambda: slow.seats.evicted == 3)


@pytest.mark.parametrize("offers", ["a certificate of another authority", "no certificate", "no TLS"])
async def test_a_refused_tls_client_is_in_the_log(door, tmp_path, offers):
    """An operator sees why a client with an untrusted certificate has no connection."""
    (tmp_path / "other").mkdir()
    authority, other = Certificates(tmp_path), Certificates(tmp_path / "other", "another authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.make("localhost"))
    context.load_verify_locations(authority.authority[0])
    context.verify_mode = ssl.CERT_REQUIRED
    trusting = ssl.create_default_context(cafile=authority.authority[0])
    trusting.verify_flags &= ~ssl.VERIFY_X509_STRICT  # a default since Python 3.13
    if offers == "a certificate of another authority":
        trusting.load_cert_chain(*other.make("client"))
    with capture_logs() as logged:
        there = await door(2, context=context)
        tls = None if offers == "no TLS" else trusting
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", there.acceptor.port, ssl=tls, server_hostname=tls and "localhost"
            )
            address = "/{}:{}".format(*writer.get_extra_info("sockname")[:2])
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: there.seats.taken == 0 and logged)
        writer.close()
    [line] = [each for each in logged if each["event"] == "tls.refused"]
    assert (line["address"], line["port"], line["log_level"]) == (address, there.acceptor.port, "info")
    expected = {"no TLS": "no TLS", "no certificate": "did not return a certificate"}
    assert expected.get(offers, "unable to get local issuer certificate") in line["reason"]
    assert "_ssl.c" not in line["reason"]


class Exhausted:
    """A listening socket without descriptors for the first so many connections."""

    def __init__(self, real, times):
        self._real, self._times = real, times

    def __getattr__(self, name):
        return getattr(self._real, name)

    def accept(self):
        if self._times:
            self._times -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._real.accept()


async def test_without_descriptors_accepting_pauses_and_an_idle_connection_is_closed(door):
    there = await door(100, wrap=lambda real: Exhausted(real, 0))
    await there.connect(3)
    await until(lambda: len(there.made) == 3)
    there.acceptor._listening._times = 2
    await there.connect()
    await until(lambda: len(there.made) == 4)
    assert [each.transport.is_closing() for each in there.made] == [True, True, False, False]


async def test_an_address_that_cannot_be_bound_leaves_nothing_open():
    with pytest.raises(OSError):
        await bind(asyncio.get_running_loop(), "203.0.113.1", 0)


async def test_all_addresses_of_a_name_have_one_port():
    sockets = await bind(asyncio.get_running_loop(), "localhost", 0)
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for each in sockets:
        each.close()
