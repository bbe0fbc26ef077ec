"""The events of one namespace's topic policies as this broker has read them.

A reader of the compacted topic ``__change_events`` reads all stored events and continues with new events. When its
connection ends, the log looks up the owner again and continues behind the last event that it applied; until then the
last policies stay in force. The log ends when the topic is deleted, and begins again when the topic has been created
anew meanwhile. While the metadata service, which has the time of creation, does not answer, a log that has read all
events continues, and looks later whether the topic is another topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from magnetar.broker.clustering.policy_events import NOTHING, Scopes, event_schema, read_event
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.schemas.avro_schema import SchemaTextError, parse_schema
from magnetar.broker.schemas.avro_values import AvroValueError, AvroValues
from magnetar.broker.schemas.work import SchemaWorkError
from magnetar.client.errors import ClientError, RetryError
from magnetar.client.lookup import find_owner, partitions
from magnetar.protocol.topic_name import POLICY_EVENTS, TopicName
from magnetar.storage.errors import StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.clustering.peer_client import PeerClient
    from magnetar.broker.schemas.schema_store import StoredSchema
    from magnetar.broker.tasks import TaskSet
    from magnetar.client.messages import ReceivedMessage
    from magnetar.client.readers import Readers

__all__ = ["EventTopics", "PolicyLog", "events_topic"]

log = structlog.get_logger(__name__)

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_READ_WITHIN_S: Final = 30.0
_CLOSED_WITHIN_S: Final = 1.0
_CREATION_WITHIN_S: Final = 3.0
"""The longest wait of a log that has read all events for the time of creation."""
_LOOK_AGAIN_S: Final = 5.0
"""The pause before another look at the time of creation when the metadata service did not answer."""
_MOST_EVENT_BYTES: Final = 1 << 20
_SCHEMAS_REMEMBERED: Final = 16


class EventTopics(Protocol):
    """The topics, as far as a log uses them."""

    def events_exist(self, namespace: str) -> bool:
        """Whether the topic of events has been created, or a partition of it."""
        ...

    def events_created(self, topic: TopicName) -> None:
        """The topic of events has been created."""
        ...

    async def events_created_ms(self, topic: TopicName) -> int:
        """When the topic of events, or a partition of it, was created; 0 if it does not exist. Raises StorageError."""
        ...

    async def events_schemas(self, topic: TopicName) -> list[StoredSchema]:
        """Every version of the topic's schema."""
        ...


def events_topic(namespace: str) -> TopicName:
    return TopicName.parse(f"persistent://{namespace}/{POLICY_EVENTS}")


