"""Digests of entries, and the keys made of a ledger's password (BookKeeper ``proto/checksum``).

A digest covers the entry's first 32 bytes and then the payload; it does not cover itself.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
import zlib
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

__all__ = ["MASTER_KEY_BYTES", "DigestType", "Digester", "master_key"]

MASTER_KEY_BYTES = 20
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")


class DigestType(enum.IntEnum):
    """The digest types by their number in the ledger's metadata."""

    CRC32 = 1
    HMAC = 2
    """HMAC-SHA1 with a key derived from the password: the only digest that a client without the password cannot
    forge.
    """
    CRC32C = 3
    """Pulsar's default."""
    DUMMY = 4
    """No digest: readers do not detect damage."""


def master_key(password: bytes) -> bytes:
    """Return the master key, 20 bytes. The client sends it with every add and every fencing read; the bookie stores the
    key of the ledger's first add.
    """
    return hashlib.sha1(b"ledger" + password).digest()  # noqa: S324 - BookKeeper's protocol


class Digester:
    """Computes the digests of one ledger's entries by ``digest(header, payload)``; a digest has ``size`` bytes."""

    __slots__ = ("digest", "size", "type")

    def __init__(self, digest_type: DigestType, password: bytes) -> None:
        self.type = digest_type
        self.size, self.digest = _MAKERS[digest_type](password)


def _crc32(_password: bytes) -> tuple[int, Callable[[Buffer, Buffer], bytes]]:
    return 8, lambda header, payload: _U64.pack(zlib.crc32(payload, zlib.crc32(header)))


def _crc32c(_password: bytes) -> tuple[int, Callable[[Buffer, Buffer], bytes]]:
    return 4, lambda header, payload: _U32.pack(crc32c(payload, crc32c(header)))


def _hmac(password: bytes) -> tuple[int, Callable[[Buffer, Buffer], bytes]]:
    keyed = hmac.new(hashlib.sha1(b"mac" + password).digest(), digestmod=hashlib.sha1)  # noqa: S324 - BookKeeper's

    def digest(header: Buffer, payload: Buffer) -> bytes:
        one = keyed.copy()
        one.update(header)
        one.update(payload)
        return one.digest()

    return 20, digest


def _dummy(_password: bytes) -> tuple[int, Callable[[Buffer, Buffer], bytes]]:
    return 0, lambda _header, _payload: b""


_MAKERS = {
    DigestType.CRC32: _crc32,
    DigestType.HMAC: _hmac,
    DigestType.CRC32C: _crc32c,
    DigestType.DUMMY: _dummy,
}
