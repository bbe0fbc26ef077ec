"""A connection to a bookie. All ledgers share the connection and pipeline their requests; the connection passes each
answer to the caller of its request. Use it on the event loop only.

Protocol V2 has no transaction ids. Each ledger has one sink, which receives the answers to the ledger's adds. Only one
read of the same ledger and entry is under way at a time: a bookie answers reads of different priority in any order, and
a fencing read must not take the answer of a plain read. So a read whose caller has given up stays under way, and keeps
its place among ``max_reads_per_bookie``, until the bookie answers. A bookie that answers other requests, but not this
read, loses the connection after ``unanswered_timeout_s``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from magnetar.bookkeeper.deadlines import Deadline
from magnetar.bookkeeper.errors import BookieUnreachableError, WireError
from magnetar.bookkeeper.wire.frames import (
    DO_FENCING,
    Added,
    AddFailed,
    AnswerDecoder,
    BatchAnswer,
    ReadAnswer,
    batch_read_request,
    read_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.bookkeeper.options import ClientOptions
    from magnetar.bookkeeper.wire.frames import Answer

__all__ = ["AddSink", "BookieConnection"]

T = TypeVar("T")


class AddSink(Protocol):
    """The ledger that adds entries under its id over this connection. The connection calls these methods."""

    def on_added(self, connection: BookieConnection, first: int, last: int) -> None:
        """The bookie has entries ``first .. last`` on its disk."""
        ...

    def on_add_failed(self, connection: BookieConnection, entry_id: int, code: int) -> None: ...

    def on_connection_lost(self, connection: BookieConnection, error: BookieUnreachableError) -> None: ...

    def on_writable(self, connection: BookieConnection) -> None:
        """The write buffer has room again."""
        ...


class _Read:
    """A read that waits for its turn or for its answer."""

    __slots__ = ("answer", "flags", "key", "sent_s")

    def __init__(self, flags: int, key: bytes, answer: asyncio.Future[ReadAnswer]) -> None:
        self.flags, self.key, self.answer = flags, key, answer
        self.sent_s = -1.0


class _Batch(NamedTuple):
    """A batch read without an answer."""

    sent_s: float
    where: tuple[int, int]
    answer: asyncio.Future[BatchAnswer]


class BookieConnection(asyncio.Protocol):
    """Made by ``BookiePool``. A lost connection is never opened again; the pool makes a new connection."""

    def __init__(self, bookie_id: str, options: ClientOptions, on_lost: Callable[[BookieConnection], None]) -> None:
        self.bookie_id = bookie_id
        self.is_open = False
        self._writable = False
        self._options = options
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._decoder = AnswerDecoder(options.max_frame_bytes)
        self._transport: asyncio.Transport
        self._sinks: dict[int, AddSink] = {}
        self._reads: dict[tuple[int, int], deque[_Read]] = {}
        self._batches: dict[int, _Batch] = {}
        """Batch reads by their request ids."""
        self._batch_ids = itertools.count(1)
        self._outstanding = 0
        self._answered_s = self._loop.time()
        self._reason = "the connection was closed"
        self._check: Deadline | None = None
        """The next search for reads without an answer; None while no read is under way."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._options.write_buffer_bytes)
        self.is_open = self._writable = True
        self._answered_s = self._loop.time()

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._decoder.feed(data)
        except WireError as error:
            self.abort(str(error))
            return
        if answers:
            self._answered_s = self._loop.time()
        for answer in answers:
            self._take(answer)
            if not self.is_open:  # the answer was a stray
                break

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = self.is_open
        for sink in list(self._sinks.values()):
            if not self.has_room():
                break
            sink.on_writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = self._writable = False
        error = BookieUnreachableError(self.bookie_id, f"{self._reason}: {exc}" if exc else self._reason)
        sinks, self._sinks = self._sinks, {}
        reads, self._reads = self._reads, {}
        batches, self._batches = self._batches, {}
        self._outstanding = 0
        if self._check is not None:
            self._check.cancel()
        self._on_lost(self)
        for sink in sinks.values():
            sink.on_connection_lost(self, error)
        for waiting in reads.values():
            for read in waiting:
                _fail(read.answer, error)
        for batch in batches.values():
            _fail(batch.answer, error)

    # adding

    def has_room(self) -> bool:
        """Whether the write buffer has room for adds; if not, the connection calls ``on_writable`` of its sinks
        later.
        """
        return self._writable

    def register(self, ledger_id: int, sink: AddSink) -> None:
        """From now on pass the answers to this ledger's adds to `sink`, and to no other sink."""
        self._sinks[ledger_id] = sink

    def unregister(self, ledger_id: int, sink: AddSink) -> None:
        if self._sinks.get(ledger_id) is sink:
            del self._sinks[ledger_id]

    def add(self, frames: bytes | memoryview) -> None:
        """Send add frames; without effect once the connection is lost. `frames` must not change until they are sent."""
        if self.is_open:
            self._transport.write(frames)

    # reading

    async def read(self, ledger_id: int, entry_id: int, flags: int = 0, key: bytes = b"") -> ReadAnswer:
        """Return the bookie's answer, unverified. Raises BookieUnreachableError (also beyond
        ``max_reads_per_bookie``).
        """
        answer: asyncio.Future[ReadAnswer] = self._loop.create_future()
        self._check_room()
        read = _Read(flags, key if flags & DO_FENCING else b"", answer)
        where = (ledger_id, entry_id)
        waiting = self._reads.get(where)
        self._count_request()
        if waiting is None:
            self._reads[where] = deque([read])
            self._send_read(where, read)
        else:
            waiting.append(read)
        return await self._before_timeout(answer)

    async def read_batch(self, ledger_id: int, first: int, most_entries: int, most_bytes: int) -> BatchAnswer:
        """Consecutive entries, unverified. Raises BookieUnreachableError."""
        self._check_room()
        request_id = next(self._batch_ids)
        answer: asyncio.Future[BatchAnswer] = self._loop.create_future()
        self._batches[request_id] = _Batch(self._loop.time(), (ledger_id, first), answer)
        self._count_request()
        self._transport.write(batch_read_request(ledger_id, first, request_id, most_entries, most_bytes))
        return await self._before_timeout(answer)

    # ending

    def silent_since(self, time_s: float) -> bool:
        """Whether the bookie has completed no answer since `time_s`. Bytes alone prove nothing: behind a damaged length
        all bytes belong to one long answer.
        """
        return self._answered_s <= time_s

    def abort(self, reason: str) -> None:
        """Drop the connection; waiting reads fail and the sinks get ``on_connection_lost`` in a later turn of the
        loop.
        """
        if self.is_open:
            self._reason = reason
            self.is_open = self._writable = False
            self._on_lost(self)
            self._transport.abort()

    def _check_room(self) -> None:
        if not self.is_open:
            raise BookieUnreachableError(self.bookie_id, self._reason)
        if self._outstanding >= self._options.max_reads_per_bookie:
            raise BookieUnreachableError(self.bookie_id, f"{self._outstanding} reads wait for an answer already")

    def _count_request(self) -> None:
        self._outstanding += 1
        if self._check is None:
            self._check_later()

    def _check_unanswered(self) -> None:
        """Drop the connection if a read has had no answer for too long, for a shorter time if nothing else has had an
        answer. This does not depend on the caller, which may have turned to another replica after a moment.
        """
        options, now_s = self._options, self._loop.time()
        sent = [waiting[0].sent_s for waiting in self._reads.values()]
        sent += [batch.sent_s for batch in self._batches.values()]
        self._check = None
        if not sent:
            return
        oldest_s = min(sent)
        if oldest_s <= now_s - options.unanswered_timeout_s:
            self.abort(f"a read has had no answer for {options.unanswered_timeout_s:g} s")
        elif oldest_s <= now_s - options.read_timeout_s and self.silent_since(oldest_s):
            self.abort(f"silent for {options.read_timeout_s:g} s")
        else:
            self._check_later()

    def _check_later(self) -> None:
        pause_s = min(self._options.read_timeout_s, self._options.unanswered_timeout_s)
        self._check = Deadline(self._loop, pause_s, self._check_unanswered)

    def _send_read(self, where: tuple[int, int], read: _Read) -> None:
        read.sent_s = self._loop.time()
        self._transport.write(read_request(*where, read.flags, read.key))

    async def _before_timeout(self, answer: asyncio.Future[T]) -> T:
        timeout_s = self._options.read_timeout_s
        timer = Deadline(self._loop, timeout_s, partial(self._expire, answer, self._loop.time()))
        try:
            return await answer
        finally:
            timer.cancel()

    def _expire(self, answer: asyncio.Future[T], since_s: float) -> None:
        timeout_s = self._options.read_timeout_s
        if answer.done():
            return
        _fail(answer, BookieUnreachableError(self.bookie_id, f"no answer within {timeout_s:g} s"))
        if self.silent_since(since_s):
            self.abort(f"silent for {timeout_s:g} s")

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, Added):
            sink = self._sinks.get(answer.ledger_id)
            if sink is not None:
                sink.on_added(self, answer.first, answer.last)
        elif isinstance(answer, ReadAnswer):
            self._take_read(answer)
        elif isinstance(answer, BatchAnswer):
            self._take_batch(answer)
        elif isinstance(answer, AddFailed):
            sink = self._sinks.get(answer.ledger_id)
            if sink is not None:
                sink.on_add_failed(self, answer.entry_id, answer.code)
        else:
            self._stray("an AUTH message")

    def _take_batch(self, answer: BatchAnswer) -> None:
        batch = self._batches.get(answer.request_id)
        if batch is None or (answer.ledger_id, answer.entry_id) != batch.where:
            self._stray(f"entries from {answer.ledger_id}:{answer.entry_id} on")
            return
        del self._batches[answer.request_id]
        self._outstanding -= 1
        _resolve(batch.answer, answer)

    def _take_read(self, answer: ReadAnswer) -> None:
        where = (answer.ledger_id, answer.entry_id)
        waiting = self._reads.get(where)
        if waiting is None:
            self._stray(f"entry {answer.ledger_id}:{answer.entry_id}")
            return
        read = waiting.popleft()
        self._outstanding -= 1
        _resolve(read.answer, answer)
        while waiting and waiting[0].answer.done():  # reads whose callers gave up before the read was sent
            waiting.popleft()
            self._outstanding -= 1
        if waiting:
            self._send_read(where, waiting[0])
        else:
            del self._reads[where]

    def _stray(self, what: str) -> None:
        self.abort(f"the bookie sent {what} without a request")


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
