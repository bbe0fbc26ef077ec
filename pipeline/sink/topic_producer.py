"""A producer of a task: sends entries ahead of their receipts, and continues after a lost connection.

    open -> last sequence id of the name on this topic -> entries up to it are known; the newest are sent again
    send -> at most `maxPendingBytes` wait for receipts
    connection lost, broker restarted, topic moved -> open again, send entries without receipt again, unchanged

With a name of its own (exactly once) the broker's deduplication drops an entry that was stored although its receipt was
lost. The last sequence id alone proves nothing: the broker has accepted that entry, but may still fail to store it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.errors import RetryError, retrying
from magnetar.client.lookup import find_owner
from magnetar.client.send_window import SendWindow
from magnetar.pipeline.sink.known_entries import KnownEntries
from magnetar.pipeline.sink.message import Chunks
from magnetar.pipeline.sink.packing import Packer
from magnetar.protocol import requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.client.pool import ConnectionPool
    from magnetar.client.producers import OpenedProducer, Producers, Receipt
    from magnetar.pipeline.sink.message import Entry, Message
    from magnetar.pipeline.sink.options import SinkOptions
    from magnetar.protocol import pulsar_api_pb2 as pb

_HEADROOM = 10 * 1024
"""Bytes that the metadata of an entry needs of the broker's maxMessageSize."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
"""Pauses between attempts after which the broker stores nothing."""


