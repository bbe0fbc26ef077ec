"""The PROXY header: every version, every cut, and bytes that are no such header."""

import contextlib
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol.proxy_header import (
    MAX_V1_BYTES,
    MAX_V2_BYTES,
    V1_START,
    V2_SIGNATURE,
    MalformedProxyHeaderError,
    ProxyHeader,
    parse_proxy_header,
)


def v2(command, family, body):
    return V2_SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


FOUR = socket.inet_aton("203.0.113.9") + socket.inet_aton("198.51.100.2") + struct.pack(">HH", 4712, 6650)
SIX = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::9")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack(">HH", 4713, 6650)
)
GOOD = {
    b"PROXY TCP4 203.0.113.7 198.51.100.2 4711 6650\r\n": ("203.0.113.7", 4711),
    b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 6650\r\n": ("2001:db8::7", 4711),
    b"PROXY UNKNOWN\r\n": ("", 0),
    b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n": ("", 0),
    v2(0x21, 0x11, FOUR): ("203.0.113.9", 4712),
    v2(0x21, 0x11, FOUR + b"\x03\x00\x04abcd"): ("203.0.113.9", 4712),
    v2(0x21, 0x21, SIX): ("2001:db8::9", 4713),
    v2(0x20, 0x00, b""): ("", 0),
    v2(0x21, 0x31, bytes(216)): ("", 0),
}


@pytest.mark.parametrize(("header", "client"), GOOD.items())
@pytest.mark.parametrize("behind", [b"", b"\x00\x00\x00\x05", b"PROXY UNKNOWN\r\n"])
def test_the_client_and_where_its_bytes_begin(header, client, behind):
    assert parse_proxy_header(header + behind) == ProxyHeader(*client, len(header))
    for end in range(len(header)):
        assert parse_proxy_header(header[:end]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY nonsense\r\n",
        b"PROXY TCP4 203.0.113.7 198.51.100.2 99999 6650\r\n",
        b"PROXY TCP4 2001:db8::7 198.51.100.2 1 6650\r\n",
        b"PROXY TCP6 203.0.113.7 2001:db8::7 1 6650\r\n",
        b"PROXY TCP4 \xff 198.51.100.2 1 6650\r\n",
        b"PROXY TCP4 203.0.113.7\r\n",
        b"PROXY " + b"x" * 200,
        v2(0x31, 0x11, FOUR),
        v2(0x22, 0x11, FOUR),
        v2(0x21, 0x11, FOUR[:-1]),
        v2(0x21, 0x21, FOUR),
        v2(0x21, 0x11, bytes(MAX_V2_BYTES)),
    ],
)
def test_bytes_that_only_begin_like_a_header(data):
    with pytest.raises(MalformedProxyHeaderError):
        parse_proxy_header(data)


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x0a", b"GET / HTTP/1.1", b"PROXX TCP4", b"\r\n\r\n\x01"])
def test_a_connection_without_a_header(data):
    assert parse_proxy_header(data) == ProxyHeader("", 0, 0)


@given(st.sampled_from([b"", V1_START, V2_SIGNATURE, V2_SIGNATURE + b"\x21\x11"]), st.binary(max_size=3000))
def test_any_bytes_are_judged_within_the_bound(start, rest):
    data = start + rest
    with contextlib.suppress(MalformedProxyHeaderError):
        found = parse_proxy_header(data)
        if found is None:
            assert len(data) < max(MAX_V1_BYTES, MAX_V2_BYTES)
        else:
            assert 0 <= found.size <= len(data)
