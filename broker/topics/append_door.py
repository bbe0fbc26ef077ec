"""The door for the broker's own entries: entries of protocol handlers, dead letters.

A protocol handler (such as a Kafka listener) stores the received bytes unchanged:

    door = AppendDoor(broker.topics, now_ms)
    position = await door.append_foreign(name, Foreign("kafka", record_batch, messages=span))

The entry passes every stage that a client's publish passes after its producer: state of the topic, maxMessageSize,
order, broker entry metadata and index, cursors, delay. Deduplication only records the entry and refuses no duplicate (a
handler's protocol has its own deduplication). No rate limit delays the entry: the handler enforces rate limits itself.
"""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import PersistenceError
from magnetar.broker.topics.topic import Topic
from magnetar.converters.entry import ENTRY_FORMAT, Entry, build_entry, entry_format
from magnetar.protocol.message_id import signed
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
from magnetar.protocol.runs import EntryFlag, EntryRun
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.managed.managed_ledger import AppendResult


@dataclass(frozen=True, slots=True)
class Foreign:
    """An entry in a foreign format.

    messages: its number of messages (num_messages_in_batch), for permits, indexes and acknowledgements. None: the entry
        is a single message and no batch.
    publish_time: ms since 1970; None: now.
    """

    entry_format: str
    payload: bytes
    messages: int | None = None
    publish_time: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    producer_name: str = ""
    sequence_id: int = 0

    def encode(self, now_ms: int) -> bytes:
        """Headers and payload, checksum included."""
        metadata = MessageMetadata(
            producer_name=self.producer_name,
            sequence_id=self.sequence_id,
            publish_time=now_ms if self.publish_time is None else self.publish_time,
        )
        metadata.properties.add(key=ENTRY_FORMAT, value=self.entry_format)
        for key, value in self.properties.items():
            metadata.properties.add(key=key, value=value)
        if self.messages is not None:
            metadata.num_messages_in_batch = self.messages
        return build_entry(metadata.SerializeToString(), self.payload)


class AppendDoor:
    """Appends entries to topics, without a client."""

    def __init__(self, topics: Topics, now_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._now_ms = now_ms

    async def append_foreign(self, name: TopicName, foreign: Foreign) -> Position:
        """Store an entry in a foreign format; converters translate it for Pulsar clients.

        Raises: as `append`.
        """
        return await self.append(name, foreign.encode(self._now_ms()))

    async def append(self, name: TopicName, entry: bytes) -> Position:
        """Store headers and payload unchanged; durable on return. Entries are stored in the order of the calls.

        Returns the position; (0, 0) for a non-persistent topic.
        Raises: TopicNotFoundError and others of `Topics.get`, ServiceNotReadyError, TopicTerminatedError,
        NotAllowedError (larger than maxMessageSize), PersistenceError, ProducerBusyError (no room for the name of
        another producer); converters.errors.EntryError for bytes that
        are no entry.
        """
        metadata = Entry(entry).metadata
        topic = await self._topics.get(name, create=True)
        _check(topic, len(entry))
        if isinstance(topic, Topic):
            topic.deduplication.check_name(metadata.producer_name)
        run = _run(entry, metadata)
        stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        producer = InternalProducer(metadata.producer_name)

        def appended(result: AppendResult) -> None:
            if result.error is None:
                topic.publishing.stored(producer, run, 1, result.pieces)
                if isinstance(topic, Topic) and producer.name not in topic.producers.by_name:
                    topic.deduplication.producer_left(producer.name)  # the name is forgotten after a while
                ledger_id, entry_id, _, _ = result.pieces[0]
                outcome: Position | PersistenceError = Position(ledger_id, entry_id)
            else:
                topic.publishing.append_failed(producer, run, 0, result.error)
                outcome = PersistenceError(str(result.error))
            if not stored.done():
                if isinstance(outcome, Position):
                    stored.set_result(outcome)
                else:
                    stored.set_exception(outcome)

        topic.publishing.append(run, appended)
        return await stored


class InternalProducer:
    """The part of a producer that a topic needs, for entries that arrive without a producer connection."""

    producer_id = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def answer(self, data: bytes) -> None:
        """Drop the answer: the caller of the door gets an exception instead."""

    def answer_append(self, data: bytes) -> None:
        """Drop the answer."""

    def spend(self, commands: int) -> None:
        """Count nothing: the door has limits of its own."""


def _check(topic: ServedTopic, size: int) -> None:
    topic.life.check_usable()
    if isinstance(topic, Topic) and topic.ledger.terminated:
        raise wire_refusals.TOPIC_TERMINATED.error()
    if topic.publishing.policy.is_oversize(size):
        raise wire_refusals.MESSAGE_TOO_LARGE.error()


def _run(entry: bytes, metadata: MessageMetadata) -> EntryRun:
    messages = metadata.num_messages_in_batch
    flags = int(EntryFlag.HAS_CHECKSUM)
    if entry_format(metadata) is not None:
        flags |= EntryFlag.NAMES_FORMAT
    if metadata.HasField("num_messages_in_batch"):
        flags |= EntryFlag.BATCHED
    deliver_at = None
    if metadata.HasField("deliver_at_time"):
        flags |= EntryFlag.HAS_DELIVER_AT
        deliver_at = array("q", [metadata.deliver_at_time]).tobytes()
    run = EntryRun.single(entry, sequence_id=signed(metadata.sequence_id), num_messages=messages, flags=flags)
    run.deliver_at = deliver_at
    return run
