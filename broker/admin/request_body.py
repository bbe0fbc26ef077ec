"""Reading the body of a request: bounded per route, and counted in the broker's account of memory while it is used."""

from typing import TYPE_CHECKING, Final

from magnetar.broker.compat.rest_errors import RestError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Receive

    from magnetar.broker.memory_account import MemoryShare

MOST_BODY_BYTES: Final = 256 * 1024
"""Largest body of a route that stores no data: policies, properties, grants."""
_VALUE_FACTOR: Final = 3
"""Memory that the values of a JSON body take, in bytes for each of its bytes: a large body is long texts mostly, or it
is refused before it is decoded (`json_shape`).
"""


async def read_body(request: "Request", most: int | None) -> bytes:
    """The whole body; raises RestError 413 as soon as it is known to have more than `most` bytes (None: no limit)."""
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


def counted(receive: "Receive", most: int, share: "MemoryShare") -> "Receive":
    """The same messages; raises RestError when more than `most` bytes of a body have come (413; below 0: no limit), or
    more than the share has room for (429).
    """
    seen = 0

    async def next_message() -> "Message":
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if 0 <= most < seen:
            raise RestError(413, "the body is too large")
        share.set("body", _VALUE_FACTOR * seen)
        if share.is_over:
            share.refused()
            raise RestError(429, "no memory for the body of another request; see maxClientMemoryInMB")
        return message

    return next_message
