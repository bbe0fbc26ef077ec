"""Publishes messages that came too often to a dead letter topic, and acknowledges them (maxRedeliverCount).

As in Apache Pulsar's clients, the client gets a message with the redelivery count maxRedeliverCount once more; when the
message would then be redelivered again, the session publishes it to the dead letter topic. The producer of that topic
has the rights of the session's role.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from magnetar.broker.slices import give_way
from magnetar.broker.websocket.errors import RequestFailedError
from magnetar.broker.websocket.outstanding import PlacesOfParts
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.batches import encode_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.memory_account import MemoryShare
    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.websocket.incoming import Incoming
    from magnetar.broker.websocket.link import Link
    from magnetar.broker.websocket.outstanding import Outstanding, Place
    from magnetar.protocol.answers import Answer

log = structlog.get_logger(__name__)
_TYPE = pb.BaseCommand
_PRODUCER_ID: Final = 1 << 20
MOST_KEPT_BYTES: Final = 16 << 20
"""Limit of the bytes of entries kept for the dead letter topic; beyond it the session drops the oldest of these
entries, and the broker redelivers them instead. The same holds beyond the session's share of memory.
"""
_A_TURN: Final = 64
"""Messages that a session publishes in one turn of the event loop; a message of many bytes counts as several."""
_MESSAGE_UNIT: Final = 14
"""A message counts once more for each 2^14 bytes (16 KiB) of its weight."""
_PROPERTIES_UNIT: Final = 8
"""And once more for each 2^8 of its properties: tens of thousands of them take as many ms as all other work."""
_UNIT: Final = 16
"""The account counts the bytes in steps of 2^16 (64 KiB)."""


class Part(Protocol):
    """One partition of the session's topic."""

    topic: str
    partition: int


class Owner(Protocol):
    """The part of a consumer session that dead letters need."""

    link: Link
    tasks: TaskSet
    outstanding: Outstanding
    share: MemoryShare

    @property
    def subscription(self) -> str: ...

    @property
    def parts(self) -> Sequence[Part]: ...

    def now_ms(self) -> int: ...

    def redeliver(self, places: list[Place]) -> None:
        """Request the redelivery of entries from the broker."""

    def redeliver_later(self, place: Place) -> None:
        """The same for an entry that could not be published, after a pause."""


@dataclass(slots=True)
class _Publication:
    """One attempt to publish an entry. `left`: its messages that are not stored yet."""

    place: Place
    left: int
    failed: bool = False


