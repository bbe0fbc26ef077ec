"""The producer of an import: sends planned entries ahead of their receipts and matches the receipts, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from magnetar.client.connection import BrokerConnection, refusal
from magnetar.client.errors import DeduplicationError, RefusedError, RetryError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.converters.kafka_entry.import_plan import ImportStep
    from magnetar.protocol.answers import Answer

MAX_IN_FLIGHT = 1_000
MAX_IN_FLIGHT_BYTES = 16 * 1024 * 1024
_TYPE = pb.BaseCommand


class ImportProducer:
    """One attached producer. `last_sequence_id`: the highest the broker had accepted under this name, -1 for none.

    on_stored: called with each step whose receipt has come, and whether the broker stored it now (else: had it).
    """

    def __init__(self, connection: BrokerConnection, producer_id: int, name: str, last_sequence_id: int) -> None:
        self.name = name
        self.last_sequence_id = last_sequence_id
        self.on_stored: Callable[[ImportStep, bool], None] = lambda _step, _new: None
        self._connection = connection
        self._producer_id = producer_id
        self._in_flight: deque[ImportStep] = deque()
        self._in_flight_bytes = 0
        self._failure: RetryError | RefusedError | DeduplicationError | None = None
        self._changed: asyncio.Future[None] | None = None
        connection.on_lost = self._fail
        connection.subscribers[_TYPE.SEND_RECEIPT] = self._on_receipt
        connection.subscribers[_TYPE.SEND_ERROR] = self._on_send_error
        connection.subscribers[_TYPE.CLOSE_PRODUCER] = self._on_closed

    async def send(self, step: ImportStep) -> None:
        """Send the entry of a step when there is room; returns before its receipt.

        Raises: RetryError, RefusedError, DeduplicationError when this or an earlier entry failed.
        """
        assert step.entry is not None, "steps without an entry have nothing to send"
        entry = step.entry
        while self._in_flight and (
            len(self._in_flight) >= MAX_IN_FLIGHT or self._in_flight_bytes + len(entry.data) > MAX_IN_FLIGHT_BYTES
        ):
            await self._wait_change()
        if self._failure is not None:
            raise self._failure
        self._in_flight.append(step)
        self._in_flight_bytes += len(entry.data)
        self._connection.write(
            requests.send(self._producer_id, entry.sequence_id, entry.highest_sequence_id, entry.messages, entry.data)
        )
        await self._connection.wait_writable()

    async def wait_receipts(self) -> None:
        """Return when everything sent is stored. Raises: as `send`."""
        while self._in_flight:
            await self._wait_change()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Leave the topic, so that the name is free. Raises: RetryError."""
        await self._connection.ask(lambda request: requests.close_producer(request, self._producer_id))

    async def _wait_change(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _fail(self, reason: RetryError | RefusedError | DeduplicationError) -> None:
        self._failure = self._failure or reason
        self._wake()

    # --- what the broker says ------------------------------------------------------------------------------------

    def _on_receipt(self, answer: Answer) -> None:
        receipt = answer.command.send_receipt
        if receipt.producer_id != self._producer_id or self._failure is not None:
            return
        step = self._in_flight[0] if self._in_flight else None
        if step is None or step.entry is None or receipt.sequence_id != step.entry.sequence_id:
            self._fail(RetryError(f"a receipt for {receipt.sequence_id} that is not the one waited for"))
            return
        new = signed(receipt.message_id.entryId) >= 0
        if new and step.confirms:
            self._fail(
                DeduplicationError(
                    f"the broker took sequence id {receipt.sequence_id} of {self.name} a second time, although it "
                    "named it as its last one: its deduplication does not work, nothing can be promised"
                )
            )
            return
        self._in_flight.popleft()
        self._in_flight_bytes -= len(step.entry.data)
        self.on_stored(step, new)
        self._wake()

    def _on_send_error(self, answer: Answer) -> None:
        error = answer.command.send_error
        if error.producer_id == self._producer_id:
            self._fail(refusal(error.error, error.message))

    def _on_closed(self, answer: Answer) -> None:
        if answer.command.close_producer.producer_id == self._producer_id:
            self._fail(RetryError("the broker closed the producer"))
