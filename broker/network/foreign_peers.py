"""The probable protocol of a peer that does not speak Pulsar's, from its first bytes. Pure.

Pulsar frame    u32 size | u32 size of the command | ...
Kafka request   i32 size | i16 API key | i16 API version | i32 correlation id | ...
HTTP            a method in letters
TLS             0x16, 0x03, minor version
"""

from __future__ import annotations

import re
from typing import Final

_CUT_OFF: Final = re.compile(r"command of (\d+) bytes in a frame of (\d+)")
_TOO_LARGE: Final = re.compile(r"frame of (\d+) bytes")
_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")
_MOST_KAFKA_KEYS: Final = 100
_MOST_KAFKA_VERSIONS: Final = 30


def first_bytes(problem: str) -> bytes:
    """Return the four or eight bytes that an error text of the frame cutter describes; empty for other texts."""
    found = _CUT_OFF.match(problem)
    if found is not None:
        return int(found[2]).to_bytes(4, "big") + int(found[1]).to_bytes(4, "big")
    found = _TOO_LARGE.match(problem)
    return int(found[1]).to_bytes(4, "big") if found is not None else b""


def hint(problem: str) -> str | None:
    """Return the hint for the operator about a peer whose first frame is invalid; None when no protocol fits."""
    start = first_bytes(problem)
    if start[:4] in _METHODS:
        return "an HTTP client at the broker port: the admin API has the port webServicePort"
    if len(start) >= 3 and start[0] == 0x16 and start[1] == 0x03:
        return "a TLS client at the port without TLS: give pulsar:// without +ssl, or brokerServicePortTls"
    if len(start) == 8:
        key, version = int.from_bytes(start[4:6], "big"), int.from_bytes(start[6:8], "big")
        if key < _MOST_KAFKA_KEYS and version < _MOST_KAFKA_VERSIONS and (key or version):
            return "a Kafka client: this port speaks Pulsar's protocol; `magnetar kafka import` takes Kafka log files"
    return None
