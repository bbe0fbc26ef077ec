"""A consumer over a WebSocket: the session writes messages as texts, and reads acknowledgements and other commands.

    push (default)    the session writes up to receiverQueueSize messages ahead; each acknowledgement, negative or not,
                      makes room for another message
    pull              the session writes as many messages as the client has permitted

The session sends FLOW permits to the broker: in push mode for the receive window, and one more for each
acknowledgement; in pull mode the client's permits, or with several partitions a fixed number of messages fetched ahead.
So few messages wait in the session: these, and the rest of a batch. The session writes no message while the peer does
not read. It consumes partitions that are added to its topics, within a minute and from their first message.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.websocket import session_json
from magnetar.broker.websocket.consumer_part import EARLIEST, LATEST, Part
from magnetar.broker.websocket.dead_letter_topic import DeadLetters
from magnetar.broker.websocket.due_entries import DueEntries
from magnetar.broker.websocket.errors import (
    INTERNAL_ERROR,
    INVALID_DATA,
    BadMessageError,
    RequestFailedError,
    SessionRefusedError,
)
from magnetar.broker.websocket.incoming import (
    Incoming,
    LargeEntryError,
    Opened,
    UnreadableEntryError,
    opened,
    permits_of,
    take_apart,
)
from magnetar.broker.websocket.outstanding import PLACE_BYTES, Outstanding, Place
from magnetar.broker.websocket.parameters import MOST_WINDOW
from magnetar.broker.websocket.pull_credit import PullCredit
from magnetar.broker.websocket.session import Session
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Sequence

    from magnetar.broker.websocket import session
    from magnetar.broker.websocket.parameters import ConsumerParameters
    from magnetar.protocol.answers import Answer
    from magnetar.protocol.topic_name import TopicName

log = structlog.get_logger(__name__)
_TYPE = pb.BaseCommand
_SHARED: Final = (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared)
_MOST_PERMITS: Final = (1 << 31) - 1
_PREFETCH: Final = 100
_A_TURN: Final = 64
"""Messages that a session writes in one turn of the event loop."""
_PLACE_UNIT: Final = 10


class ConsumerSession(Session):
    """See the module. `delivered`: messages written since the session started."""

    def __init__(self, place: session.Place, parameters: ConsumerParameters) -> None:
        super().__init__(place)
        self.parameters = parameters
        self.delivered = 0
        self.name = parameters.name or secrets.token_hex(3)[:5]
        self.subscription = place.path.subscription
        self.parts: list[Part] = []
        self.outstanding = Outstanding()
        self._arrived: deque[Answer] = deque()
        self._queue: deque[Incoming] = deque()  # messages of the latest parsed entry
        self._waiting_bytes = self._place_units = 0
        self._with_client = 0
        self._pull = PullCredit()
        self._due = DueEntries(parameters.nack_delay_ms / 1000, parameters.ack_timeout_ms / 1000, self._on_due)
        self._turn: asyncio.Handle | None = None
        self.dead_letters: DeadLetters | None = None
        self.started = False
        self.unsubscribed = False
        if parameters.max_redeliver_count and self.is_shared:
            topic = parameters.dead_letter_topic or f"{self.topic}-{self.path.subscription}-DLQ"
            self.dead_letters = DeadLetters(self, topic, parameters.max_redeliver_count)

    @property
    def is_shared(self) -> bool:
        return self.parameters.subscription_type in _SHARED

    # --- opening -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if not self.subscription.strip():
            raise SessionRefusedError(400, "the subscription cannot be blank")
        self.link.subscribers = {
            _TYPE.MESSAGE: self._on_message,
            _TYPE.CLOSE_CONSUMER: self._on_closed,
            _TYPE.REACHED_END_OF_TOPIC: self._on_end_of_topic,
        }
        self.parts = [Part(index, name) for index, name in enumerate(await self.part_names())]
        for part in self.parts:
            self.added(part)
            await self.ask(lambda request_id, part=part: self._subscribe_command(request_id, part))  # type: ignore[misc]
            part.is_open = not part.closings
            if part.closings:  # the broker unloaded the topic meanwhile
                self.reopen_part(part)

    async def part_names(self) -> list[str]:
        """Return the names of the topics and partitions to consume. Raises SessionRefusedError."""
        return await self.topic_names(self.topic)

    def added(self, part: Part) -> None:
        """A new part of the session is about to get its consumer."""

    @property
    def growing_topics(self) -> Sequence[TopicName]:
        """The topics whose added partitions the session consumes."""
        return (self.topic,) if self.topic.partition < 0 <= self.parts[0].partition else ()

    def join(self, topic: str) -> None:
        """Consume another partition or topic."""
        self._join(Part(len(self.parts), topic, is_added=True))

    def _join(self, part: Part) -> None:
        self.parts[part.index : part.index + 1] = [part]
        self.added(part)
        self.reopen_part(part, at_once=True)

    @property
    def has_one_part(self) -> bool:
        """Whether the session has a single part as long as it lasts."""
        return len(self.parts) == 1 and not self.growing_topics

    def _subscribe_command(self, request_id: int, part: Part) -> bytes:
        command = self.subscription_of(part)
        command.request_id = request_id
        return requests.subscribe(command)

    def subscription_of(self, part: Part) -> pb.CommandSubscribe:
        """The SUBSCRIBE of a part, but for its request id."""
        chosen = self.parameters
        command = pb.CommandSubscribe(
            topic=part.topic,
            subscription=self.subscription,
            subType=chosen.subscription_type,  # type: ignore[arg-type]
            consumer_id=part.index,
            consumer_name=self.name,
            priority_level=chosen.priority,
            durable=chosen.durable,
            initialPosition=pb.CommandSubscribe.Earliest if part.is_added else chosen.initial_position,  # type: ignore[arg-type]
        )
        if not chosen.durable:
            first = chosen.initial_position == pb.CommandSubscribe.Earliest or (part.is_added and not part.has_begun)
            command.start_message_id.CopyFrom(EARLIEST if first else LATEST)
        return command

    def start(self) -> None:
        self.started = True
        for part in self.parts:
            self._owe(part, self._first_credit())
        if topics := self.growing_topics:
            self.follow_partitions(topics, self.part_topics, self.join)

    def part_topics(self) -> Collection[str]:
        """The names of the topics and partitions that the session consumes."""
        return {part.topic for part in self.parts}

    def _first_credit(self) -> int:
        """Permits of a partition at its start; in pull mode with several partitions, the messages fetched ahead."""
        if not self.parameters.pull:
            return min(self.parameters.window, max(1, MOST_WINDOW // len(self.parts)))
        return 0 if self.has_one_part else max(1, _PREFETCH // len(self.parts))

    def _owe(self, part: Part, permits: int) -> None:
        """Add permits to the partition's next FLOW, which the session sends once per turn of the event loop. No effect
        before the start, which owes to each partition: until then the session cannot write to its client.
        """
        if not self.started:
            return
        if permits > 0 and not part.owed:
            self.loop.call_soon(self._flow, part)
        part.owed = min(part.owed + max(0, permits), _MOST_PERMITS)

    def _flow(self, part: Part) -> None:
        owed, part.owed = part.owed, 0
        if owed and part.is_open and not self.closed:
            self.link.send(requests.flow(part.index, owed))

    # --- messages to the client ----------------------------------------------------------------------------------

    def _on_message(self, answer: Answer) -> None:
        self._arrived.append(answer)
        self._weigh(len(answer.entry))
        self.pump()

    def _weigh(self, delta: int) -> None:
        self._waiting_bytes += delta
        self.share.set("websocket", self._waiting_bytes)

    def pump(self) -> None:
        """Write messages as far as permits and socket allow: some now, the rest in later turns of the event loop. An
        entry is parsed when no message before it waits.
        """
        done = 0
        while self.room > 0 and self.peer.is_writable and not self.closed:
            if done >= _A_TURN:
                self._pump_later()
                return
            if self._queue:
                self._write(self._queue.popleft())
            elif self._arrived:
                answer = self._arrived.popleft()
                parsed = opened(answer.entry)
                done += parsed.units(len(answer.entry), self.settings.max_message_size)
                self._take_apart(answer, parsed)
            else:
                return
            done += 1

    def _pump_later(self) -> None:
        if self._turn is None:
            self._turn = self.loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._turn = None
        self.pump()

    def _take_apart(self, answer: Answer, parsed: Opened) -> None:
        """Queue the messages of an entry for the client."""
        part = self.parts[answer.command.message.consumer_id]
        message_id = answer.command.message.message_id
        entry = message_id.ledgerId, message_id.entryId
        self._weigh(-len(answer.entry))
        try:
            found = list(take_apart(answer, part.index, self.settings.max_message_size, parsed))
        except UnreadableEntryError as e:
            log.info("websocket.unreadable", topic=part.topic, ledger=entry[0], entry=entry[1], reason=str(e))
            self.link.send(requests.ack(part.index, entry, validation=e.validation))
            self._owe(part, permits_of(answer))
            return
        except LargeEntryError as e:  # the entry stays unacknowledged, for a client that accepts larger entries
            log.warning("websocket.large_entry", topic=part.topic, subscription=self.subscription, reason=str(e))
            self.peer.end(INTERNAL_ERROR, str(e))
            return
        wanted = self.wanted(part, found)
        self._owe(part, permits_of(answer) - len(wanted))
        if not wanted:
            return
        self.outstanding.arrived(wanted)
        self._weigh_places()
        if self.dead_letters is not None and self.dead_letters.takes(wanted):
            self._owe(part, len(wanted))  # the client does not get them
        else:
            self._queue.extend(wanted)

    def wanted(self, part: Part, found: list[Incoming]) -> list[Incoming]:
        """Return the messages of an entry that the session passes to the client."""
        if not found or not found[0].metadata.encryption_keys or self.parameters.crypto_failure == "CONSUME":
            return found
        if self.parameters.crypto_failure == "DISCARD":
            self.link.send(requests.ack(part.index, found[0].entry, validation=pb.CommandAck.DecryptionError))
        return []  # FAIL: the entry stays unacknowledged, as in Apache Pulsar's clients

    @property
    def room(self) -> int:
        """How many messages the session may write now."""
        if self.parameters.pull:
            return self._pull.room
        return self.parameters.window - self._with_client

    def _write(self, message: Incoming) -> None:
        part = self.parts[message.part]
        if self.parameters.pull:
            self._pull.delivered()
            if not self.has_one_part:
                self._owe(part, 1)
        else:
            self._with_client += 1
        self.delivered += 1
        self.peer.write_text(message.text(part.partition))
        self.given(message)

    def given(self, message: Incoming) -> None:
        """Account for a message written to the client; start its acknowledgement timeout, if any."""
        self.outstanding.given(message)
        self._due.given((message.part, *message.entry))

    def on_writable(self) -> None:
        self.pump()

    # --- commands of the client ----------------------------------------------------------------------------------

    def on_text(self, text: str) -> None:
        try:
            command = session_json.decode_command(text)
        except session_json.MessageTextError as e:
            raise BadMessageError(INVALID_DATA, f"Failed to de-serialize from JSON: {e.reason}") from e
        if command is None:
            raise BadMessageError(INTERNAL_ERROR, "the command is null")
        if command.kind == "permit":
            self._on_permit(command.permits)
        elif command.kind == "unsubscribe":
            self.tasks.spawn(self._unsubscribe(), "websocket.unsubscribe")
        elif command.kind == "isEndOfTopic":
            self.peer.write_text(
                session_json.end_of_topic_text(ended=all(part.ended or part.gone for part in self.parts))
            )
        else:
            self.on_acknowledgement(command)

    def on_acknowledgement(self, command: session_json.ConsumerCommand) -> None:
        """Handle an acknowledgement or a negative acknowledgement. Raises BadMessageError."""
        try:
            found = session_json.decode_message_id(command.message_id)
        except ValueError as e:
            is_base64 = isinstance(command.message_id, str) and session_json.is_base64(command.message_id)
            raise BadMessageError(INVALID_DATA if is_base64 else INTERNAL_ERROR, str(e)) from e
        part = self.part_of(found)
        if part is None:
            if command.kind == "negativeAcknowledge":
                raise BadMessageError(INTERNAL_ERROR, "the session has written no message of this topic")
            self.done_with_one(None)
            return
        place = (part.index, found.ledgerId, found.entryId)
        if command.kind == "negativeAcknowledge":
            self._due.negative(place)
            if self._weigh_places() and self.share.is_over:
                self.peer.wait_for_memory()
        else:
            is_batch = found.batch_index >= 0 and found.batch_size > 0
            if self.outstanding.acknowledge(place, found.batch_index, is_batch=is_batch):
                self.link.send(requests.ack(part.index, place[1:]))
                self._due.discard(place)
                if self.dead_letters is not None:
                    self.dead_letters.forget(place)
                self._weigh_places()
        self.done_with_one(part)

    def done_with_one(self, part: Part | None) -> None:
        """In push mode, make room for another message and give the broker a permit for this partition, if any."""
        if not self.parameters.pull and self._with_client:
            self._with_client -= 1
            if part is not None:
                self._owe(part, 1)
            self.pump()

    def part_of(self, message_id: pb.MessageIdData) -> Part | None:
        """The part of a message; None for a message that is of no part for certain."""
        for part in self.parts:
            if part.partition == message_id.partition:
                return part
        return self.parts[0]

    def _on_permit(self, permits: int | None) -> None:
        if permits is None:
            raise BadMessageError(INVALID_DATA, "permit: permitMessages is missing")
        if not self.parameters.pull:
            return
        grown = self._pull.permit(permits)
        if self.has_one_part:
            self._owe(self.parts[0], grown)
        self.pump()

    async def _unsubscribe(self) -> None:
        """Delete the subscription of each part. No part gets its consumer again, unless a deletion fails."""
        if self.unsubscribed:
            return
        self.unsubscribed, failed = True, False
        for part in list(self.parts):
            if part.gone or part.unsubscribed:
                continue
            try:
                await self.link.ask(lambda request_id, part=part: requests.unsubscribe(request_id, part.index))  # type: ignore[misc]
            except RequestFailedError as e:
                log.info("websocket.not_unsubscribed", topic=part.topic, reason=e.message)
                failed = True
            else:
                part.is_open, part.unsubscribed = False, True
        self.unsubscribed = not failed
        for part in self.parts:
            if self._needs_consumer(part):  # attempts to open it may have ended meanwhile
                self.reopen_part(part)

    # --- delivering again ----------------------------------------------------------------------------------------

    def _on_due(self, places: list[Place], late: list[Place]) -> None:
        for place in late:
            for _ in range(self.outstanding.given_of(place)):
                self.done_with_one(self.parts[place[0]])
        self.redeliver([*places, *late])
        self._weigh_places()

    def _weigh_places(self) -> bool:
        """Account for the remembered entries, a thousand at a time; return whether the account counts more than before.
        Deliveries never stop the reading: only acknowledgements that the session reads end their entries.
        """
        units = (len(self.outstanding) + len(self._due)) >> _PLACE_UNIT
        if units != self._place_units:
            self.share.set("places", units * PLACE_BYTES << _PLACE_UNIT)
        grows, self._place_units = units > self._place_units, units
        return grows

    def redeliver_later(self, place: Place) -> None:
        """Request the redelivery of an entry that could not be published to the dead letter topic, after a pause."""
        self._due.failed(place)
        self._weigh_places()

    def redeliver(self, places: list[Place]) -> None:
        """Request the redelivery of entries; publish entries that came too often to the dead letter topic instead."""
        if self.dead_letters is not None:
            places = [place for place in places if not self.dead_letters.send(place)]
        by_part: dict[int, dict[tuple[int, int], None]] = {}
        for index, ledger, entry in places:
            by_part.setdefault(index, {})[ledger, entry] = None
        if not self.is_shared:  # the broker redelivers all unacknowledged entries
            self.forget(*(self.parts[index] for index in by_part), owed=True)
        for index, entries in by_part.items():
            self.link.send(requests.redeliver(index, entries if self.is_shared else ()))

    def forget(self, *parts: Part, owed: bool) -> None:
        """Forget the messages of partitions, queued or with the client, because the broker will redeliver them.

        owed: return their permits to the broker.
        """
        permits = dict.fromkeys((part.index for part in parts), 0)
        arrived, self._arrived = self._arrived, deque()
        for each in arrived:
            if (index := each.command.message.consumer_id) in permits:
                permits[index] += permits_of(each)
                self._weigh(-len(each.entry))
            else:
                self._arrived.append(each)
        for message in self._queue:
            if message.part in permits:
                permits[message.part] += 1
        self._queue = deque(message for message in self._queue if message.part not in permits)
        for part in parts:
            self._due.forget(part.index)
            if self.dead_letters is not None:
                self.dead_letters.forget_part(part.index)
            given = self.outstanding.forget(part.index)
            if not self.parameters.pull:
                given = min(given, self._with_client)
                self._with_client -= given
            if owed:
                self._owe(part, permits[part.index] + given)
        self._weigh_places()

    # --- changes of the topic ------------------------------------------------------------------------------------

    def _on_end_of_topic(self, answer: Answer) -> None:
        self.parts[answer.command.reachedEndOfTopic.consumer_id].ended = True

    def _on_closed(self, answer: Answer) -> None:
        """The broker closed a consumer (its topic was unloaded): subscribe again; the broker redelivers unacknowledged
        messages.
        """
        part = self.parts[answer.command.close_consumer.consumer_id]
        part.closings += 1
        if part.is_open and not self.closed:
            part.is_open = False
            self.reopen_part(part)

    def reopen_part(self, part: Part, *, at_once: bool = False) -> None:
        self.reopen(lambda: self._again(part), lambda reason: self.part_given_up(part, reason), at_once=at_once)

    def part_given_up(self, part: Part, reason: str) -> None:  # noqa: ARG002 - a session of several topics differs
        """The broker does not open the consumer of a part again."""
        self.given_up(reason)

    def _needs_consumer(self, part: Part) -> bool:
        return not (part.gone or part.is_open or part.unsubscribed or self.unsubscribed)

    async def _again(self, part: Part) -> None:
        if not self._needs_consumer(part):
            return
        closings = part.closings
        await self.link.ask(lambda request_id: self._subscribe_command(request_id, part))
        if part.closings != closings:
            raise RequestFailedError(pb.ServiceNotReady, "the topic was unloaded or deleted meanwhile")
        if not self._needs_consumer(part):
            return
        self.forget(part, owed=False)
        part.is_open, part.has_begun, part.owed = True, True, 0
        self._owe(part, self._pull.room if self.parameters.pull and self.has_one_part else self._first_credit())

    def close(self) -> None:
        self._due.close()
        if self._turn is not None:
            self._turn.cancel()
        self._arrived.clear()
        self._queue.clear()
        self.dead_letters = None  # a cycle
        super().close()
