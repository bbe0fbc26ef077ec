"""The producer of an import: sends planned entries ahead of their receipts, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.client.errors import DeduplicationError, RefusedError
from magnetar.client.send_window import SendWindow
from magnetar.protocol import requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.client.producers import Producers, Receipt
    from magnetar.converters.kafka_entry.import_plan import ImportStep


class ImportProducer:
    """One attached producer.

    last_sequence_id: the highest sequence id that the broker had accepted under this name before; -1 for none.
    on_stored: called with each step whose receipt has come, and with True when the broker stored the entry now, False
    when the topic had it already.
    """

    def __init__(self, producers: Producers, name: str) -> None:
        self.name = name
        self.last_sequence_id = -1
        self.on_stored: Callable[[ImportStep, bool], None] = lambda _step, _new: None
        self._producers = producers
        self._producer_id = -1
        self._window: SendWindow[ImportStep] = SendWindow(self._stored)

    async def open(self, topic: str) -> None:
        """Attach under the name; the broker allows a single producer of this name. Raises: RefusedError, RetryError."""
        opened = await self._producers.open(topic, self.name, self._window)
        if opened.name != self.name:
            raise RefusedError(f"the broker did not give the producer the name {self.name}")
        self._producer_id, self.last_sequence_id = opened.producer_id, opened.last_sequence_id

    async def send(self, step: ImportStep) -> None:
        """Send the entry of a step once the window has room; return before the receipt comes.

        Raises: RetryError, RefusedError, DeduplicationError when this or an earlier entry failed.
        """
        assert step.entry is not None, "steps without an entry have nothing to send"
        entry, connection = step.entry, self._producers.connection
        await self._window.wait_room(len(entry.data))
        self._window.add(entry.sequence_id, len(entry.data), step)
        connection.write(
            requests.send(self._producer_id, entry.sequence_id, entry.highest_sequence_id, entry.messages, entry.data)
        )
        await connection.wait_writable()

    async def wait_receipts(self) -> None:
        """Return when the broker has stored every entry sent. Raises: as `send`."""
        await self._window.wait_empty()

    async def close(self) -> None:
        """Close the producer, so that its name is free. Raises: RefusedError, RetryError."""
        await self._producers.close(self._producer_id)

    def _stored(self, step: ImportStep, receipt: Receipt) -> None:
        assert step.entry is not None, "only entries are sent"
        if receipt.is_new and step.confirms:
            raise DeduplicationError(
                f"the broker took sequence id {step.entry.sequence_id} of {self.name} a second time, although it named "
                "it as its last one: its deduplication does not work, nothing can be promised"
            )
        self.on_stored(step, receipt.is_new)
