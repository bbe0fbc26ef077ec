"""Dead letters: the broker stores entries that it could not convert in a topic of the subscription, readable for every
client.

The topic is `<topic>-<subscription>-DLQ`, the name that clients use. A letter is a single plain message: its payload is
the stored payload, its properties name its origin and the reason of the failure. It has no `entry.format`, or the
broker would convert the letter too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.errors import BrokerError
from magnetar.broker.topics.append_door import AppendDoor
from magnetar.converters.entry import Entry, build_entry, replace_entry_format
from magnetar.converters.entry import entry_format as format_of
from magnetar.converters.errors import EntryError
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from magnetar.broker.foreign_entries.failures import Failed
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.storage.position import Position

log = structlog.get_logger(__name__)

SUFFIX: Final = "-DLQ"
_MAX_REASON: Final = 500
_NOT_OF_A_LETTER: Final = (
    "num_messages_in_batch",
    "highest_sequence_id",
    "deliver_at_time",
    "txnid_least_bits",
    "txnid_most_bits",
)


@dataclass(frozen=True, slots=True)
class Letter:
    """An entry that the broker no longer tries to convert for one subscription."""

    topic: str
    subscription: str
    position: Position
    entry: bytes
    failed: Failed

    @property
    def address(self) -> TopicName:
        """The dead letter topic. Names of subscriptions may hold slashes, names of topics may not."""
        subscription = self.subscription.replace("/", "%2F")
        return TopicName.parse(f"{TopicName.parse(self.topic).base}-{subscription}{SUFFIX}")


class DeadLetters:
    """Stores dead letters in their topics."""

    def __init__(self, topics: Topics, tasks: TaskSet, now_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._door = AppendDoor(topics, now_ms)
        self._tasks = tasks
        self._now_ms = now_ms

    def send(self, letter: Letter) -> asyncio.Future[bool]:
        """Store the letter. The result is True once the letter is durable, False when the broker could not store it."""
        return self._tasks.spawn(self._send(letter), "converting.dead_letter")

    async def _send(self, letter: Letter) -> bool:
        address = letter.address
        try:
            await self._topics.create(address)  # whatever the rules of auto creation
            await self._door.append(address, write(letter, self._now_ms()))
        except (BrokerError, StorageError) as error:
            log.error(  # noqa: TRY400 - an operator reads it, no traceback needed
                "dead_letter.failed", topic=letter.topic, address=str(address), reason=str(error)
            )
            return False
        return True


def write(letter: Letter, now_ms: int) -> bytes:
    """The entry of the dead letter: the stored payload, with the metadata of a plain message."""
    metadata, payload = MessageMetadata(), b""
    try:
        entry = Entry(letter.entry)
        metadata.CopyFrom(entry.metadata)
        payload = bytes(entry.payload)
    except EntryError:
        payload = letter.entry
    failure = letter.failed.failure
    properties = {
        "REAL_TOPIC": letter.topic,
        "REAL_SUBSCRIPTION": letter.subscription,
        "ORIGIN_MESSAGE_ID": f"{letter.position.ledger_id}:{letter.position.entry_id}",
        "conversion.reason": str(failure.reason),
        "conversion.converter": failure.converter,
        "conversion.message": failure.message[:_MAX_REASON],
        "conversion.attempts": str(letter.failed.attempts),
        "conversion.messages": str(metadata.num_messages_in_batch),
    }
    replace_entry_format(metadata, format_of(metadata) or "unknown")
    for name, value in properties.items():
        metadata.properties.add(key=name, value=value)
    for field in _NOT_OF_A_LETTER:
        metadata.ClearField(field)
    metadata.producer_name = metadata.producer_name or "magnetar.converters"
    metadata.sequence_id = metadata.sequence_id  # a required field: the assignment makes it present
    metadata.publish_time = now_ms
    return build_entry(metadata.SerializeToString(), payload)
