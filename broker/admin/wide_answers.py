"""Requests about all topics, or all partitions of a topic, and long answers: bounds of the memory that they take.

Two such requests of an address are worked on at a time, and sixteen in all, until their peers have read the answers,
within a minute. Further requests wait, 256 of an address; addresses get their places in turn. The bytes of a long
answer count in the memory account until the peer has read them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from magnetar.broker.admin.responses import JSON, failure, pieces_of
from magnetar.broker.errors import RestError
from magnetar.broker.slices import give_way
from magnetar.console.places import Places, TooManyWaitError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from magnetar.broker.memory_account import MemoryShare

log = structlog.get_logger(__name__)
AT_ONCE_OF_ADDRESS: Final = 2
AT_ONCE: Final = 16
WALKS_AT_ONCE_OF_ADDRESS: Final = 4
CROWDS_AT_ONCE: Final = 2
"""Statistics of a topic with many clients that are made at a time, one of an address: 16,000 consumers and producers
take some 100 MB until they are encoded.
"""
FEW_PARTITIONS: Final = 64
"""A request may work on so many partitions without a place."""
FEW_CLIENTS: Final = 128
"""The statistics of a topic with so many producers, subscriptions and consumers need no place: on hundreds of
connections they take some 200 KB each.
"""
MOST_WAITING: Final = 256
SENT_WITHIN_S: Final = 60.0
PIECE_BYTES: Final = 64 * 1024
_LEAVE_OUT: Final = "leave parts out by excludePublishers or excludeConsumers"
Json = dict[str, Any]


class Bound(NamedTuple):
    """The most bytes of statistics, and the remedy beyond them."""

    most_bytes: int
    remedy: str


OF_A_TOPIC: Final = Bound(32 << 20, _LEAVE_OUT)
OF_PARTITIONS: Final = Bound(128 << 20, f"{_LEAVE_OUT}, or read those of single partitions")
"""Statistics of ten thousand partitions, each with a producer and a consumer, are shorter."""
OF_A_LOG: Final = OF_PARTITIONS._replace(remedy="trim the topic, or delete subscriptions")
OF_LEDGERS: Final = OF_PARTITIONS._replace(remedy="read those of single partitions")


class WideAnswers:
    """Places of the requests of one broker that walk through all topics or partitions: each holds the figures of all of
    them until its peer has read the answer.
    """

    def __init__(self) -> None:
        self.long = LongAnswers()
        self.walks = Walks()
        self.crowds = Walks(FEW_CLIENTS, CROWDS_AT_ONCE, 1, are_queries=True)
        """Places of statistics of topics with many clients. Walks wait for such statistics of other brokers, which
        therefore have places of their own.
        """
        self._places = Places(AT_ONCE, AT_ONCE_OF_ADDRESS, MOST_WAITING)

    async def made(self, request: Request, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return the answer that `make` makes when the request has its place.

        Raises RestError (429) when too many requests wait, ClientDisconnect when the client has left meanwhile.
        """
        address = request.client.host if request.client else ""
        try:
            has_waited = await self._places.take(address)
        except TooManyWaitError:
            raise RestError(429, "too many requests about all topics or partitions wait") from None
        try:
            if has_waited:
                await _require_client(request)
            answer = await make()
        except BaseException:
            self._places.leave(address)
            raise
        return _Sent(answer, lambda: self._places.leave(address))  # type: ignore[return-value]


class Walks:
    """Places of the requests that work on many partitions or clients of a topic, one after the other. Such a request
    goes on when its client has left, so that the number of connections is no bound; a query that waits does not.
    """

    def __init__(
        self,
        few: int = FEW_PARTITIONS,
        at_once: int = AT_ONCE,
        of_address: int = WALKS_AT_ONCE_OF_ADDRESS,
        *,
        are_queries: bool = False,
    ) -> None:
        """few: how many partitions or clients need no place. are_queries: the request of a client that has left while
        it waited ends without work.
        """
        self._few, self._are_queries = few, are_queries
        self._places = Places(at_once, of_address, MOST_WAITING)

    @contextlib.asynccontextmanager
    async def place(self, request: Request, count: int) -> AsyncIterator[None]:
        """Hold a place for the work on so many parts. Raises RestError (429) when too many requests wait,
        ClientDisconnect when the client of a query has left meanwhile.
        """
        if count <= self._few:
            yield
            return
        address = request.client.host if request.client else ""
        try:
            has_waited = await self._places.take(address)
        except TooManyWaitError:
            raise RestError(429, "too many requests about many partitions or clients wait") from None
        try:
            if has_waited and self._are_queries:
                await _require_client(request)
            yield
        finally:
            self._places.leave(address)


class LongAnswers:
    """Encodes statistics whose size the clients of a topic choose: 64 KiB in a turn of the event loop, and one long
    answer at a time, since the memory account counts an answer when it is whole.
    """

    def __init__(self) -> None:
        self._at_work = asyncio.Lock()

    async def json(self, value: Json, bound: Bound = OF_A_TOPIC) -> Response:
        """Return the answer. Raises RestError (429) when it has more bytes than the bound."""
        pieces, parts, size = pieces_of(value), [], 0
        for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size > PIECE_BYTES:
                break
        async with self._at_work if size > PIECE_BYTES else contextlib.nullcontext():
            since = 0
            for piece in pieces:
                parts.append(piece)
                size += len(piece)
                since += len(piece)
                if since > PIECE_BYTES:
                    since = 0
                    await give_way()
                if size > bound.most_bytes:
                    raise RestError(429, f"more than {bound.most_bytes >> 20} MiB of statistics: {bound.remedy}")
            return Response(b"".join(parts), media_type=JSON)


async def _require_client(request: Request) -> None:
    if await request.is_disconnected():
        raise ClientDisconnect


class _Sent:
    """An answer that gives up its place when the peer has read it, or has not read it in time."""

    def __init__(self, answer: ASGIApp, leave: Callable[[], None]) -> None:
        self._answer = answer
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(SENT_WITHIN_S):
                await self._answer(scope, receive, send)
        except TimeoutError:  # the connection ends without the rest
            log.info("request.not_read", path=scope["path"])
        finally:
            self._leave()


def paced(scope: Scope, receive: Receive, send: Send, share: MemoryShare, most_bytes: int) -> Send:
    """Wrap `send`: a long body goes in pieces, each when the peer has read pieces before it, and counts in the share
    until then, `most_bytes` at most. While the share is over its limit, 429 takes the place of a long answer, but not
    of the answer to a change, which is made already, nor of a stream, which has a single part in memory: metrics must
    show that the memory is short.
    """
    start: Message | None = None
    refused = False
    is_query = scope["method"] in ("GET", "HEAD")

    async def next_message(message: Message) -> None:
        nonlocal start, refused
        if message["type"] == "http.response.start":
            start = message
            return
        if refused:
            return
        body = message.get("body", b"")
        share.set("answer", min(len(body), most_bytes) if len(body) > PIECE_BYTES else 0)
        if start is not None:
            is_whole = not message.get("more_body", False)
            refused = is_query and is_whole and len(body) > PIECE_BYTES and share.is_over
            if refused:
                share.refused()
                await failure(429, "no memory for another answer; see maxClientMemoryInMB")(scope, receive, send)
                return
            await send(start)
            start = None
        rest = memoryview(body)
        while len(rest) > PIECE_BYTES:
            await send({"type": "http.response.body", "body": bytes(rest[:PIECE_BYTES]), "more_body": True})
            await give_way()  # for the pause of a full socket
            rest = rest[PIECE_BYTES:]
        await send({**message, "body": bytes(rest)})

    return next_message
