"""The readers of one connection: opens readers and passes messages to the right reader. The broker keeps no position
of a reader.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from magnetar.client.errors import BusyError, RefusedError, RetryError
from magnetar.client.messages import EntryReader
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed

if TYPE_CHECKING:
    from magnetar.client.connection import BrokerConnection
    from magnetar.client.messages import ReceivedMessage
    from magnetar.protocol.answers import Answer

__all__ = ["ReaderEvents", "Readers"]

_TYPE: Final = pb.BaseCommand
_PERMITS: Final = 500
"""The most messages that a reader has requested and not yet received."""


class ReaderEvents(Protocol):
    """Receives the messages of one reader."""

    def on_message(self, message: ReceivedMessage) -> None: ...

    def on_closed(self, error: RefusedError | RetryError) -> None:
        """The connection or the topic is gone. No further event follows."""
        ...


class _Reader(NamedTuple):
    events: ReaderEvents
    entries: EntryReader
    waiting: list[int]
    """The permits used since the last FLOW; a list of one number, so that it can change."""


class Readers:
    """Opens and closes readers on a connection; replaces its callbacks, but still calls an earlier `on_lost`."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self._open: dict[int, _Reader] = {}
        self._last_id = 0
        connection.subscribers[_TYPE.MESSAGE] = self._on_message
        connection.subscribers[_TYPE.CLOSE_CONSUMER] = self._on_closed
        connection.subscribers[_TYPE.ACTIVE_CONSUMER_CHANGE] = lambda _: None
        connection.subscribers[_TYPE.REACHED_END_OF_TOPIC] = lambda _: None
        before = connection.on_lost

        def lost(reason: RetryError) -> None:
            before(reason)
            self._on_lost(reason)

        connection.on_lost = lost

    async def open(
        self, topic: str, events: ReaderEvents, *, after: tuple[int, int] = (-1, -1), read_compacted: bool = False
    ) -> int:
        """Open a reader of an existing topic behind the entry at `after` (ledger, entry); return the reader's id.

        Raises: RefusedError, RetryError.
        """
        self._last_id += 1
        reader_id = self._last_id
        self._open[reader_id] = _Reader(events, EntryReader(topic), [0])
        try:
            await self.connection.ask(
                lambda request: requests.reader(
                    request,
                    reader_id,
                    topic,
                    f"reader-{uuid.uuid4().hex[:10]}",
                    {},
                    after=after,
                    read_compacted=read_compacted,
                    create=False,
                )
            )
            self.connection.write(requests.flow(reader_id, _PERMITS))
        except BaseException as error:
            self._open.pop(reader_id, None)
            if not isinstance(error, RefusedError | BusyError):  # without an answer the broker may still open it
                self.connection.tell(partial(requests.close_consumer, consumer_id=reader_id))
            raise
        return reader_id

    async def last_message(self, reader_id: int) -> tuple[int, int]:
        """Ledger and entry of the topic's last message; an entry below 0 when there is none.

        Raises: RefusedError, RetryError.
        """
        answer = await self.connection.ask(partial(requests.get_last_message_id, consumer_id=reader_id))
        place = answer.getLastMessageIdResponse.last_message_id
        return signed(place.ledgerId), signed(place.entryId)

    async def close(self, reader_id: int) -> None:
        """Close the reader. Raises: RefusedError, RetryError."""
        if self._open.pop(reader_id, None) is not None:
            await self.connection.ask(partial(requests.close_consumer, consumer_id=reader_id))

    def _on_message(self, answer: Answer) -> None:
        message = answer.command.message
        reader = self._open.get(message.consumer_id)
        if reader is None:
            return
        for each in reader.entries.messages(message.message_id, answer.entry, message.redelivery_count):
            reader.events.on_message(each)
        reader.waiting[0] += reader.entries.declared
        if reader.waiting[0] >= _PERMITS // 2:
            self.connection.write(requests.flow(message.consumer_id, reader.waiting[0]))
            reader.waiting[0] = 0

    def _on_closed(self, answer: Answer) -> None:
        reader = self._open.pop(answer.command.close_consumer.consumer_id, None)
        if reader is not None:
            reader.events.on_closed(RetryError("the broker closed the reader"))

    def _on_lost(self, reason: RetryError) -> None:
        readers, self._open = self._open, {}
        for each in readers.values():
            each.events.on_closed(reason)
