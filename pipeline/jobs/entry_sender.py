"""Sends planned entries to a topic, exactly once by the broker's deduplication, and goes on after lost connections."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.errors import DeduplicationError, RefusedError, RetryError
from magnetar.client.lookup import find_owner
from magnetar.client.pool import ConnectionPool
from magnetar.client.retrying import retrying
from magnetar.pipeline.errors import PipelineError
from magnetar.protocol import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.client.connection import BrokerConnection
    from magnetar.client.producers import Receipt
    from magnetar.converters.kafka_entry.import_plan import ImportStep
    from magnetar.pipeline.connect_options import ConnectOptions

_MOST_BYTES = 16 << 20


@dataclass(slots=True)
class Sent:
    """Messages that were stored now, and those that the topic had before."""

    stored: int = 0
    known: int = 0


def send_entries(
    connect: ConnectOptions,
    topic: str,
    name: str,
    steps: Callable[[int, bool], Iterator[ImportStep]],
    stored_before: Callable[[], int],
    *,
    timeout_s: float,
) -> Sent:
    """Send all entries under the producer `name`; all of them are stored on return. Blocks.

    Args:    steps: (resume_after, confirm) -> the entries behind a sequence id, see `ImportPlan`; called again after
                    each lost connection. When it raises, everything that it gave before is stored first.
             stored_before: the highest sequence id of this name in the topic, for a broker that has forgotten it.
    Raises:  RefusedError, DeduplicationError, RetryError after `timeout_s` without success.
    """
    return asyncio.run(_send(connect, topic, name, steps, stored_before, timeout_s))


async def _send(
    connect: ConnectOptions,
    topic: str,
    name: str,
    steps: Callable[[int, bool], Iterator[ImportStep]],
    stored_before: Callable[[], int],
    timeout_s: float,
) -> Sent:
    pool, sent = ConnectionPool(connect.credentials), Sent()

    async def attempt() -> None:
        owner = await find_owner(pool, connect.service, topic)
        producers = await pool.producers(owner)
        window = _Window(sent)
        opened = await producers.open(topic, name, window)
        told = opened.last_sequence_id
        resume_after = told if told >= 0 else await asyncio.to_thread(stored_before)
        try:
            for step in steps(resume_after, told >= 0):
                await _send_one(producers.connection, opened.producer_id, window, step)
        except PipelineError:
            await window.wait_empty()
            raise
        await window.wait_empty()
        await producers.close(opened.producer_id)

    try:
        await retrying(attempt, timeout_s)
    finally:
        await pool.wait_closed()
    return sent


async def _send_one(connection: BrokerConnection, producer_id: int, window: _Window, step: ImportStep) -> None:
    entry = step.entry
    assert entry is not None, "only entries are sent"
    await window.wait_room(len(entry.data))
    window.add(step)
    connection.write(
        requests.send(producer_id, entry.sequence_id, entry.highest_sequence_id, entry.messages, entry.data)
    )
    await connection.wait_writable()


class _Window:
    """Entries without a receipt. Receipts come in the order of the entries."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self._waiting: deque[ImportStep] = deque()
        self._bytes = 0
        self._failure: RefusedError | RetryError | DeduplicationError | None = None
        self._changed = asyncio.Event()

    def add(self, step: ImportStep) -> None:
        assert step.entry is not None
        self._waiting.append(step)
        self._bytes += len(step.entry.data)

    async def wait_room(self, size: int) -> None:
        """Raises: RefusedError, RetryError, DeduplicationError."""
        while self._waiting and self._bytes + size > _MOST_BYTES:
            await self._wait()
        self._ensure_open()

    async def wait_empty(self) -> None:
        """Every entry is stored. Raises: as `wait_room`."""
        while self._waiting:
            await self._wait()
        self._ensure_open()

    async def _wait(self) -> None:
        self._ensure_open()
        self._changed.clear()
        await self._changed.wait()

    def _ensure_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    def on_receipt(self, receipt: Receipt) -> None:
        """An entry is stored, now or before."""
        if not self._waiting or self._failure is not None:
            return
        step = self._waiting[0]
        entry = step.entry
        assert entry is not None
        if receipt.sequence_id != entry.sequence_id:
            self.on_failed(RetryError(f"a receipt for {receipt.sequence_id}, not for {entry.sequence_id}"))
            return
        self._waiting.popleft()
        self._bytes -= len(entry.data)
        if receipt.entry_id < 0:
            self._sent.known += entry.messages
        elif step.confirms:
            self._failure = DeduplicationError(
                "the topic stored an entry a second time: its deduplication was switched off meanwhile"
            )
        else:
            self._sent.stored += entry.messages
        self._changed.set()

    def on_failed(self, error: RefusedError | RetryError) -> None:
        """The connection or the producer is gone, or the broker refuses an entry."""
        self._failure = self._failure or error
        self._changed.set()
