"""Sends planned entries to a topic, exactly once by the broker's deduplication, and goes on after lost connections."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from magnetar.client.errors import ClientError, DeduplicationError, RetryError, retrying
from magnetar.client.lookup import find_owner
from magnetar.client.pool import ConnectionPool
from magnetar.client.send_window import SendWindow
from magnetar.pipeline.errors import PipelineError
from magnetar.protocol import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.client.connection import BrokerConnection
    from magnetar.client.producers import OpenedProducer, Producers, Receipt
    from magnetar.converters.kafka_entry.import_plan import ImportStep
    from magnetar.pipeline.connect_options import ConnectOptions


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
    Raises:  RefusedError, DeduplicationError, RetryError after `timeout_s` in which no entry was stored.
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
        window: SendWindow[ImportStep] = SendWindow(partial(_note, sent))
        opened = await producers.open(topic, name, window)
        try:
            await send_all(producers, opened, window)
        except RetryError:
            with contextlib.suppress(ClientError):  # a refused entry leaves the producer, and so its name, in use
                await producers.close(opened.producer_id)
            raise
        await producers.close(opened.producer_id)

    async def send_all(producers: Producers, opened: OpenedProducer, window: SendWindow[ImportStep]) -> None:
        told = opened.last_sequence_id
        resume_after = told if told >= 0 else await asyncio.to_thread(stored_before)
        try:
            for step in steps(resume_after, told >= 0):
                await _send_one(producers.connection, opened.producer_id, window, step)
        except PipelineError:
            await window.wait_empty()
            raise
        await window.wait_empty()

    async def attempts() -> None:
        while True:
            stored = sent.stored
            try:
                return await retrying(attempt, timeout_s)
            except RetryError:
                if sent.stored == stored:
                    raise

    try:
        await attempts()
    finally:
        await pool.wait_closed()
    return sent


async def _send_one(
    connection: BrokerConnection, producer_id: int, window: SendWindow[ImportStep], step: ImportStep
) -> None:
    entry = step.entry
    assert entry is not None, "only entries are sent"
    await window.wait_room(len(entry.data))
    window.add(entry.sequence_id, len(entry.data), step)
    connection.write(
        requests.send(producer_id, entry.sequence_id, entry.highest_sequence_id, entry.messages, entry.data)
    )
    await connection.wait_writable()


def _note(sent: Sent, step: ImportStep, receipt: Receipt) -> None:
    """Count a receipt. Raises: DeduplicationError when the topic has stored an entry a second time."""
    assert step.entry is not None, "only entries are sent"
    if not receipt.is_new:
        sent.known += step.entry.messages
    elif step.confirms:
        raise DeduplicationError(
            "the topic stored an entry a second time: its deduplication was switched off meanwhile"
        )
    else:
        sent.stored += step.entry.messages
