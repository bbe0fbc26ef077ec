"""One producer of a task: sends entries ahead of their receipts, and goes on after a lost connection.

    open -> last sequence id of the name on this topic -> messages up to it are there already, and are left out
    send -> at most `maxPendingBytes` wait for receipts
    connection lost, broker restarted, topic moved -> open again, send what has no receipt again, unchanged

With a name of its own (exactly once) an entry that was stored in spite of its lost receipt is left out by that id, or
dropped by the broker's deduplication.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.errors import RetryError
from magnetar.client.lookup import find_owner
from magnetar.client.retrying import retrying
from magnetar.pipeline.sink.packing import Packer
from magnetar.protocol import requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.client.errors import RefusedError
    from magnetar.client.pool import ConnectionPool
    from magnetar.client.producers import OpenedProducer, Producers, Receipt
    from magnetar.pipeline.sink.message import Message
    from magnetar.pipeline.sink.options import SinkOptions
    from magnetar.pipeline.sink.packing import Entry
    from magnetar.protocol import pulsar_api_pb2 as pb

_HEADROOM = 10 * 1024
"""Bytes that the metadata of an entry needs of the broker's maxMessageSize."""


@dataclass(slots=True)
class TopicReport:
    """The report of a producer: messages `stored` now, and `known` ones that the topic had before."""

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
        self._unconfirmed: deque[Entry] = deque()
        self._unconfirmed_bytes = 0
        self._skip_to = -1
        self._failure: RefusedError | RetryError | None = None
        self._changed: asyncio.Future[None] | None = None
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
        for entry in self._packer.add(sequence_id, message):
            await self._send_entry(entry)

    async def finish(self) -> TopicReport:
        """Return when everything taken is stored; the name is free then. Raises: ClientError."""
        if self._packer is not None:
            for entry in self._packer.flush():
                await self._send_entry(entry)
            while self._unconfirmed:
                await self._wait_change()
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
        self._failure = None
        self._opened = await self._producers.open(self.report.topic, self._name, self, self._schema)
        return self._opened

    async def _reopen(self) -> None:
        """After a failure: attach again, leave out what the broker has, send the rest again."""
        await self._leave()
        opened = await self._open()
        if self._name is not None:
            while self._unconfirmed and self._unconfirmed[0].last <= opened.last_sequence_id:
                self._confirm(self._unconfirmed[0], known=False)
        for entry in self._unconfirmed:
            self._write(entry)

    # --- sending ---------------------------------------------------------------------------------------------------

    async def _send_entry(self, entry: Entry) -> None:
        while self._failure is not None or (
            self._unconfirmed and self._unconfirmed_bytes + len(entry.data) > self._options.pending_bytes
        ):
            await self._wait_change()
        self._unconfirmed.append(entry)
        self._unconfirmed_bytes += len(entry.data)
        if len(self._unconfirmed) == 1:
            self._progress()
        self._write(entry)
        assert self._producers is not None, "the producer is open"
        if self._failure is None:
            try:
                await self._producers.connection.wait_writable()
            except RetryError as error:
                self.on_failed(error)

    def _write(self, entry: Entry) -> None:
        assert self._producers is not None, "the producer is open"
        if self._failure is not None:
            return
        assert self._opened is not None, "the producer is open"
        send = requests.send(
            self._opened.producer_id,
            entry.first,
            entry.last,
            max(entry.messages, 1),
            entry.data,
            is_chunk=entry.is_chunk,
        )
        try:
            self._producers.connection.write(send)
        except RetryError as error:
            self.on_failed(error)

    async def _wait_change(self) -> None:
        """Return after a receipt or after the producer is attached again. Raises: ClientError."""
        if self._failure is not None:
            if not isinstance(self._failure, RetryError):
                raise self._failure
            await self._reopen()
            return
        self._changed = asyncio.get_running_loop().create_future()
        left = self._deadline - time.monotonic()
        try:
            await asyncio.wait_for(self._changed, max(left, 0.001))
        except TimeoutError:
            waited = f"{self._options.timeout_s:.0f} s (sendTimeoutMs)"
            raise RetryError(f"{self.report.topic}: no receipt within {waited}") from None

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _progress(self) -> None:
        self._deadline = time.monotonic() + self._options.timeout_s

    # --- what the broker says --------------------------------------------------------------------------------------

    def on_receipt(self, receipt: Receipt) -> None:
        """The entry is stored, now or before. Receipts come in the order of the entries."""
        if self._failure is not None or not self._unconfirmed:
            return
        entry = self._unconfirmed[0]
        if receipt.sequence_id != entry.first:
            self.on_failed(RetryError(f"a receipt for {receipt.sequence_id}, not for {entry.first}"))
            return
        self._confirm(entry, known=receipt.entry_id < 0)
        if receipt.entry_id >= 0:
            self.report.last_ledger, self.report.last_entry = receipt.ledger_id, receipt.entry_id
        self._wake()

    def on_failed(self, error: RefusedError | RetryError) -> None:
        """The connection or the producer is gone, or the broker refused an entry."""
        if self._failure is None:
            self._failure = error
        self._wake()

    def _confirm(self, entry: Entry, *, known: bool) -> None:
        self._unconfirmed.popleft()
        self._unconfirmed_bytes -= len(entry.data)
        if known:
            self.report.known += entry.messages
        else:
            self.report.stored += entry.messages
        self._progress()
