"""Calls of the REST API in the same process: one ASGI request each, without a socket."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from starlette.types import ASGIApp, Message, Scope

__all__ = ["Answer", "InnerCalls"]

MOST_ANSWER_BYTES: Final = 16 << 20
"""A longer answer is cut off and counts as an error: a page could show only a part of it."""


@dataclass(slots=True)
class Answer:
    """An answer of the REST API."""

    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return 200 <= self.status < 300

    def json(self, default: Any = None) -> Any:
        """The value of a successful answer; `default` for any other answer."""
        if not self.ok:
            return default
        try:
            return json.loads(self.body)
        except ValueError:
            return default

    @property
    def reason(self) -> str:
        """The refusal in words: the reason of the JSON body, or the status."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return f"HTTP status {self.status}"
        reason = found.get("reason") if isinstance(found, dict) else None
        return str(reason) if reason else f"HTTP status {self.status}"


class InnerCalls:
    """The REST API for one visitor.

    outer: scope of the visitor's request; its client address, scheme and TLS certificate go along.
    authorization: value of the header of that name; None for a visitor without credentials.
    """

    def __init__(self, rest: ASGIApp, outer: Scope, authorization: str | None) -> None:
        self._rest, self._outer = rest, outer
        self._headers = [(b"accept", b"application/json"), (b"content-type", b"application/json")]
        if authorization is not None:
            self._headers.append((b"authorization", authorization.encode("latin-1", "replace")))

    async def get(self, path: str) -> Answer:
        """path: encoded, with its query."""
        return await self.call("GET", path)

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        """body: a value that is sent as JSON; None sends no body."""
        payload = b"" if body is None else json.dumps(body).encode()
        raw, _, query = path.partition("?")
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": self._outer.get("scheme", "http"),
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [*self._headers, (b"content-length", str(len(payload)).encode())],
            "client": self._outer.get("client"),
            "server": self._outer.get("server"),
            "extensions": self._outer.get("extensions", {}),
            "state": {},
        }
        return await _run(self._rest, scope, payload)


async def _run(rest: ASGIApp, scope: Scope, payload: bytes) -> Answer:
    answer, parts, sent = Answer(), bytearray(), False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()  # the visitor stays: a stream ends with its connection
        sent = True
        return {"type": "http.request", "body": payload, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
            answer.headers = {name.lower(): value for name, value in pairs}
        elif message["type"] == "http.response.body" and len(parts) <= MOST_ANSWER_BYTES:
            parts.extend(message.get("body", b""))

    await rest(scope, receive, send)
    if len(parts) > MOST_ANSWER_BYTES:
        return Answer(507, {}, b'{"reason": "the answer is too large for a page"}')
    answer.body = bytes(parts)
    return answer
