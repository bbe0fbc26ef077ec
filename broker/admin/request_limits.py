"""Limits of a request: its rate, the bytes of its body, the number of its values.

A JSON body of many small values takes twenty times its size in memory when decoded, and time in proportion. So a large
body passes only when it consists mostly of long texts: a few payloads of megabytes, not a million empty payloads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Self

from magnetar.broker.errors import RestError
from magnetar.broker.slices import give_way

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import Message, Receive

    from magnetar.broker.memory_account import MemoryShare
    from magnetar.broker.settings import Settings


MOST_BODY_BYTES: Final = 256 * 1024
"""Largest body of a route that stores no data: policies, properties, grants."""
_VALUE_FACTOR: Final = 3
"""Memory that the values of a JSON body take, in bytes for each byte of the body. The factor holds for large bodies as
they consist mostly of long texts: `check_shape` refuses other large bodies before they are decoded.
"""
PLAIN_BYTES: Final = 1 << 20
"""`check_shape` passes a body up to this size without a check."""
MAX_TEXTS: Final = 200_000
MAX_OTHER_BYTES: Final = 1 << 20
"""Bound of the bytes outside texts: brackets, commas, numbers."""
MAX_VALUES: Final = 32_768
"""Most values of a body that is decoded in one turn of the event loop."""
_TEXT: Final = re.compile(rb'"[^"]*"')
"""A text without escapes."""
_SLICE_TEXTS: Final = 5000
_SLICE_BYTES: Final = 128 * 1024


class RequestRate:
    """A token bucket for the requests of one second, refilled steadily; pure except for its clock."""

    def __init__(self, per_second: float, monotonic: Callable[[], float]) -> None:
        self._per_second = per_second
        self._most = max(per_second, 1.0)
        self._monotonic = monotonic
        self._tokens = self._most
        self._at_s = monotonic()

    @classmethod
    def of(cls, settings: Settings, monotonic: Callable[[], float]) -> Self | None:
        """The rate of the settings; None when it is off."""
        return cls(settings.http_requests_max_per_second, monotonic) if settings.http_requests_limit_enabled else None

    def admits(self) -> bool:
        """Count a request; return False for a request beyond the limit."""
        now_s = self._monotonic()
        self._tokens = min(self._most, self._tokens + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def check_shape(raw: bytes) -> None:
    """Raise 413 for a large body of too many texts, or too many bytes outside texts. Yields to the loop."""
    if len(raw) <= PLAIN_BYTES:
        return
    texts = inside = 0
    rest = await _without_escapes(raw)
    for found in _TEXT.finditer(rest):
        texts += 1
        inside += found.end() - found.start()
        if texts > MAX_TEXTS:
            break
        if texts % _SLICE_TEXTS == 0:
            await give_way()
    if texts > MAX_TEXTS or len(rest) - inside > MAX_OTHER_BYTES:
        raise RestError(413, "the body is made of too many values")


async def check_values(raw: bytes) -> None:
    """Raise 413 for a body with more than MAX_VALUES values, estimated by the commas outside texts. Yields to the
    loop.
    """
    if raw.count(b",") < MAX_VALUES:
        return
    rest = await _without_escapes(raw)
    commas = rest.count(b",")
    for number, found in enumerate(_TEXT.finditer(rest), 1):
        commas -= found[0].count(b",")
        if commas < MAX_VALUES:
            return
        if number % _SLICE_TEXTS == 0:
            await give_way()
    raise RestError(413, f"the body has more than {MAX_VALUES} values")


async def _without_escapes(raw: bytes) -> bytes:
    """The body without escaped quotes and backslashes, so that each quote begins or ends a text. An expression that
    passes over escapes takes 0.1 s for a text of a million of them, in a single call.
    """
    if b"\\" not in raw:
        return raw
    parts, start = [], 0
    while start < len(raw):
        part = raw[start : start + _SLICE_BYTES]
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # the next byte belongs to the escape
            part = raw[start : start + _SLICE_BYTES + 1]
        parts.append(part.replace(b"\\\\", b"").replace(b'\\"', b""))
        start += len(part)
        await give_way()
    return b"".join(parts)


async def read_body(request: Request, most: int | None) -> bytes:
    """Read the body; raises RestError 413 once the header or the bytes read exceed `most` bytes (None: no limit)."""
    if (
        most is not None
        and (announced := request.headers.get("content-length", "")).isdigit()
        and int(announced) > most
    ):
        raise _too_large(most)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if most is not None and size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: int) -> RestError:
    return RestError(413, f"the body is too large: at most {most} bytes are taken here")


def counted(receive: Receive, most: int, share: MemoryShare) -> Receive:
    """Wrap `receive` so that it counts the bytes of the body. The wrapper raises RestError 413 beyond `most` bytes
    (below 0: no limit), and 429 when the memory share has no room for the values of the body.
    """
    seen = 0

    async def next_message() -> Message:
        nonlocal seen
        message = await receive()
        size = len(message.get("body", b""))
        if not size:  # no body, its end, or the end of the connection: also behind the start of an answer
            return message
        seen += size
        if 0 <= most < seen:
            raise RestError(413, "the body is too large")
        share.set("body", _VALUE_FACTOR * seen)
        if share.is_over:
            share.refused()
            raise RestError(429, "no memory for the body of another request; see maxClientMemoryInMB")
        return message

    return next_message