class _Part:
    """The topic of events, or one partition of it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last = (-1, -1)
        """The last event that was applied."""
        self.created_ms = 0
        """When the topic was created whose events were applied."""
        self.readers: Readers | None = None
        self.reader_id = 0
        self._moved = asyncio.Event()

    def is_of_another(self, created_ms: int) -> bool:
        """Whether the events that were applied are those of another topic than the topic created at this time."""
        return 0 not in (self.created_ms, created_ms) and created_ms != self.created_ms

    def applied(self, message: ReceivedMessage) -> None:
        self.last = message.ledger_id, message.entry_id
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def wait_applied(self, last: tuple[int, int]) -> None:
        while last[1] >= 0 and self.last < last:
            await self._moved.wait()


_Queue = asyncio.Queue[tuple[_Part, "ReceivedMessage | ClientError"]]


class _Feed(NamedTuple):
    """``ReaderEvents`` of one reader: queues all arriving events. The permits that the broker has bound the queue."""

    part: _Part
    queue: _Queue

    def on_message(self, message: ReceivedMessage) -> None:
        self.queue.put_nowait((self.part, message))

    def on_closed(self, error: ClientError) -> None:
        self.queue.put_nowait((self.part, error))


class PolicyLog:
    """The policies of one namespace. The log calls ``on_change(topic)`` for each change, after it has read
    all of them.
    """

    def __init__(
        self,
        namespace: str,
        peers: PeerClient,
        topics: EventTopics,
        on_change: Callable[[TopicName], None],
        tasks: TaskSet,
    ) -> None:
        self.namespace = namespace
        self.is_complete = False
        """Set when all events that were stored at the start of the reading are applied."""
        self.has_ended = False
        self._name = events_topic(namespace)
        self._peers, self._topics, self._on_change = peers, topics, on_change
        self._known: dict[str, Scopes] = {}
        self._parts: list[_Part] = []
        self._queue: _Queue = asyncio.Queue()
        self._schemas: OrderedDict[bytes, AvroValues] = OrderedDict()
        self._complete = asyncio.Event()
        self._reader_came = asyncio.Event()
        self._problem = "it was not read yet"
        self._looked = False
        """Whether the readers are known to read the topic that the parts name."""
        self._task = tasks.spawn(self._follow(), "policies.follow")

    # --- queries -------------------------------------------------------------------------------------------------

    def get(self, topic: str) -> Scopes | None:
        return self._known.get(topic)

    async def wait_complete(self) -> None:
        """Raises ServiceNotReadyError."""
        try:
            await asyncio.wait_for(self._complete.wait(), _READ_WITHIN_S)
        except TimeoutError:
            raise self._not_read() from None

    async def catch_up(self) -> None:
        """Return when all events that are stored now are applied. Raises ServiceNotReadyError."""
        try:
            async with asyncio.timeout(_READ_WITHIN_S):
                while not await self._has_caught_up():
                    await self._reader_came.wait()
        except TimeoutError as error:
            raise self._not_read() from error

    async def _has_caught_up(self) -> bool:
        """Wait for the events that are stored now; return False when a reader's connection ended meanwhile, or a broker
        refused to name its last event: the log then opens its readers again.
        """
        await self._complete.wait()
        if self.has_ended:
            return True
        if not self._reader_came.is_set():
            return False
        queue = self._queue
        try:
            for part in self._parts:
                if part.readers is None:
                    return False
                await part.wait_applied(await part.readers.last_message(part.reader_id))
        except ClientError as error:
            self._problem = str(error)
            if queue is self._queue:
                self._reader_came.clear()
                queue.put_nowait((part, error))
            return False
        return True

    def _not_read(self) -> ServiceNotReadyError:
        return ServiceNotReadyError(f"Policies of topics in {self.namespace} cannot be read: {self._problem}")

    def stop(self) -> None:
        """Stop following at once; the broker removes the reader when the connection ends."""
        self._end()
        self._task.cancel()

    async def close(self) -> None:
        """Stop following, and close the reader at its broker."""
        self.stop()
        await asyncio.wait([self._task])
        await self._close_readers()

    async def _close_readers(self) -> None:
        closings = []
        for part in self._parts:
            readers, part.readers = part.readers, None
            if readers is not None:
                closings.append(readers.close(part.reader_id))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSED_WITHIN_S):  # all are sent, even when a broker does not answer
                await asyncio.gather(*closings, return_exceptions=True)

    # --- reading -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self.has_ended = True
        self._reader_came.set()
        self._complete.set()

    async def _follow(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self.has_ended:
            try:
                self._queue = await self._attach()
                self._reader_came.set()
                pause = _FIRST_PAUSE_S
                await self._read(self._queue)
            except ClientError as error:
                self._problem = str(error)
                log.info("policies.not_followed", namespace=self.namespace, reason=self._problem)
            except StorageError as error:
                self._problem = str(error)
                log.warning("policies.not_read", namespace=self.namespace, reason=self._problem)
            self._reader_came.clear()
            await self._close_readers()  # when one part has lost its reader, those of the others are still open
            if not self._topics.events_exist(self.namespace):
                self._end()
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _attach(self) -> _Queue:
        """Open a reader for the topic, or for each partition. Raises ClientError, StorageError."""
        peers, pool = self._peers, self._peers.connections
        queue: _Queue = asyncio.Queue()
        count = await partitions(await pool.get(peers.service), str(self._name), absent_ok=True)
        names = [f"{self._name}-partition-{index}" for index in range(count)] or [str(self._name)]
        created = await self._created_ms(names)
        known = {part.topic: part for part in self._parts}
        if created is None and not all(name in known for name in names):
            raise RetryError("the metadata service does not answer")
        self._parts = [known.get(name) or _Part(name) for name in names]
        if created is not None and self._are_of_others(created):
            self._forget()
            self._parts = [_Part(name) for name in names]
        for part, time_ms in zip(self._parts, created or [0] * len(names), strict=True):
            part.created_ms = time_ms or part.created_ms
            readers = await pool.readers(await find_owner(pool, peers.service, part.topic))
            part.reader_id = await readers.open(part.topic, _Feed(part, queue), after=part.last, read_compacted=True)
            part.readers = readers
        self._looked = created is not None
        if self._looked and await self._created_ms(names) != created:
            raise RetryError("the topic of events was created anew meanwhile")
        return queue

    def _are_of_others(self, created: list[int]) -> bool:
        """Whether a topic created at this time is another topic than the topic whose events were applied."""
        return any(each.is_of_another(time_ms) for each, time_ms in zip(self._parts, created, strict=True))

    async def _created_ms(self, names: list[str]) -> list[int] | None:
        """Return the times of creation. None, for a log that has read all events: the metadata service does not answer
        at once. Raises StorageError.
        """
        try:
            async with asyncio.timeout(_CREATION_WITHIN_S if self.is_complete else None):
                return [await self._topics.events_created_ms(TopicName.parse(name)) for name in names]
        except (TimeoutError, StorageUnavailableError):
            if not self.is_complete:
                raise
            return None

    async def _look(self) -> None:
        """Look whether the readers, which were opened while the metadata service did not answer, read another topic
        than before. Raises RetryError: they do.
        """
        created = await self._created_ms([part.topic for part in self._parts])
        if created is not None and self._are_of_others(created):
            raise RetryError("the topic of events was created anew meanwhile")
        self._looked = created is not None

    async def _next(self, queue: _Queue) -> tuple[_Part, ReceivedMessage | ClientError]:
        while not self._looked:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    return await queue.get()
            await self._look()
        return await queue.get()

    def _forget(self) -> None:
        """Drop the policies of a topic of events that was deleted: the namespace, or the topic, has been created anew
        since then.
        """
        log.info("policies.begun_anew", namespace=self.namespace)
        self.is_complete = False
        self._complete.clear()
        former, self._known = self._known, {}
        for topic in former:
            self._on_change(TopicName.parse(topic))

    async def _read(self, queue: _Queue) -> None:
        """Apply arriving events, until a reader ends. Raises ClientError."""
        ends = {}
        for part in self._parts:
            assert part.readers is not None, "attached"
            ends[part] = await part.readers.last_message(part.reader_id)
        while True:
            if not self.is_complete and all(end[1] < 0 or part.last >= end for part, end in ends.items()):
                self.is_complete = True
                self._complete.set()
                for topic in self._known:
                    self._on_change(TopicName.parse(topic))
            part, message = await self._next(queue)
            if isinstance(message, ClientError):
                raise message
            await self._apply(part, message)
            part.applied(message)

    async def _apply(self, part: _Part, message: ReceivedMessage) -> None:
        """Apply one event; log an event that cannot be read and skip it."""
        value = None
        if message.payload and not message.null_value:
            try:
                value = (await self._values(message)).decode(message.payload)
            except (AvroValueError, SchemaTextError, SchemaWorkError) as error:
                place = f"{message.ledger_id}:{message.entry_id}"
                log.warning("policies.event_unreadable", topic=part.topic, position=place, reason=str(error))
                return
        event = read_event(message.key_text, value)
        if event is None:
            return
        before = self._known.get(str(event.topic), NOTHING)
        own, everywhere = before.own, before.everywhere
        if event.all_clusters:
            everywhere = event.policies
        else:
            own = event.policies
        if own is None and everywhere is None:
            self._known.pop(str(event.topic), None)
        else:
            self._known[str(event.topic)] = Scopes.of(own, everywhere)
        if self.is_complete:
            self._on_change(event.topic)

    async def _values(self, message: ReceivedMessage) -> AvroValues:
        """Return the schema with which the event was written. Raises AvroValueError, StorageError."""
        if len(message.payload) > _MOST_EVENT_BYTES:
            raise AvroValueError(f"an event of {len(message.payload)} bytes")
        version = message.schema_version
        known = self._schemas.get(version)
        if known is None:
            text = event_schema()
            if version:
                found = await self._topics.events_schemas(self._name)
                number = int.from_bytes(version, "big")
                text = next((each.data for each in found if each.version == number), b"")
            if text != event_schema():
                parse_schema(text)
            known = self._schemas[version] = AvroValues(json.loads(text))
            if len(self._schemas) > _SCHEMAS_REMEMBERED:
                self._schemas.popitem(last=False)
        return known
