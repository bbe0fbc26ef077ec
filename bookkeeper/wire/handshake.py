"""Messages of protocol V3 (protobuf): AUTH and START_TLS before the first request of a connection, and GET_BOOKIE_INFO
on a connection of its own. Pure.

After AUTH and START_TLS a bookie accepts V2 requests on the same connection. Every message has a header {1: version,
2: operation, 3: transaction}; an answer has a status (2), and its content in the field of the request's number.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import WireError
from magnetar.protocol.varints import varint

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "FREE_SPACE_REQUEST",
    "MAX_HANDSHAKE_BYTES",
    "SASL_PLUGIN",
    "START_TLS_REQUEST",
    "auth_answer",
    "auth_request",
    "free_space",
    "start_tls_status",
]

MAX_HANDSHAKE_BYTES = 1 << 16
"""Largest frame that the client accepts from a bookie during the handshake."""
SASL_PLUGIN = b"sasl"
_U32 = struct.Struct(">I")
_HEADER, _STATUS, _AUTH, _BOOKIE_INFO, _START_TLS = 1, 2, 102, 105, 106
"""Numbers of the fields of requests and answers."""
_OPERATIONS = {_AUTH: 5, _BOOKIE_INFO: 8, _START_TLS: 9}
_FREE_DISK_SPACE = 2
"""A flag of the request for the bookie's information."""
_UNAUTHORIZED = 502
_DISABLED = b"AuthDisabledPlugin"
"""The authentication plugin in the answer of a bookie that demands no credentials."""


def start_tls_status(frame: bytes) -> int:
    """Return the status in the answer to START_TLS; 0 means success. Raises WireError."""
    return _status(dict(_fields(frame)))


def auth_request(payload: bytes) -> bytes:
    """Return an AUTH frame of the SASL plugin, its length field included."""
    return _request(_AUTH, _bytes_field(1, SASL_PLUGIN) + _bytes_field(2, payload))


def auth_answer(frame: bytes) -> bytes | None:
    """Return the payload of the bookie's AUTH frame (without its length); None if the bookie demands no credentials.

    Raises WireError.
    """
    found = dict(_fields(frame))
    status, message = _status(found), found.get(_AUTH)
    if status:
        reason = "refuses the credentials" if status == _UNAUTHORIZED else f"answers AUTH with status {status}"
        raise WireError(f"the bookie {reason}")
    if not isinstance(message, bytes):
        raise WireError("a bookie answered AUTH with another frame")
    parts = dict(_fields(message))
    plugin, payload = parts.get(1, b""), parts.get(2, b"")
    if plugin == _DISABLED:
        return None
    if plugin != SASL_PLUGIN or not isinstance(payload, bytes):
        raise WireError(f"a bookie authenticates by {plugin!r}, this client by {SASL_PLUGIN!r}")
    return payload


def free_space(frame: bytes) -> int:
    """Return the free bytes of the bookie's ledger disks from its answer. Raises WireError."""
    found = dict(_fields(frame))
    status, message = _status(found), found.get(_BOOKIE_INFO)
    if status or not isinstance(message, bytes):
        raise WireError(f"the bookie does not tell its free space (status {status})")
    free = dict(_fields(message)).get(3)
    if not isinstance(free, int) or free >= 1 << 63:
        raise WireError("a bookie answered without its free space")
    return free


def _request(number: int, content: bytes) -> bytes:
    header = bytes([0x08, 3, 0x10, _OPERATIONS[number], 0x18, 1])
    message = _bytes_field(_HEADER, header) + _bytes_field(number, content)
    return _U32.pack(len(message)) + message


def _status(found: dict[int, int | bytes]) -> int:
    status = found.get(_STATUS)
    if not isinstance(status, int):
        raise WireError("a bookie answered a handshake without a status")
    return status


def _bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the field numbers and values of a protobuf message: ints and bytes. Raises WireError for other types."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if key & 7 == 2:
            end = at + value
            if end > len(data):
                raise WireError("a field ends behind its message")
            yield key >> 3, data[at:end]
            at = end
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise WireError(f"a field of kind {key & 7} in a handshake")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise WireError("a message ends inside a number")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise WireError("a number of more than ten bytes")


START_TLS_REQUEST = _request(_START_TLS, b"")
FREE_SPACE_REQUEST = _request(_BOOKIE_INFO, bytes([0x08, _FREE_DISK_SPACE]))
