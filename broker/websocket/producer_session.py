"""A producer over a WebSocket: the session publishes each text as a message, and answers with a receipt or an error.

The answers of one partition come in the order of its messages. The session keeps unstored messages to send them again
after an unload of the topic, and stops reading the socket while they exceed the session's share of memory. It publishes
to partitions that are added to the topic, within a minute.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.websocket import session_json
from magnetar.broker.websocket.errors import INTERNAL_ERROR, BadMessageError, RequestFailedError
from magnetar.broker.websocket.outgoing import BATCH_BYTES, Batch, Outgoing, batch_entry_of, entry_of, weight
from magnetar.broker.websocket.session import Session
from magnetar.broker.websocket.session_json import MessageTextError, MissingValueError, ProducerMessage
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.errors import CompressionError
from magnetar.protocol.key_hash import java_string_hash, murmur3_32
from magnetar.protocol.message_id import signed
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    import asyncio

    from magnetar.broker.websocket.parameters import ProducerParameters
    from magnetar.broker.websocket.session import Place
    from magnetar.protocol.answers import Answer


log = structlog.get_logger(__name__)
_TYPE = pb.BaseCommand
_U64: Final = (1 << 64) - 1
_KEPT_FACTOR: Final = 2
"""The memory of an unstored entry: the session keeps a copy to send again, the write to the disk another copy."""


class Router:
    """Chooses the partition of a message as Apache Pulsar's client in the proxy does.

    A message with a key goes to the partition of the key's hash. Messages without a key go to the partitions in turn,
    or all to one partition chosen at random, as `routing` demands.
    """

    def __init__(self, partitions: int, routing: str, hashing: str, chance: random.Random | None = None) -> None:
        self._partitions = partitions
        self._murmur = hashing == "Murmur3_32Hash"
        self._round_robin = routing == "RoundRobinPartition"
        self._next = (chance or random.Random()).randrange(partitions)  # noqa: S311 - a choice of partition is no secret

    def grow(self, partitions: int) -> None:
        """Use this number of partitions from now on, no less than before; the chosen partition stays."""
        self._partitions = partitions

    def partition(self, key: str | None) -> int:
        if self._partitions == 1:
            return 0
        if key is not None:
            value = murmur3_32(key.encode()) if self._murmur else java_string_hash(key)
            return value % self._partitions
        chosen = self._next
        if self._round_robin:
            self._next = (chosen + 1) % self._partitions
        return chosen


class _Part:
    """The producer on one partition."""

    def __init__(self, index: int, topic: str) -> None:
        self.index = index
        self.topic = topic
        self.partition = TopicName.parse(topic).partition
        self.name = ""
        self.next_sequence_id = 0
        self.is_open = False
        self.is_given_up = False
        self.closings = 0  # how often the broker closed the producer
        self.refusal: str | None = None
        self.pending: deque[Outgoing] = deque()
        self.batch = Batch(index)
        self.timer: asyncio.TimerHandle | None = None


class ProducerSession(Session):
    """See the module. `published`: messages stored since the session started."""

    def __init__(self, place: Place, parameters: ProducerParameters) -> None:
        super().__init__(place)
        self.parameters = parameters
        self.published = 0
        self._parts: list[_Part] = []
        self._router: Router
        self._pending_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        names = await self.topic_names(self.topic)
        self._parts = [_Part(index, name) for index, name in enumerate(names)]
        self._router = Router(len(names), self.parameters.routing, self.parameters.hashing)
        self.link.subscribers = {
            _TYPE.SEND_RECEIPT: self._on_receipt,
            _TYPE.SEND_ERROR: self._on_error,
            _TYPE.CLOSE_PRODUCER: self._on_closed,
        }
        for part in self._parts:
            answer = await self.ask(lambda request_id, part=part: self._request(request_id, part))  # type: ignore[misc]
            self._opened(part, answer)
            if part.closings:  # the broker unloaded the topic meanwhile
                part.is_open = False
                self.reopen(lambda part=part: self._again(part), self.given_up)  # type: ignore[misc]

    def start(self) -> None:
        if self.topic.partition < 0 <= self._parts[0].partition:
            self.follow_partitions([self.topic], self._joined, self._join)

    def _joined(self) -> set[str]:
        return {part.topic for part in self._parts if not part.is_given_up}

    def _join(self, topic: str) -> None:
        """Publish to another partition too, once its producer is open."""
        part = next((each for each in self._parts if each.topic == topic), None)  # given up before
        if part is None:
            part = _Part(len(self._parts), topic)
            self._parts.append(part)
        part.is_given_up = False

        async def open_part() -> None:
            await self._again(part)
            self._router.grow(next((each.index for each in self._parts if not each.name), len(self._parts)))

        def given_up(reason: str) -> None:
            log.info("websocket.partition_given_up", topic=topic, reason=reason)
            part.is_given_up = True  # the next look tries again; later partitions may have joined meanwhile

        self.reopen(open_part, given_up, at_once=True)

    def _request(self, request_id: int, part: _Part) -> bytes:
        name = part.name or self.parameters.name or (self._parts[0].name or None)
        return requests.producer(request_id, part.index, part.topic, name)

    def _opened(self, part: _Part, answer: pb.CommandProducerSuccess) -> None:
        if not part.name:
            first = self.parameters.initial_sequence_id
            part.next_sequence_id = (signed(answer.last_sequence_id) if first is None else first) + 1
        part.name = answer.producer_name
        part.is_open, part.refusal = True, None

    # --- publishing ----------------------------------------------------------------------------------------------

    def on_text(self, text: str) -> None:
        now_ms = self.now_ms()
        try:
            message = session_json.decode_message(text, now_ms)
            self._check(message)
        except MessageTextError as e:
            self.peer.write_text(session_json.error_text(e.error, e.reason, e.context))
            return
        except MissingValueError as e:
            raise BadMessageError(INTERNAL_ERROR, str(e)) from e
        part = self._parts[self._router.partition(message.key)]
        if self.parameters.batching and message.deliver_at_ms is None:
            self._batch(part, message)
        else:
            self._flush(part)
            self._send_alone(part, message, now_ms)

    def _check(self, message: ProducerMessage) -> None:
        """Refuse a message of a client that encrypts unless it has both or neither of the fields of the compression.
        Raises MessageTextError.
        """
        named = message.compression not in (None, pb.NONE)
        if self.parameters.encryption_keys and named != (message.uncompressed_bytes is not None):
            raise MessageTextError(
                session_json.BAD_PAYLOAD, "compressionType and uncompressedMessageSize belong together", message.context
            )

    def _send_alone(self, part: _Part, message: ProducerMessage, now_ms: int) -> None:
        sequence_id = part.next_sequence_id
        try:
            entry = entry_of(message, self.parameters, part.name, sequence_id, now_ms)
        except (CompressionError, ValueError) as e:
            self.peer.write_text(session_json.error_text(session_json.UNKNOWN, str(e), message.context))
            return
        part.next_sequence_id += 1
        self._send(part, Outgoing(part.index, sequence_id, sequence_id, entry, [message.context], is_batch=False))

    def _batch(self, part: _Part, message: ProducerMessage) -> None:
        batch = part.batch
        if batch.messages and batch.size + weight(message) > BATCH_BYTES:
            self._flush(part)
            batch = part.batch
        self._weigh(batch.add(part.next_sequence_id, message))
        part.next_sequence_id += 1
        if self.share.is_over:  # no batch waits for its delay while the session waits for memory
            for each in self._parts:
                self._flush(each)
        elif len(batch.messages) >= self.parameters.batch_messages or batch.size >= BATCH_BYTES:
            self._flush(part)
        elif part.timer is None:
            part.timer = self.loop.call_later(self.parameters.batch_delay_ms / 1000, self._flush, part)

    def _flush(self, part: _Part) -> None:
        """Send the messages that wait in the batch of a partition."""
        if part.timer is not None:
            part.timer.cancel()
            part.timer = None
        batch, part.batch = part.batch, Batch(part.index)
        self._weigh(-batch.held_bytes)
        if not batch.messages or self.closed:
            return
        contexts = [message.context for _, message in batch.messages]
        first, last = batch.messages[0][0], batch.messages[-1][0]
        is_batch = len(batch.messages) > 1  # as with the client of Apache Pulsar
        if is_batch:
            entry = batch_entry_of(batch, self.parameters, part.name, self.now_ms())
        else:
            entry = entry_of(batch.messages[0][1], self.parameters, part.name, first, self.now_ms())
        self._send(part, Outgoing(part.index, first, last, entry, contexts, is_batch=is_batch))

    def _send(self, part: _Part, outgoing: Outgoing) -> None:
        if part.refusal is not None:
            self._fail(outgoing, part.refusal)
            return
        most = self.settings.max_message_size
        if len(outgoing.entry) > most:
            self._fail(outgoing, f"The message has {len(outgoing.entry)} bytes with its headers; at most {most} may be")
            return
        outgoing.frame = requests.send(
            part.index,
            outgoing.first_sequence_id & _U64,
            outgoing.last_sequence_id & _U64,
            len(outgoing.contexts),
            outgoing.entry,
        )
        outgoing.entry = b""
        outgoing.sent_s = self.loop.time()
        part.pending.append(outgoing)
        self._weigh(outgoing.held_bytes)
        self._watch()
        if part.is_open:
            self.link.send(outgoing.frame)

    def _weigh(self, delta: int) -> None:
        """Account for the memory of unstored messages, also of those in batches, and stop reading while it exceeds the
        session's share.
        """
        self._pending_bytes += delta
        self.share.set("websocket", _KEPT_FACTOR * self._pending_bytes)
        if delta > 0 and self.share.is_over:
            self.peer.wait_for_memory()

    # --- answers -------------------------------------------------------------------------------------------------

    def _on_receipt(self, answer: Answer) -> None:
        receipt = answer.command.send_receipt
        part = self._parts[receipt.producer_id]
        outgoing = self._taken(part, receipt.sequence_id)
        if outgoing is None:
            return
        self.published += len(outgoing.contexts)
        for index, context in enumerate(outgoing.contexts):
            found = pb.MessageIdData(ledgerId=receipt.message_id.ledgerId, entryId=receipt.message_id.entryId)
            if part.partition >= 0:
                found.partition = part.partition
            if outgoing.is_batch:
                found.batch_index = index
            found.batch_size = 0
            self.peer.write_text(session_json.ack_text(found, context))

    def _on_error(self, answer: Answer) -> None:
        error = answer.command.send_error
        part = self._parts[error.producer_id]
        outgoing = self._taken(part, error.sequence_id)
        if outgoing is not None:
            self._fail(outgoing, f"{pb.ServerError.Name(error.error)}: {error.message}")

    def _taken(self, part: _Part, sequence_id: int) -> Outgoing | None:
        """Remove and return the entry with this first or last sequence id; None when no unstored entry has it."""
        for outgoing in part.pending:
            if sequence_id in (outgoing.first_sequence_id & _U64, outgoing.last_sequence_id & _U64):
                part.pending.remove(outgoing)
                self._weigh(-outgoing.held_bytes)
                return outgoing
        return None

    def _fail(self, outgoing: Outgoing, reason: str) -> None:
        for context in outgoing.contexts:
            self.peer.write_text(session_json.error_text(session_json.UNKNOWN, reason, context))

    # --- deadlines and unloading ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Set the timer that fails entries not stored in time (sendTimeoutMillis)."""
        if self._deadline is None and self.parameters.send_timeout_ms:
            self._deadline = self.loop.call_later(self.parameters.send_timeout_ms / 1000, self._look)

    def _look(self) -> None:
        self._deadline = None
        horizon = self.loop.time() - self.parameters.send_timeout_ms / 1000
        for part in self._parts:
            while part.pending and part.pending[0].sent_s <= horizon:
                outgoing = part.pending.popleft()
                self._weigh(-outgoing.held_bytes)
                self._fail(outgoing, "the message was not stored in time")
            if part.pending:
                self._watch()

    def _on_closed(self, answer: Answer) -> None:
        """The broker closed a producer: create it again and send unstored messages."""
        part = self._parts[answer.command.close_producer.producer_id]
        part.closings += 1
        if part.is_open and not self.closed:
            part.is_open = False
            self.reopen(lambda: self._again(part), self.given_up)

    async def _again(self, part: _Part) -> None:
        closings = part.closings
        answer = await self.link.ask(lambda request_id: self._request(request_id, part))
        if part.closings != closings:
            raise RequestFailedError(pb.ServiceNotReady, "the topic was unloaded meanwhile")
        self._opened(part, answer)
        for outgoing in list(part.pending):
            self.link.send(outgoing.frame)

    def given_up(self, reason: str) -> None:
        """Keep the session open, and fail unstored and later messages with the reason (for example a terminated
        topic).
        """
        for part in self._parts:
            if not part.is_open:
                part.refusal = reason
                while part.pending:
                    outgoing = part.pending.popleft()
                    self._weigh(-outgoing.held_bytes)
                    self._fail(outgoing, reason)

    def close(self) -> None:
        for part in self._parts:
            if part.timer is not None:
                part.timer.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
        super().close()
