"""A producer of a task: sends entries ahead of their receipts, and continues after a lost connection.

    open -> last sequence id of the name on this topic -> messages up to it are there already, and are left out
    send -> at most `maxPendingBytes` wait for receipts
    connection lost, broker restarted, topic moved -> open again, send entries without receipt again, unchanged

With a name of its own (exactly once) the producer omits an entry that was stored although its receipt was lost, by that
last sequence id, or the broker's deduplication drops the entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.errors import RetryError, retrying
from magnetar.client.lookup import find_owner
from magnetar.client.send_window import SendWindow
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
        self._skip_to = -1
        self._deadline = 0.0

    async def send(self, sequence_id: int, message: Message) -> None:
        """Take a message; returns when there is room, before its receipt.

        Sequence ids must grow from call to call. Raises: ClientError, MessageTooLargeError.
        """
        if self._packer is None:
            await self._start()
        if sequence_id <= self._skip_to:
            self.report.known += 1
            return
        assert self._packer is not None, "_start has made it"
        for packed in self._packer.add(sequence_id, message):
            if isinstance(packed, Chunks):
                await self._send_chunks(packed)
            else:
                await self._wait_room(packed)
                await self._put(packed)

    async def finish(self) -> TopicReport:
        """Return when everything taken is stored; the name is free then. Raises: ClientError."""
        if self._packer is not None:
            for entry in self._packer.flush():
                await self._wait_room(entry)
                await self._put(entry)
            await self._until_empty_or_room(None)
            await self._leave()
        return self.report

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
        if self._name is not None:
            self._skip_to = opened.last_sequence_id
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
            waited = f"{self._options.timeout_s:.0f} s without progress (sendTimeoutMs)"
            raise RetryError(f"{self.report.topic}: {error}; gave up after {waited}") from error

    async def _attach(self) -> OpenedProducer:
        address = await find_owner(self._pool, self._options.connect.service, self.report.topic)
        self._producers = await self._pool.producers(address)
        self._window = self._new_window()
        self._opened = await self._producers.open(self.report.topic, self._name, self._window, self._schema)
        return self._opened

    async def _reopen(self) -> None:
        """After a failure: attach again, leave out stored entries, send the others again.

        Of a chunked message all chunks are sent again, unless `_send_chunks` is about to do that.
        """
        await self._leave()
        without_receipt = self._window.items()
        opened = await self._open()
        known_to = opened.last_sequence_id if self._name is not None else -1
        again = self._sending
        for entry in without_receipt:
            if entry.last <= known_to:
                self.report.stored += entry.messages
            elif entry.chunks is None:
                self._write(entry)
            elif entry.chunks is not again:
                again = entry.chunks
                for chunk in again.entries():
                    self._write(chunk)
        self._progress()

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
        if not len(self._window):
            self._progress()
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
        while True:
            window = self._window
            wait = window.wait_empty() if size_bytes is None else window.wait_room(size_bytes)
            try:
                return await asyncio.wait_for(wait, max(self._deadline - time.monotonic(), 0.001))
            except TimeoutError:
                if time.monotonic() < self._deadline:
                    continue  # receipts have come meanwhile
                waited = f"{self._options.timeout_s:.0f} s (sendTimeoutMs)"
                raise RetryError(f"{self.report.topic}: no receipt within {waited}") from None
            except RetryError:
                await self._reopen()

    def _progress(self) -> None:
        self._deadline = time.monotonic() + self._options.timeout_s

    # --- answers of the broker -------------------------------------------------------------------------------------

    def _new_window(self) -> SendWindow[Entry]:
        return SendWindow(self._on_stored, max_entries=sys.maxsize, max_bytes=self._options.pending_bytes)

    def _on_stored(self, entry: Entry, receipt: Receipt) -> None:
        """The entry is stored, now or before."""
        if receipt.is_new:
            self.report.stored += entry.messages
            self.report.last_ledger, self.report.last_entry = receipt.ledger_id, receipt.entry_id
        else:
            self.report.known += entry.messages
        self._progress()