class DeadLetters:
    """The dead letters of one consumer session."""

    def __init__(self, session: Owner, topic: str, most: int) -> None:
        self._session = session
        self.topic = topic
        self._most = most
        self._kept: OrderedDict[Place, list[Incoming]] = OrderedDict()
        self._parts = PlacesOfParts()
        self._waiting: dict[int, _Publication] = {}  # by sequence id
        self._kept_bytes = 0
        self._sequence_id = 0
        self._due: deque[tuple[Place, list[Incoming]]] = deque()
        """Entries that are to be published, one by one."""
        self._publishes = False
        self._closings = 0
        self._name: str | None = None

    def takes(self, found: list[Incoming]) -> bool:
        """Keep an entry with the redelivery count `most` or more. Return True for a count above `most`: then the client
        does not get the entry, which goes to the dead letter topic at once.
        """
        count = found[0].redelivery_count
        if count < self._most:
            return False
        place = (found[0].part, *found[0].entry)
        self.forget(place)
        self._kept[place] = found
        self._parts.add(place)
        self._weigh(_weight(found))
        share = self._session.share
        while (self._kept_bytes > MOST_KEPT_BYTES or share.is_over) and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))
        if count > self._most:
            self._session.redeliver([place])
            return True
        return False

    def forget(self, place: Place) -> None:
        """Drop a kept entry, for example an acknowledged entry."""
        if found := self._kept.pop(place, None):
            self._parts.discard(place)
            self._weigh(-_weight(found))

    def forget_part(self, index: int) -> None:
        """Drop the kept entries of a part, whose redelivery counts begin again at 0."""
        for place in list(self._parts.take(index)):
            self.forget(place)

    def _weigh(self, delta: int) -> None:
        self._kept_bytes += delta
        self._session.share.set("dead letters", self._kept_bytes >> _UNIT << _UNIT)

    def send(self, place: Place) -> bool:
        """Publish an entry instead of its redelivery. Return False, without effect, for an entry that is not kept."""
        found = self._kept.pop(place, None)
        if found is None:
            return False
        self._parts.discard(place)
        self._due.append((place, found))
        if not self._publishes:
            self._publishes = True
            self._session.tasks.spawn(self._publish_due(), "websocket.dead_letters")
        return True

    async def _publish_due(self) -> None:
        sent = 0
        try:
            while self._due:
                place, found = self._due.popleft()
                try:
                    await self._open()
                except RequestFailedError as e:
                    log.warning("websocket.no_dead_letters", topic=self.topic, reason=e.message)
                    self._session.redeliver_later(place)
                else:
                    sent = await self._publish(place, found, sent)
                finally:
                    self._weigh(-_weight(found))
        finally:
            self._publishes = False

    async def _publish(self, place: Place, found: list[Incoming], sent: int) -> int:
        """Publish an entry behind `sent` other messages of this turn, with a turn of the event loop after each _A_TURN
        messages; return the number of messages since.
        """
        publication, closings = _Publication(place, len(found)), self._closings
        for message in found:
            if self._closings != closings:
                self._fail(publication)
            if publication.failed:
                break
            self._sequence_id += 1
            self._waiting[self._sequence_id] = publication
            entry = self._entry(message)
            self._session.link.send(requests.send(_PRODUCER_ID, self._sequence_id, self._sequence_id, 1, entry))
            sent += _cost(message)
            if sent >= _A_TURN:
                sent = 0
                await give_way()
        return sent

    async def _open(self) -> None:
        """Create the producer unless it exists. Raises RequestFailedError."""
        if self._name is not None:
            return
        link, closings = self._session.link, self._closings
        link.subscribers |= {
            _TYPE.SEND_RECEIPT: self._on_receipt,
            _TYPE.SEND_ERROR: self._on_error,
            _TYPE.CLOSE_PRODUCER: self._on_closed,
        }
        answer = await link.ask(lambda request_id: requests.producer(request_id, _PRODUCER_ID, self.topic, None))
        if self._closings != closings:
            raise RequestFailedError(pb.ServiceNotReady, "the dead letter topic was unloaded meanwhile")
        self._name = answer.producer_name

    def _entry(self, message: Incoming) -> bytes:
        session = self._session
        part = session.parts[message.part]
        own = f"{message.entry[0]}:{message.entry[1]}:{part.partition}"
        if message.batch_size:
            own += f":{message.batch_index}"
        metadata = pb.MessageMetadata(
            producer_name=self._name or "", sequence_id=self._sequence_id, publish_time=session.now_ms()
        )
        added = {
            "REAL_TOPIC": part.topic,
            "ORIGIN_MESSAGE_ID": own,
            "ORIGIN_MESSAGE_IDY_TIME": own,
            "REAL_SUBSCRIPTION": session.subscription,
        }
        for key, value in {**message.properties, **added}.items():
            metadata.properties.add(key=key, value=value)
        source = message.metadata if message.single is None else message.single
        if source.HasField("partition_key"):
            metadata.partition_key = source.partition_key
            metadata.partition_key_b64_encoded = source.partition_key_b64_encoded
        if source.HasField("ordering_key"):
            metadata.ordering_key = source.ordering_key
        metadata.event_time = source.event_time
        metadata.uncompressed_size = len(message.payload)
        return encode_entry(metadata, message.payload)

    def _on_receipt(self, answer: Answer) -> None:
        """A message is stored in the dead letter topic; when all messages of its entry are, acknowledge the entry."""
        publication = self._waiting.pop(answer.command.send_receipt.sequence_id, None)
        if publication is None:
            return
        publication.left -= 1
        if not publication.left and not publication.failed:
            place, session = publication.place, self._session
            session.link.send(requests.ack(place[0], place[1:]))
            session.outstanding.acknowledge(place, -1, is_batch=False)

    def _on_error(self, answer: Answer) -> None:
        publication = self._waiting.pop(answer.command.send_error.sequence_id, None)
        if publication is not None:
            self._fail(publication)

    def _on_closed(self, answer: Answer) -> None:  # noqa: ARG002 - a subscriber
        """The dead letter topic was unloaded: request the redelivery of entries with unstored messages. The next
        publication opens the producer again.
        """
        waiting = list(self._waiting.values())
        self._name = None
        self._closings += 1
        self._waiting.clear()
        for publication in waiting:
            self._fail(publication)

    def _fail(self, publication: _Publication) -> None:
        """Request the redelivery of an entry with an unstored message, once."""
        if not publication.failed:
            publication.failed = True
            self._session.redeliver_later(publication.place)


def _weight(found: list[Incoming]) -> int:
    return found[0].metadata.ByteSize() + sum(message.weight for message in found)


def _cost(message: Incoming) -> int:
    """As how many messages the message counts in a turn."""
    weight = message.weight + (message.metadata.ByteSize() if message.single is None else 0)
    source = message.metadata if message.single is None else message.single
    return 1 + (weight >> _MESSAGE_UNIT) + (len(source.properties) >> _PROPERTIES_UNIT)
