"""Real sockets of the loopback, and the first bytes that a TLS client sends."""

import asyncio
import socket
import ssl

import pytest

from magnetar.broker.network.tls_greeting import (
    SplitGreetingError,
    greeting_bytes,
    wait_greeting,
)


def client_hello():
    """The first message of a client, from OpenSSL."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = client_hello()


@pytest.mark.parametrize(
    ("head", "needed"),
    [
        (b"", 9),
        (HELLO[:8], 9),
        (HELLO[:9], len(HELLO)),
        (b"GET / HTTP/1.1", 14),  # not TLS
        (b"\x16\x03\x01\xff\xff\x01\x00\x00\x10", 9),  # a record that OpenSSL refuses
        (b"\x16\x03\x01\x00\x20\x02\x00\x00\x1c", 9),  # not the message of a client
    ],
    ids=lambda each: len(each) if isinstance(each, bytes) else each,
)
def test_the_handshake_waits_for_a_whole_client_hello_alone(head, needed):
    assert greeting_bytes(head) == needed


def test_a_client_hello_in_several_records_is_refused():
    with pytest.raises(SplitGreetingError):
        greeting_bytes(b"\x16\x03\x01\x00\x20\x01\x00\x00\x20")


@pytest.fixture
def pair():
    ours, theirs = socket.create_server(("127.0.0.1", 0)), socket.socket()
    theirs.connect(ours.getsockname())
    accepted, _ = ours.accept()
    accepted.setblocking(False)
    ours.close()
    yield accepted, theirs
    accepted.close()
    theirs.close()


async def turns_of_the_loop(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_wait_ends_with_the_last_byte_of_the_client_hello(pair, monkeypatch):
    accepted, theirs = pair
    looks = 0

    class Counted:
        def __getattr__(self, name):
            return getattr(accepted, name)

        def recv(self, *arguments):
            nonlocal looks
            looks += 1
            return accepted.recv(*arguments)

    waiting = asyncio.ensure_future(wait_greeting(asyncio.get_running_loop(), Counted()))
    for part in (HELLO[:3], HELLO[3:9], HELLO[9:-1]):
        theirs.sendall(part)
        await turns_of_the_loop()
        assert not waiting.done()
    assert looks <= 3, "the loop spins while bytes are missing"
    theirs.sendall(HELLO[-1:])
    await asyncio.wait_for(waiting, 10)
    assert accepted.recv(1 << 16) == HELLO


@pytest.mark.parametrize("sent", [b"", HELLO[:3], HELLO[:100], b"GET / HTTP/1.1\r\n\r\n"], ids=len)
async def test_the_wait_ends_with_the_connection_and_for_other_protocols(pair, sent):
    accepted, theirs = pair
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    await asyncio.wait_for(wait_greeting(asyncio.get_running_loop(), accepted), 10)
