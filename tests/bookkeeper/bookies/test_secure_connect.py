"""Bookies that violate the handshake; tests/cluster/test_bookie_security.py has real bookies."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from magnetar.bookkeeper.bookies import secure_connect
from magnetar.bookkeeper.bookies.secure_connect import SecureConnect
from magnetar.bookkeeper.bookies.tls import BookieSecurity, BookieTls
from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials

TLS = BookieSecurity(tls=BookieTls())
LOGIN = BookieSecurity(credentials=DigestCredentials("magnetar", "secret"))
HEADER = bytes.fromhex("0a06080310091801")
DISABLED = HEADER + bytes.fromhex("1000b206160a12") + b"AuthDisabledPlugin" + b"\x12\x00"


def frame(body):
    return len(body).to_bytes(4, "big") + body


@contextlib.asynccontextmanager
async def bookie(*answers):
    """Sends the next answer after each read; closes the connection for an answer of None."""

    async def serve(reader, writer):
        for answer in answers:
            await reader.read(1 << 16)
            if answer is None:
                break
            writer.write(answer)
        else:
            await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield BookieAddress(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        await asyncio.wait_for(ended.wait(), 30)


@pytest.mark.parametrize(
    ("security", "answers", "reason"),
    [
        (TLS, [frame(HEADER + b"\x10\xf5\x03")], "does not offer TLS"),
        (TLS, [None], "closed the connection during the handshake"),
        (TLS, [b"\xff\xff\xff\xff"], "a frame of 4294967295 bytes"),
        (TLS, [frame(b"\x0a")], "ends inside a number"),
        (LOGIN, [frame(HEADER + b"\x10\xf6\x03")], "refuses the credentials"),
        (LOGIN, [frame(HEADER + b"\x10\x00")], "answered AUTH with another frame"),
        (LOGIN, [frame(DISABLED) + b"x"], "more than its handshake"),
    ],
)
async def test_a_bookie_that_refuses_or_errs(security, answers, reason):
    async with bookie(*answers) as address:
        with pytest.raises(OSError, match=reason):
            await SecureConnect(security)(asyncio.Protocol, address)


async def test_a_bookie_that_does_not_answer_the_credentials(monkeypatch):
    monkeypatch.setattr(secure_connect, "_ANSWER_S", 0.05)
    challenge = b'nonce="n",qop="auth"'
    content = b"\x0a\x04sasl\x12" + bytes([len(challenge)]) + challenge
    async with bookie(frame(HEADER + b"\x10\x00\xb2\x06" + bytes([len(content)]) + content)) as address:
        with pytest.raises(OSError, match="refuses the credentials"):
            await SecureConnect(LOGIN)(asyncio.Protocol, address)


async def test_a_bookie_that_wants_no_credentials_is_connected():
    class Received(asyncio.Protocol):
        transport = None

        def connection_made(self, transport):
            self.transport = transport

    async with bookie(frame(DISABLED)) as address:
        connection = await SecureConnect(LOGIN)(Received, address)
        assert connection.transport.get_protocol() is connection
        connection.transport.abort()


def info(status, content):
    body = bytes.fromhex("0a06080310081801") + bytes([0x10]) + status
    return frame(body + (b"" if content is None else b"\xca\x06" + bytes([len(content)]) + content))


async def test_the_free_space_of_a_bookie():
    async with bookie(info(b"\x00", b"\x08\x00\x10\x64\x18\x80\x80\x01")) as address:
        assert await SecureConnect(BookieSecurity()).free_space(address) == 1 << 14


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (info(b"\xf5\x03", None), "does not tell its free space .status 501"),
        (info(b"\x00", None), "does not tell its free space"),
        (info(b"\x00", b"\x08\x00\x10\x64"), "without its free space"),
        (info(b"\x00", b"\x18" + b"\xff" * 9 + b"\x01"), "without its free space"),
        (None, "closed the connection"),
    ],
)
async def test_a_bookie_that_does_not_tell_its_free_space(answer, reason):
    async with bookie(answer) as address:
        with pytest.raises(OSError, match=reason):
            await SecureConnect(BookieSecurity()).free_space(address)
