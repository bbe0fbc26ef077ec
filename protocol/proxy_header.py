r"""The PROXY protocol's header, versions 1 and 2: a proxy sends the client's address at the start of a connection.

    v1   "PROXY TCP4 203.0.113.7 198.51.100.2 4711 6650\r\n", at most 107 bytes; "PROXY UNKNOWN ...\r\n"
    v2   12 bytes of signature, version and command, family and protocol, length (2 bytes), addresses, TLVs

Source: https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import Final, NamedTuple

V1_START: Final = b"PROXY "
V2_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
MAX_V1_BYTES: Final = 107
MAX_V2_BYTES: Final = 16 + 2048
"""Addresses take 36 bytes at most (216 of UNIX sockets); TLVs follow, which this broker does not read."""
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_V1: Final = re.compile(rb"PROXY (?:TCP([46]) (\S+) (\S+) (\d{1,5}) (\d{1,5})|UNKNOWN[^\r\n]*)\r\n")
_LARGEST_PORT: Final = 65535


class MalformedProxyHeaderError(Exception):
    """Bytes that begin like a header but are no valid header."""


class ProxyHeader(NamedTuple):
    """The client's address ("" when the proxy names no client, as for its own health check) and port, and the size of
    the header in bytes.
    """

    address: str
    port: int
    size: int


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the header at the beginning of `data`, which are all bytes received so far.

    Returns: None while the header is incomplete (it has at most MAX_V2_BYTES); size 0 for a connection without header.
    Raises: MalformedProxyHeaderError.
    """
    if data.startswith(V1_START):
        return _parse_v1(data)
    if data.startswith(V2_SIGNATURE):
        return _parse_v2(data)
    if V1_START.startswith(data) or V2_SIGNATURE.startswith(data):
        return None
    return ProxyHeader("", 0, 0)


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, MAX_V1_BYTES)
    if end < 0:
        if len(data) >= MAX_V1_BYTES:
            raise MalformedProxyHeaderError("PROXY header of version 1 without an end")
        return None
    found = _V1.fullmatch(data[: end + 2])
    if found is None:
        raise MalformedProxyHeaderError("PROXY header of version 1 that cannot be read")
    family, source, target, *ports = found.groups()
    if family is None:
        return ProxyHeader("", 0, end + 2)
    try:
        kind = ipaddress.IPv4Address if family == b"4" else ipaddress.IPv6Address
        address = kind(source.decode("ascii"))
        kind(target.decode("ascii"))
    except ValueError as e:  # also UnicodeDecodeError
        raise MalformedProxyHeaderError("PROXY header with an address that is none") from e
    if any(int(port) > _LARGEST_PORT for port in ports):
        raise MalformedProxyHeaderError("PROXY header with an invalid port")
    return ProxyHeader(str(address), int(ports[0]), end + 2)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < len(V2_SIGNATURE) + 4:
        return None
    command, family, length = struct.unpack_from(">BBH", data, len(V2_SIGNATURE))
    size = len(V2_SIGNATURE) + 4 + length
    if command not in (_LOCAL, _PROXY):
        raise MalformedProxyHeaderError("PROXY header of an unknown version or command")
    if size > MAX_V2_BYTES:
        raise MalformedProxyHeaderError(f"PROXY header of {size} bytes")
    if len(data) < size:
        return None
    if command == _LOCAL or family not in (_TCP4, _TCP6):
        return ProxyHeader("", 0, size)
    width = 4 if family == _TCP4 else 16
    if length < 2 * width + 4:
        raise MalformedProxyHeaderError("PROXY header too short for its addresses")
    first = len(V2_SIGNATURE) + 4
    address = ipaddress.ip_address(data[first : first + width])
    (port,) = struct.unpack_from(">H", data, first + 2 * width)
    return ProxyHeader(str(address), port, size)
