"""A reader of one topic at a running broker: entries as they are stored, in order, from a position on.

It subscribes without a durable cursor, asks for entries in their stored form (`entry.format.raw`) and, from brokers
that give it, for broker entry metadata. Entries stay in the bytes that came from the socket. Pushed messages that were
not taken have a bound in bytes: beyond it the socket is not read.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from magnetar.client.errors import RetryError
from magnetar.client.lookup import open_at_owner
from magnetar.converters.entry import ENTRY_FORMAT_RAW
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.reading.delivery_cutter import Block, DeliveryCutter, as_chunks
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.client.connection import BrokerConnection
    from magnetar.pipeline.connect_options import ConnectOptions
    from magnetar.pipeline.entry_chunk import EntryChunk

_CONSUMER_ID = 1
_MOST_WAITING_BYTES = 16 << 20
_MOST_TAKEN_BYTES = 4 << 20
_WANTED_BYTES = 1 << 20
_GATHER_S = 0.003
"""How long entries wait for others, so that few large chunks are decoded instead of many small chunks."""


class PushedEntries:
    """One connection with one reader. Belongs to one event loop."""

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        self._connection = connection
        self._topic, self._partition = topic, TopicName.parse(topic).partition
        self._waiting: deque[Block] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._lost: RetryError | None = None
        self._arrived = asyncio.Event()
        connection.cut_with(partial(DeliveryCutter, _CONSUMER_ID, self._on_block))
        connection.subscribers[pb.BaseCommand.CLOSE_CONSUMER] = lambda _: self._fail("the broker closed the reader")
        connection.on_lost = lambda reason: self._fail(str(reason))

    @staticmethod
    async def open(
        options: ConnectOptions, topic: str, after: Position, *, read_compacted: bool = False
    ) -> PushedEntries:
        """A reader that begins at the entry behind `after`; it creates no topic.

        Raises: RefusedError (also for a topic that does not exist), RetryError, InputError.
        """
        connection = await open_at_owner(options.service, options.credentials, topic, entry_metadata=True)
        try:
            pushed = PushedEntries(connection, topic)
            name, raw = f"pipeline-{os.urandom(5).hex()}", {ENTRY_FORMAT_RAW: "true"}
            await connection.ask(
                lambda n: requests.reader(
                    n, _CONSUMER_ID, topic, name, raw, after=after, read_compacted=read_compacted, create=False
                )
            )
        except BaseException:
            connection.close()
            raise
        return pushed

    def ask_for(self, messages: int) -> None:
        """Allow the broker to send this many more messages (every message of an entry counts)."""
        self._connection.write(requests.flow(_CONSUMER_ID, messages))

    async def last_message(self) -> Position:
        """The entry of the last message for this reader; the entry id is below 0 when there is none.

        Raises: RefusedError, RetryError.
        """
        answer = await self._connection.ask(partial(requests.get_last_message_id, consumer_id=_CONSUMER_ID))
        place = answer.getLastMessageIdResponse.last_message_id
        return Position(signed(place.ledgerId), signed(place.entryId))

    async def take(self, timeout_s: float) -> list[EntryChunk]:
        """Return the entries that have arrived, at least one and at most about 4 MiB; none after `timeout_s` without
        any.

        Raises: RetryError when the connection or the reader is gone and everything that had arrived is taken.
        """
        if not self._waiting and not await self._arrives(timeout_s):
            if self._lost is not None:
                raise self._lost
            return []
        while self._waiting_bytes < _WANTED_BYTES and await self._arrives(_GATHER_S):
            pass
        taken: list[Block] = []
        size = 0
        while self._waiting and (not taken or size + len(self._waiting[0].data) <= _MOST_TAKEN_BYTES):
            taken.append(self._waiting.popleft())
            size += len(taken[-1].data)
        self._waiting_bytes -= size
        if self._paused and self._waiting_bytes < _MOST_WAITING_BYTES // 2:
            self._paused = False
            self._connection.resume_reading()
        return as_chunks(self._topic, self._partition, taken)

    async def _arrives(self, timeout_s: float) -> bool:
        """Whether an entry comes within that time; False at once when the connection or the reader is gone."""
        if self._lost is not None:
            return False
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), timeout_s)
        except TimeoutError:
            return False
        return bool(self._waiting)

    def close(self) -> None:
        """Safe to call twice."""
        self._connection.close()

    async def wait_closed(self) -> None:
        """End the connection and return when its socket is closed."""
        await self._connection.wait_closed()

    def _on_block(self, block: Block) -> None:
        self._waiting.append(block)
        self._waiting_bytes += len(block.data)
        self._arrived.set()
        if self._waiting_bytes > _MOST_WAITING_BYTES and not self._paused:
            self._paused = True
            self._connection.pause_reading()

    def _fail(self, reason: str) -> None:
        self._lost = self._lost or RetryError(reason)
        self._arrived.set()
