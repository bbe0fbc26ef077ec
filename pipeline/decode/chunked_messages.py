"""Chunked messages: payloads that a producer cut into several entries, joined again (PIP-37).

Each chunk carries the message's uuid, its own number and how many there are. Chunks of several messages may stand
between each other. As in official consumers: chunk 0 begins (or begins anew), a number that was seen is a repetition
and left out, a gap makes the message incomplete. The joined message stands at the position of its last chunk.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_PENDING_MESSAGES = 100
MAX_PENDING_BYTES = 256 * 1024 * 1024
_MAX_REPORTED = 1000


class Chunk(NamedTuple):
    """One entry of a chunked message."""

    uuid: bytes
    number: int
    total: int
    ledger_id: int
    entry_id: int
    payload: bytes
    encrypted: bool = False


@dataclass(slots=True)
class _Pending:
    ledger_id: int
    entry_id: int
    total: int
    size_bytes: int = 0
    encrypted: int = 0
    parts: list[bytes] = field(default_factory=list)


class JoinedMessage(NamedTuple):
    """The whole payload, the position of the first chunk, and the number of chunks that stayed encrypted."""

    payload: bytes
    ledger_id: int
    entry_id: int
    encrypted: int
    total: int


class Incomplete(NamedTuple):
    """A message that was given up: the position of its chunk 0 (if that was not seen: of the chunk that revealed the
    loss), and the reason.
    """

    ledger_id: int
    entry_id: int
    detail: str


class ChunkedMessages:
    """Chunks of unfinished messages, across calls; bounded in messages and bytes.

    When a bound is passed, the oldest unfinished message is given up, and so is every message that cannot become
    complete any more. `take_given_up` returns these messages, each once, however many of its chunks follow.
    """

    def __init__(
        self, *, max_messages: int = MAX_PENDING_MESSAGES, max_bytes: int = MAX_PENDING_BYTES, max_message_bytes: int
    ) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_message_bytes = max_message_bytes
        self._pending: OrderedDict[bytes, _Pending] = OrderedDict()
        self._bytes = 0
        self._given_up: list[Incomplete] = []
        self._reported: OrderedDict[bytes, None] = OrderedDict()

    def misses_beginning(self, chunk: Chunk) -> bool:
        """Whether earlier chunks of this message were never seen, or were dropped."""
        return chunk.number > 0 and chunk.uuid not in self._pending

    def add(self, chunk: Chunk) -> JoinedMessage | None:
        """Take one chunk; returns the joined message when the chunk completes it."""
        if chunk.number == 0:
            self._begin(chunk)
        pending = self._pending.get(chunk.uuid)
        if pending is None:
            if chunk.number == chunk.total - 1 and chunk.uuid not in self._reported:
                self._give_up(chunk, "the chunks before the last are missing")
            return None
        if chunk.number < len(pending.parts):
            return None
        if chunk.number > len(pending.parts) or chunk.total != pending.total:
            self._drop(chunk.uuid, f"chunk {chunk.number} of {chunk.total} follows chunk {len(pending.parts) - 1}")
            return None
        pending.parts.append(chunk.payload)
        pending.encrypted += chunk.encrypted
        pending.size_bytes += len(chunk.payload)
        self._bytes += len(chunk.payload)
        if pending.size_bytes > self._max_message_bytes:
            self._drop(chunk.uuid, f"more than {self._max_message_bytes} bytes")
            return None
        if chunk.number == chunk.total - 1:
            del self._pending[chunk.uuid]
            self._bytes -= pending.size_bytes
            whole = b"".join(pending.parts)
            return JoinedMessage(whole, pending.ledger_id, pending.entry_id, pending.encrypted, pending.total)
        self._keep_bounds(chunk.uuid)
        return None

    def take_given_up(self) -> list[Incomplete]:
        """The messages given up since the last call."""
        taken, self._given_up = self._given_up, []
        return taken

    def unfinished(self) -> list[Incomplete]:
        """Messages whose last chunk was not seen yet."""
        return [
            Incomplete(p.ledger_id, p.entry_id, f"{len(p.parts)} of {p.total} chunks so far")
            for p in self._pending.values()
        ]

    def clear(self) -> None:
        self._pending.clear()
        self._bytes = 0

    def _begin(self, chunk: Chunk) -> None:
        """Begin a message with its chunk 0. A repeated chunk 0 drops earlier chunks and begins anew."""
        if chunk.uuid in self._pending:
            self._forget(chunk.uuid)
        self._reported.pop(chunk.uuid, None)
        self._pending[chunk.uuid] = _Pending(chunk.ledger_id, chunk.entry_id, chunk.total)

    def _keep_bounds(self, newest: bytes) -> None:
        while len(self._pending) > self._max_messages or self._bytes > self._max_bytes:
            oldest = next(iter(self._pending))
            if oldest == newest and len(self._pending) == 1:
                return
            self._drop(oldest, "too many unfinished chunked messages at a time")

    def _drop(self, uuid: bytes, why: str) -> None:
        pending = self._pending[uuid]
        self._forget(uuid)
        self._give_up(Chunk(uuid, 0, pending.total, pending.ledger_id, pending.entry_id, b""), why)

    def _forget(self, uuid: bytes) -> None:
        self._bytes -= self._pending.pop(uuid).size_bytes

    def _give_up(self, chunk: Chunk, why: str) -> None:
        self._given_up.append(Incomplete(chunk.ledger_id, chunk.entry_id, why))
        self._reported[chunk.uuid] = None
        if len(self._reported) > _MAX_REPORTED:
            self._reported.popitem(last=False)
