"""The producers of one connection: opens producers and passes the broker's commands to the right producer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.client.connection import refusal
from magnetar.client.errors import BusyError, RefusedError, RetryError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed

if TYPE_CHECKING:
    from magnetar.client.connection import BrokerConnection
    from magnetar.protocol.answers import Answer

_TYPE = pb.BaseCommand


class Receipt(NamedTuple):
    """The receipt of an entry. `entry_id` is negative when deduplication dropped the entry as already stored."""

    sequence_id: int
    ledger_id: int
    entry_id: int

    @property
    def is_new(self) -> bool:
        """Whether the broker stored the entry for this SEND, and not for an earlier SEND."""
        return self.entry_id >= 0


class ProducerEvents(Protocol):
    """The events of one producer."""

    def on_receipt(self, receipt: Receipt) -> None: ...

    def on_failed(self, error: RefusedError | RetryError) -> None:
        """The connection or the producer is gone, or the broker refuses an entry. No further event follows."""
        ...


class OpenedProducer(NamedTuple):
    """A producer on its topic. `last_sequence_id`: the highest that the broker has accepted under this name, -1 for
    none.
    """

    producer_id: int
    name: str
    last_sequence_id: int
    schema_version: bytes


class Producers:
    """Opens and closes producers on a connection; replaces the callbacks of the connection."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self._events: dict[int, ProducerEvents] = {}
        self._last_id = 0
        connection.subscribers[_TYPE.SEND_RECEIPT] = self._on_receipt
        connection.subscribers[_TYPE.SEND_ERROR] = self._on_send_error
        connection.subscribers[_TYPE.CLOSE_PRODUCER] = self._on_closed
        connection.on_lost = self._on_lost

    async def open(
        self,
        topic: str,
        name: str | None,
        events: ProducerEvents,
        schema: pb.Schema | None = None,
        *,
        encrypted: bool = False,
    ) -> OpenedProducer:
        """Attach a producer; a name can have one producer at a time. `events` may fail before the call returns.

        Raises: RefusedError, RetryError.
        """
        self._last_id += 1
        producer_id = self._last_id
        self._events[producer_id] = events  # the broker may close the producer together with its answer
        try:
            answer = await self.connection.ask(
                lambda request: requests.producer(request, producer_id, topic, name, schema, encrypted=encrypted)
            )
        except BaseException as error:
            self._events.pop(producer_id, None)
            if not isinstance(error, RefusedError | BusyError):  # without an answer the broker may still open it
                self.connection.tell(partial(requests.close_producer, producer_id=producer_id))
            raise
        if answer.type != _TYPE.PRODUCER_SUCCESS:
            self._events.pop(producer_id, None)
            raise RetryError(f"an answer of type {answer.type} to PRODUCER")
        success = answer.producer_success
        return OpenedProducer(producer_id, success.producer_name, success.last_sequence_id, success.schema_version)

    async def close(self, producer_id: int) -> None:
        """Detach the producer, so that its name is free. Raises: RefusedError, RetryError."""
        self._events.pop(producer_id, None)
        await self.connection.ask(lambda request: requests.close_producer(request, producer_id))

    def _on_receipt(self, answer: Answer) -> None:
        receipt = answer.command.send_receipt
        events = self._events.get(receipt.producer_id)
        if events is not None:
            place = receipt.message_id
            events.on_receipt(Receipt(receipt.sequence_id, signed(place.ledgerId), signed(place.entryId)))

    def _on_send_error(self, answer: Answer) -> None:
        error = answer.command.send_error
        events = self._events.pop(error.producer_id, None)
        if events is not None:
            events.on_failed(refusal(error.error, error.message))

    def _on_closed(self, answer: Answer) -> None:
        events = self._events.pop(answer.command.close_producer.producer_id, None)
        if events is not None:
            events.on_failed(RetryError("the broker closed the producer"))

    def _on_lost(self, reason: RetryError) -> None:
        events, self._events = self._events, {}
        for each in events.values():
            each.on_failed(reason)