@dataclass(slots=True)
class TopicReport:
    """The report of a producer: messages `stored` now, and `known` messages that the topic had before."""

    topic: str
    stored: int = 0
    known: int = 0
    last_ledger: int = -1
    last_entry: int = -1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class TopicProducer:
    """Sends the messages of one task to one topic or partition. `name` None: at least once, the broker names it.

    on_opened: called once before anything is sent, with the last sequence id of the name.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        options: SinkOptions,
        topic: str,
        name: str | None,
        schema: pb.Schema | None,
        on_opened: Callable[[int], Awaitable[None]],
    ) -> None:
        self._pool, self._options, self._schema, self._name = pool, options, schema, name
        self._on_opened = on_opened
        self.report = TopicReport(topic)
        self._producers: Producers | None = None
        self._opened: OpenedProducer | None = None
        self._packer: Packer | None = None
        self._window = self._new_window()
        self._sending: Chunks | None = None
        self._known_to = -1
        self._known: KnownEntries | None = None
        """Entries up to `_known_to`, before the first entry behind it."""
        self._accepted_to = -1
        """The highest sequence id that the broker had accepted when the producer was attached last."""
        self._again: deque[Entry] = deque()
        """Entries to send again, in order, before any other."""
        self._sent_again_to = -1
        self._pause_s = 0.0
        self._deadline = 0.0

    async def send(self, sequence_id: int, message: Message) -> None:
        """Take a message; returns when there is room, before its receipt.

        Sequence ids must grow from call to call. Raises: ClientError, MessageTooLargeError.
        """
        if self._packer is None:
            await self._start()
        assert self._packer is not None, "_start has made it"
        if self._known is not None and sequence_id > self._known_to:
            await self._flush()
        for packed in self._packer.add(sequence_id, message):
            if self._known is not None:
                self.report.known += self._known.add(packed)
            elif isinstance(packed, Chunks):
                await self._send_chunks(packed)
            else:
                await self._wait_room(packed)
                await self._put(packed)

    async def finish(self) -> TopicReport:
        """Return when everything taken is stored; the name is free then. Raises: ClientError."""
        if self._packer is not None:
            await self._flush()
            await self._until_empty_or_room(None)
            await self._leave()
        return self.report

    async def _flush(self) -> None:
        """Send the entry of the waiting messages; of known entries, those that may not be stored yet."""
        assert self._packer is not None, "_start has made it"
        known, self._known = self._known, None
        if known is not None:
            self.report.known += sum(known.add(entry) for entry in self._packer.flush())
            self._again.extend(known.entries())
            await self._until_empty_or_room(None)
        for entry in self._packer.flush():
            await self._wait_room(entry)
            await self._put(entry)

    async def _leave(self) -> None:
        """Free the name. A lost connection has freed it already."""
        if self._producers is not None and self._opened is not None:
            with contextlib.suppress(RetryError):
                await self._producers.close(self._opened.producer_id)
            self._opened = None

    # --- opening, first and again ----------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._deadline = time.monotonic() + self._options.timeout_s
        opened = await self._open()
        if self._accepted_to >= 0:
            self._known_to = self._accepted_to
            self._known = KnownEntries(self._options.pending_bytes)
        await self._on_opened(opened.last_sequence_id)
        assert self._producers is not None, "_open has set it"
        self._packer = Packer(
            opened.name,
            self._options,
            _now_ms,
            max_bytes=self._producers.connection.max_message_bytes - _HEADROOM,
            schema_version=opened.schema_version,
        )

    async def _open(self) -> OpenedProducer:
        """Attach the producer, trying again until the deadline. Raises: ClientError."""
        left_s = max(self._deadline - time.monotonic(), 0.0)
        try:
            return await retrying(self._attach, left_s)
        except RetryError as error:
            raise self._gave_up(error) from error

    async def _attach(self) -> OpenedProducer:
        address = await find_owner(self._pool, self._options.connect.service, self.report.topic)
        self._producers = await self._pool.producers(address)
        self._window = self._new_window()
        self._opened = await self._producers.open(self.report.topic, self._name, self._window, self._schema)
        self._accepted_to = self._opened.last_sequence_id if self._name is not None else -1
        return self._opened

    async def _reopen(self) -> None:
        """After a failure: attach again, and have all entries without receipt sent again.

        Of a chunked message, which deduplication knows by its last chunk alone, nothing is sent when the broker has
        accepted the message; else all chunks are, unless `_send_chunks` is about to do that.
        """
        await self._leave()
        without_receipt = [*self._window.items(), *self._again]
        await asyncio.sleep(min(self._pause_s, max(self._deadline - time.monotonic(), 0.0)))
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        await self._open()
        self._again.clear()
        chunks = self._sending
        for entry in without_receipt:
            self._sent_again_to = max(entry.last, self._sent_again_to)
            if entry.chunks is None:
                self._again.append(entry)
            elif entry.last <= self._accepted_to:
                self.report.stored += entry.messages
            elif entry.chunks is not chunks:
                chunks = entry.chunks
                self._again.extend(chunks.entries())

    # --- sending ---------------------------------------------------------------------------------------------------

    async def _send_chunks(self, chunks: Chunks) -> None:
        self._sending = chunks
        try:
            while not await self._sent_whole(chunks):
                pass
        finally:
            self._sending = None

    async def _sent_whole(self, chunks: Chunks) -> bool:
        """Send all chunks; returns False when the connection changed in between: consumers could get a chunk twice."""
        attached: OpenedProducer | None = None
        for entry in chunks.entries():
            await self._wait_room(entry)
            if attached is not None and attached is not self._opened:
                return False
            attached = self._opened
            await self._put(entry)
        return True

    async def _wait_room(self, entry: Entry) -> None:
        if not self._window.has_room(len(entry.data)):
            await self._until_empty_or_room(len(entry.data))

    async def _put(self, entry: Entry) -> None:
        self._write(entry)
        assert self._producers is not None, "the producer is open"
        with contextlib.suppress(RetryError):  # the window fails too, and the producer resends the entry
            await self._producers.connection.wait_writable()

    def _write(self, entry: Entry) -> None:
        assert self._producers is not None, "the producer is open"
        assert self._opened is not None, "the producer is open"
        self._window.add(entry.first, len(entry.data), entry)
        send = requests.send(
            self._opened.producer_id,
            entry.first,
            entry.last,
            max(entry.messages, 1),
            entry.data,
            is_chunk=entry.chunks is not None,
        )
        try:
            self._producers.connection.write(send)
        except RetryError as error:
            self._window.on_failed(error)

    async def _until_empty_or_room(self, size_bytes: int | None) -> None:
        """Return when all entries have receipts (`size_bytes` None), or when an entry of `size_bytes` may be sent.

        Attaches the producer again whenever it is gone. Raises: ClientError.
        """
        self._progress()  # receipts were not read while the task made rows
        while True:
            try:
                settled = self._settle(size_bytes)
                return await asyncio.wait_for(settled, max(self._deadline - time.monotonic(), 0.001))
            except TimeoutError:
                if time.monotonic() < self._deadline:
                    continue  # receipts have come meanwhile
                waited = f"{self._options.timeout_s:.0f} s (sendTimeoutMs)"
                raise RetryError(f"{self.report.topic}: no receipt within {waited}") from None
            except RetryError as error:
                if time.monotonic() > self._deadline:
                    raise self._gave_up(error) from error
                await self._reopen()

    async def _settle(self, size_bytes: int | None) -> None:
        """Send the entries that are to be sent again, and wait as `_until_empty_or_room`. Raises: RetryError.

        An accepted entry goes alone. As long as the broker does not know whether it will be stored, the broker refuses
        it; if a later entry were stored meanwhile, this entry would then count as a duplicate.
        """
        while self._again:
            is_doubtful = self._again[0].last <= self._accepted_to
            if is_doubtful:
                await self._window.wait_empty()
            self._write(self._again.popleft())
            if is_doubtful:
                await self._window.wait_empty()
        await (self._window.wait_empty() if size_bytes is None else self._window.wait_room(size_bytes))

    def _gave_up(self, error: RetryError) -> RetryError:
        waited = f"{self._options.timeout_s:.0f} s without progress (sendTimeoutMs)"
        return RetryError(f"{self.report.topic}: {error}; gave up after {waited}")

    def _progress(self) -> None:
        self._deadline = time.monotonic() + self._options.timeout_s

    # --- answers of the broker -------------------------------------------------------------------------------------

    def _new_window(self) -> SendWindow[Entry]:
        return SendWindow(self._on_stored, max_entries=sys.maxsize, max_bytes=self._options.pending_bytes)

    def _on_stored(self, entry: Entry, receipt: Receipt) -> None:
        """The entry is stored, now or before."""
        if receipt.is_new:
            self.report.last_ledger, self.report.last_entry = receipt.ledger_id, receipt.entry_id
        if receipt.is_new or self._known_to < entry.last <= self._sent_again_to:
            self.report.stored += entry.messages
        else:
            self.report.known += entry.messages
        self._pause_s = 0.0
        self._progress()
