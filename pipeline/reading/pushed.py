"""A reader of one topic at a running broker: entries as they are stored, in order, from a position on.

It subscribes without a durable cursor, asks for entries in their stored form (`entry.format.raw`) and, from brokers
that give it, for broker entry metadata. What was pushed and not taken is bounded in bytes: past that the socket is not
read.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from magnetar.client.errors import RetryError
from magnetar.client.lookup import open_at_owner
from magnetar.converters.entry import ENTRY_FORMAT_RAW
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed

if TYPE_CHECKING:
    from magnetar.client.connection import BrokerConnection
    from magnetar.pipeline.connect_options import ConnectOptions
    from magnetar.pipeline.offsets import Position
    from magnetar.protocol.answers import Answer

_CONSUMER_ID = 1
_MOST_WAITING_BYTES = 16 << 20


class PushedEntry(NamedTuple):
    """An entry, and where it is stored."""

    ledger_id: int
    entry_id: int
    body: bytes


class PushedEntries:
    """One connection with one reader. Belongs to one event loop."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._waiting: deque[PushedEntry] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._lost: RetryError | None = None
        self._arrived = asyncio.Event()
        connection.subscribers[pb.BaseCommand.MESSAGE] = self._on_message
        connection.subscribers[pb.BaseCommand.CLOSE_CONSUMER] = lambda _: self._fail("the broker closed the reader")
        connection.on_lost = lambda reason: self._fail(str(reason))

    @staticmethod
    async def open(
        options: ConnectOptions, topic: str, after: Position, *, read_compacted: bool = False
    ) -> PushedEntries:
        """A reader whose first entry is the one behind `after`. Raises: RefusedError, RetryError, InputError."""
        connection = await open_at_owner(options.service, options.credentials, topic, entry_metadata=True)
        try:
            pushed = PushedEntries(connection)
            name, raw = f"pipeline-{os.urandom(5).hex()}", {ENTRY_FORMAT_RAW: "true"}
            await connection.ask(
                lambda n: requests.reader(n, _CONSUMER_ID, topic, name, raw, after=after, read_compacted=read_compacted)
            )
        except BaseException:
            connection.close()
            raise
        return pushed

    def ask_for(self, messages: int) -> None:
        """The broker may send so many messages more (an entry of several counts with all of them)."""
        self._connection.write(requests.flow(_CONSUMER_ID, messages))

    async def take(self, timeout_s: float) -> list[PushedEntry]:
        """What has arrived, at least one entry; empty after `timeout_s` without any.

        Raises: RetryError when the connection or the reader is gone and everything that had arrived is taken.
        """
        if not self._waiting:
            if self._lost is not None:
                raise self._lost
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout_s)
            except TimeoutError:
                return []
        found = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._paused:
            self._paused = False
            self._connection.resume_reading()
        if not found and self._lost is not None:
            raise self._lost
        return found

    def close(self) -> None:
        """Safe to call twice."""
        self._connection.close()

    def _on_message(self, answer: Answer) -> None:
        message_id = answer.command.message.message_id
        self._waiting.append(PushedEntry(signed(message_id.ledgerId), signed(message_id.entryId), answer.entry))
        self._waiting_bytes += len(answer.entry)
        self._arrived.set()
        if self._waiting_bytes > _MOST_WAITING_BYTES and not self._paused:
            self._paused = True
            self._connection.pause_reading()

    def _fail(self, reason: str) -> None:
        self._lost = self._lost or RetryError(reason)
        self._arrived.set()
