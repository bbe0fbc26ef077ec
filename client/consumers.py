"""A consumer of a topic and its partitions: receives pushed messages, acknowledges, and reconnects after a lost
connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from magnetar.client.connection import open_connection
from magnetar.client.errors import ClientError, RetryError, retrying
from magnetar.client.lookup import open_at_owner, partitions, topics_like
from magnetar.client.messages import EntryReader, ReceivedMessage
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.message_id import signed, unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.client.address import Address, Credentials
    from magnetar.client.connection import BrokerConnection
    from magnetar.client.encryption import Decrypting
    from magnetar.protocol.answers import Answer

_TYPE = pb.BaseCommand
_CONSUMER_ID = 1
DISCOVERY_S = 60.0
PERMITS = 500
"""Messages requested in advance, divided among the partitions."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The subscription that a client asks for.

    durable: whether the broker keeps the subscription after the consumer leaves.
    start: ledger and entry, for subscriptions that are not durable; None leaves the choice to `earliest`.
    inclusive: deliver the entry at `start`, too.
    is_pattern: `topic` is a regular expression for whole topic names; topics created later match, too.
    start_time_ms: skip messages published before this time; a durable subscription is moved by a seek. 0: no limit.
    creates_topic: the broker may create an absent topic; else the topic is refused. Partitions of a partitioned topic
    that exists are always created: a broker deletes inactive partitions, and the topic remains.
    parts: the partitions to attach to; empty for all.
    """

    topic: str
    subscription: str
    kind: int = pb.CommandSubscribe.Exclusive
    durable: bool = True
    earliest: bool = False
    start: tuple[int, int] | None = None
    inclusive: bool = False
    rollback_s: int = 0
    read_compacted: bool = False
    replicated: bool = False
    is_pattern: bool = False
    start_time_ms: int = 0
    creates_topic: bool = True
    parts: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)

    def command(self) -> pb.CommandSubscribe:
        """Return a SUBSCRIBE command without ids and topic."""
        begin = pb.CommandSubscribe.Earliest if self.earliest else pb.CommandSubscribe.Latest
        wanted = pb.CommandSubscribe(
            topic="",
            request_id=0,
            consumer_id=0,
            subscription=self.subscription,
            subType=self.kind,  # type: ignore[arg-type]
            durable=self.durable,
            initialPosition=begin,
            read_compacted=self.read_compacted,
            replicate_subscription_state=self.replicated,
            force_topic_creation=self.creates_topic,
        )
        if not self.durable:
            place = self.start if self.start is not None else ((-1, -1) if self.earliest else (2**63 - 1, 2**63 - 1))
            wanted.start_message_id.CopyFrom(pb.MessageIdData(ledgerId=unsigned(place[0]), entryId=unsigned(place[1])))
            wanted.start_message_rollback_duration_sec = self.rollback_s
        for key, value in self.properties.items():
            wanted.subscription_properties.add(key=key, value=value)
        for name in ("topic", "request_id", "consumer_id"):
            wanted.ClearField(name)
        return wanted


class _Part:
    """One topic or partition of a consumer."""

    def __init__(
        self,
        topic: str,
        wanted: Wanted,
        queue: asyncio.Queue[ReceivedMessage | ClientError],
        permits: int,
        decrypting: Decrypting | None,
    ) -> None:
        self.topic, self.wanted, self._decrypting = topic, wanted, decrypting
        self.connection: BrokerConnection | None = None
        self.ended = asyncio.Event()
        self.arrived = (-1, -1)
        """Ledger and entry of the entry that came last, whether it made a message or not."""
        self._queue = queue
        self._reader = EntryReader(topic, decrypting)
        self._permits, self._taken = permits, 0

    async def attach(self, service: Address, credentials: Credentials) -> None:
        """Subscribe at the broker that serves the topic and request messages.

        Raises: RefusedError, RetryError, InputError.
        """
        connection = await open_at_owner(service, credentials, self.topic, entry_metadata=True)
        ended = asyncio.Event()

        def lost() -> None:
            connection.close()
            if self.connection is connection:
                self.connection = None
            ended.set()

        try:
            connection.subscribers[_TYPE.MESSAGE] = self._on_message
            connection.subscribers[_TYPE.CLOSE_CONSUMER] = lambda _: lost()
            connection.subscribers[_TYPE.ACTIVE_CONSUMER_CHANGE] = lambda _: None
            connection.subscribers[_TYPE.REACHED_END_OF_TOPIC] = lambda _: None
            connection.on_lost = lambda _: lost()
            command = self.wanted.command()
            await connection.ask(partial(_subscribe, topic=self.topic, command=command))
            if not ended.is_set():  # the broker may close the consumer together with its answer
                connection.write(requests.flow(_CONSUMER_ID, self._permits))
                self.connection = connection
        except BaseException:
            connection.close()
            raise
        self._reader, self._taken = EntryReader(self.topic, self._decrypting), 0
        self.ended = ended

    async def seek(self, service: Address, credentials: Credentials, publish_time_ms: int) -> None:
        """Move the subscription to a publish time, on a separate connection: the broker closes all consumers then.

        Raises: RefusedError, RetryError, InputError.
        """
        connection = await open_at_owner(service, credentials, self.topic)
        try:
            connection.subscribers[_TYPE.CLOSE_CONSUMER] = lambda _: None
            connection.subscribers[_TYPE.ACTIVE_CONSUMER_CHANGE] = lambda _: None
            connection.subscribers[_TYPE.REACHED_END_OF_TOPIC] = lambda _: None
            command = self.wanted.command()
            await connection.ask(partial(_subscribe, topic=self.topic, command=command))
            await connection.ask(
                partial(requests.seek_to_time, consumer_id=_CONSUMER_ID, publish_time_ms=publish_time_ms)
            )
        finally:
            await connection.wait_closed()

    def _on_message(self, answer: Answer) -> None:
        message = answer.command.message
        self.arrived = signed(message.message_id.ledgerId), signed(message.message_id.entryId)
        found = list(self._reader.messages(message.message_id, answer.entry, message.redelivery_count))
        acknowledged = _acknowledged(message.ack_set)
        kept = [each for each in found if each.batch_index not in acknowledged and self._is_wanted(each)]
        indexes = frozenset(each.batch_index for each in kept)
        for each in kept:
            self._queue.put_nowait(each._replace(batch_delivered=indexes))
        # An acknowledged message used no permit. Some messages of the entry may be no messages here: those that were
        # compacted away or are unwanted, those of an encrypted batch but one, a chunk before the last.
        declared = self._reader.declared
        used = declared - sum(1 for index in acknowledged if index < declared)
        if used > len(kept):
            self.took(used - len(kept))

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        """Whether the message lies behind the start.

        The broker may send the entry at `start` although the reader begins behind it, and messages older than
        `start_time_ms`.
        """
        start = self.wanted.start
        if not self.wanted.durable and message.publish_time_ms < self.wanted.start_time_ms:
            return False
        return start is None or self.wanted.inclusive or (message.ledger_id, message.entry_id) != start

    def took(self, messages: int) -> None:
        """Count messages that left the queue; request as many more once half of the permits are used."""
        self._taken += messages
        if self.connection is not None and self._taken >= max(1, self._permits // 2):
            with contextlib.suppress(ClientError):
                self.connection.write(requests.flow(_CONSUMER_ID, self._taken))
            self._taken = 0


def _subscribe(request_id: int, topic: str, command: pb.CommandSubscribe) -> bytes:
    """Return the frame of `command`, completed with the ids and the topic."""
    complete = pb.CommandSubscribe(topic=topic, consumer_id=_CONSUMER_ID, request_id=request_id)
    complete.MergeFrom(command)
    return requests.subscribe(complete)


def _acknowledged(ack_set: Iterable[int]) -> set[int]:
    """Return the batch indexes that are acknowledged already: the bits of the ack set that are not set."""
    words = [unsigned(word) for word in ack_set]
    return {64 * at + bit for at, word in enumerate(words) for bit in range(64) if not word >> bit & 1}


class TopicConsumer:
    """A consumer; open it with `async with`. `receive` returns messages of all partitions, each partition in its order.

    patience_s: how long a durable subscription tries to reconnect before `receive` raises. Without `durable`, a lost
    connection makes `receive` raise at once.
    """

    def __init__(
        self,
        service: Address,
        credentials: Credentials,
        wanted: Wanted,
        patience_s: float = 60.0,
        decrypting: Decrypting | None = None,
    ) -> None:
        self._service, self._credentials, self._wanted = service, credentials, wanted
        self._patience_s, self._decrypting = patience_s, decrypting
        self._queue: asyncio.Queue[ReceivedMessage | ClientError] = asyncio.Queue()
        self._parts: dict[str, _Part] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._acknowledged: dict[tuple[str, int, int], set[int]] = defaultdict(set)

    async def __aenter__(self) -> Self:
        """Attach to the topic, its partitions, or those of a pattern. Raises: RefusedError, RetryError, InputError."""
        names = await self._names()
        try:
            await self._attach(names, max(1, PERMITS // max(1, len(names))))
        except BaseException:
            await self.__aexit__()
            raise
        if self._wanted.is_pattern:
            self._keepers.append(asyncio.create_task(self._discover()))
        return self

    async def _names(self) -> list[str]:
        """Return the matching topics that exist now, or the wanted partitions of the topic."""
        if self._wanted.parts:
            return list(self._wanted.parts)
        connection = await open_connection(self._service, self._credentials)
        try:
            if self._wanted.is_pattern:
                return await topics_like(connection, self._wanted.topic)
            count = await partitions(connection, self._wanted.topic, create=self._wanted.creates_topic)
        finally:
            connection.close()
        if not count:
            return [self._wanted.topic]
        self._wanted = replace(self._wanted, creates_topic=True)
        return [f"{self._wanted.topic}-partition-{index}" for index in range(count)]

    async def _attach(self, names: Iterable[str], permits: int) -> None:
        for name in names:
            part = _Part(name, self._wanted, self._queue, permits, self._decrypting)
            if self._wanted.start_time_ms and self._wanted.durable:
                await part.seek(self._service, self._credentials, self._wanted.start_time_ms)
            await part.attach(self._service, self._credentials)
            self._parts[name] = part
            self._keepers.append(asyncio.create_task(self._keep(part)))

    async def _discover(self) -> None:
        """Once a minute, attach to matching topics that are new, as the clients of Apache Pulsar do."""

        async def look() -> None:
            names = await self._names()
            await self._attach([name for name in names if name not in self._parts], PERMITS // 10)

        while True:
            await asyncio.sleep(DISCOVERY_S)
            try:
                await retrying(look, self._patience_s)
            except ClientError as error:
                self._queue.put_nowait(error)
                return

    async def __aexit__(self, *_: object) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        for part in self._parts.values():
            if part.connection is not None:
                part.connection.on_lost = lambda _: None
                with contextlib.suppress(ClientError):
                    await part.connection.ask(partial(requests.close_consumer, consumer_id=_CONSUMER_ID))
                if part.connection is not None:
                    part.connection.close()

    async def receive(self) -> ReceivedMessage:
        """The next message. Raises: ClientError when a partition is lost for good."""
        found = await self._queue.get()
        if isinstance(found, ClientError):
            raise found
        self._parts[found.topic].took(1)
        return found

    def arrived(self, topic: str) -> tuple[int, int]:
        """Ledger and entry of the entry of the topic that came last; of an incomplete chunked message, of messages that
        were compacted away, no message may follow.
        """
        return self._parts[topic].arrived

    async def acknowledge(self, message: ReceivedMessage) -> None:
        """Return when the broker has kept the acknowledgement.

        The entry of a batch is acknowledged with the last of its delivered messages. While the connection is lost,
        nothing is sent, and the broker delivers the message again.

        Raises: RefusedError, RetryError.
        """
        connection = self._parts[message.topic].connection
        if connection is None:
            return  # the broker sends the message again
        if message.batch_index >= 0:
            key = message.topic, message.ledger_id, message.entry_id
            seen = self._acknowledged[key]
            seen.add(message.batch_index)
            if not seen >= message.batch_delivered:
                return
            del self._acknowledged[key]
        for ledger_id, entry_id in message.entries:
            await connection.ask(
                partial(requests.acknowledge, consumer_id=_CONSUMER_ID, ledger_id=ledger_id, entry_id=entry_id)
            )

    async def _keep(self, part: _Part) -> None:
        """Reattach a durable subscription whenever the connection is lost; put the error into the queue at the end."""

        async def attach() -> None:
            await part.attach(self._service, self._credentials)
            if part.ended.is_set():
                raise RetryError(f"the broker closed the consumer of {part.topic} with its answer")

        while True:
            await part.ended.wait()
            if not self._wanted.durable:
                self._queue.put_nowait(RetryError(f"the connection to the broker of {part.topic} was lost"))
                return
            try:
                await retrying(attach, self._patience_s)
            except ClientError as error:
                self._queue.put_nowait(error)
                return
