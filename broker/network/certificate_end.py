"""The end of the validity of a certificate, which the context of the TLS library does not tell."""

from __future__ import annotations

import datetime as dt
import re
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["certificate_end_s"]

_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION_TAG: Final = 0xA0
_UTC_TIME_TAG: Final = 0x17
_LONG_LENGTH: Final = 0x80


def certificate_end_s(path: Path) -> float | None:
    """Return the end of the first certificate of a PEM file, in seconds since 1970; None for another file."""
    try:
        block = _BLOCK.search(path.read_text(encoding="ascii", errors="replace"))
        return None if block is None else _end_s(ssl.PEM_cert_to_DER_cert(block[0]))
    except (OSError, ValueError, IndexError):
        return None


def _end_s(der: bytes) -> float:
    """Walk to the second time of the validity: Certificate, TBSCertificate, and the fields before the validity."""
    certificate, _ = _element(der, 0)
    at, _ = _element(der, certificate)
    if der[at] == _VERSION_TAG:
        at = _element(der, at)[1]
    for _ in ("serial number", "algorithm", "issuer"):
        at = _element(der, at)[1]
    validity, _ = _element(der, at)
    at = _element(der, validity)[1]
    begin, end = _element(der, at)
    text = der[begin:end].decode("ascii")
    if der[at] == _UTC_TIME_TAG:  # years of two digits from 1950 on (RFC 5280)
        text = ("19" if text >= "5" else "20") + text
    return dt.datetime.strptime(text, "%Y%m%d%H%M%S%z").timestamp()


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Begin and end of the content of the element at this place."""
    length, begin = der[at + 1], at + 2
    if length >= _LONG_LENGTH:
        count = length - _LONG_LENGTH
        length, begin = int.from_bytes(der[begin : begin + count], "big"), begin + count
    return begin, begin + length
