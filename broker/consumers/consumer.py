"""One consumer of a connection: its permits, its held messages, and its outgoing frames.

Deliveries of one loop turn are collected and written at once (`flush`); a consumer whose connection is not writable
gets nothing until the connection calls back, so a stuck peer costs at most one turn's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.consumers.encodings import SHARED_FROM_BYTES, Encodings, FreeDescriptor
from magnetar.broker.consumers.pending_acks import PendingAcks
from magnetar.broker.consumers.permits import Permits
from magnetar.broker.limits import kept_bytes
from magnetar.broker.meters.rates import RateMeter
from magnetar.converters.entry import wants_raw
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies, speed
from magnetar.protocol.message_id import signed
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.slab import RECORD_HEADER_BYTES, Span

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence

    from magnetar.broker.consumers.consumer_stats import ConsumerStats
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Slab

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = (
    pb.CommandSubscribe.Exclusive,
    pb.CommandSubscribe.Shared,
    pb.CommandSubscribe.Failover,
    pb.CommandSubscribe.Key_Shared,
)
TYPE_NAMES: dict[int, str] = {EXCLUSIVE: "Exclusive", SHARED: "Shared", FAILOVER: "Failover", KEY_SHARED: "Key_Shared"}
KNOWS_CHECKSUM_VERSION = 11
KNOWS_ACTIVE_CHANGE_VERSION = 12
KNOWS_BATCHES_VERSION = 4
KNOWS_END_OF_TOPIC_VERSION = 9
KNOWS_CLOSE_CONSUMER_VERSION = 5
_STRIP_PREFIX, _KEEP_PREFIX, _STRIP_CHECKSUM = 0, 1, 2
_WRITTEN_SINGLY_BYTES = 32 * 1024
"""Frames of spans that are as large as this on average go to the socket as they are; smaller spans are joined first."""
_SENT_FROM_SLAB_BYTES = 16 * 1024
"""Entries that are as large as this on average go to the socket from where they lie."""
_encodings = Encodings()
"""The encodings and their bound, which all consumers of this process share."""


class Outbox(Protocol):
    """The part of a connection that a consumer needs."""

    @property
    def peer_version(self) -> int: ...
    @property
    def wants_entry_metadata(self) -> bool:
        """Whether broker entry metadata was negotiated and may be shown."""
        ...

    @property
    def knows_entry_metadata(self) -> bool:
        """Whether the client understands broker entry metadata, regardless of the broker's setting."""
        ...

    @property
    def closed(self) -> bool: ...
    @property
    def connection_id(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def client_version(self) -> str: ...
    @property
    def role(self) -> str | None: ...
    @property
    def output(self) -> FreeDescriptor: ...
    @property
    def consumers(self) -> MutableMapping[int, Consumer | asyncio.Future[Consumer]]:
        """Consumers of the connection by id; a consumer that the broker closes removes itself."""
        ...

    def may(self, command_type: int, name: TopicName, subscription: str = "") -> bool:
        """Whether the connection's role still has the right to a command that the broker has accepted before."""
        ...

    def close_notice(self, frame: bytes, since_version: int) -> None:
        """Write CLOSE_CONSUMER, or close the connection of a peer too old to know it."""
        ...

    def write(self, data: bytes) -> None: ...
    def spend(self, commands: int) -> None:
        """Count the work of so many commands; read on in a later round of the event loop when the round has much."""
        ...

    def is_writable(self) -> bool: ...
    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the connection can take more or is closed."""
        ...

    async def check_alive(self) -> bool:
        """Send PING to the peer; return whether the peer answered in time."""
        ...


class ServingSubscription(Protocol):
    """The part of its subscription that a consumer, and the commands of its client, need."""

    name: str

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove the consumer; idempotent."""
        ...

    def on_flow(self, consumer: Consumer, permits: int) -> None:
        """FLOW."""
        ...

    def on_ack(self, consumer: Consumer, command: pb.CommandAck) -> Awaitable[None] | None:
        """ACK: takes effect at once. Returns an awaitable that ends before ACK_RESPONSE is due; None: no wait."""
        ...

    def on_redeliver(
        self, consumer: Consumer, message_ids: Iterable[pb.MessageIdData] | None, consumer_epoch: int | None
    ) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES: these messages, or all that the consumer holds."""
        ...

    def serves(self, consumer: Consumer) -> bool:
        """Whether the consumer is connected here."""
        ...

    def unsubscribe(self, consumer: Consumer, *, force: bool = False) -> None:
        """Remove all consumers; raises MetadataError when others are connected and `force` is not set."""
        ...

    def seek(
        self, position: Position, ack_set: list[int] | None = None, *, to_message: bool = False
    ) -> Awaitable[None]:
        """Read next at the position, `to_message` if a client named the message. Closes the consumers at once; the
        position is durable when the awaitable ends.
        """
        ...

    def mark_delete_for_client(self) -> Position:
        """consumer_mark_delete_position of GET_LAST_MESSAGE_ID."""
        ...


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """KeySharedMeta with plain values."""

    sticky: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    allow_out_of_order: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """The fields of CommandSubscribe about the consumer, as plain values."""

    consumer_id: int
    topic_name: TopicName
    subscription_name: str
    sub_type: int
    consumer_name: str = ""
    priority_level: int = 0
    durable: bool = True
    read_compacted: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    key_shared: KeySharedPolicy | None = None
    consumer_epoch: int = -1  # -1: none given
    auto_consume: bool = False  # the consumer accepts any schema of the topic
    kept_bytes: int = 0  # `limits.kept_bytes` of the command

    @classmethod
    def of(cls, command: pb.CommandSubscribe, topic_name: TopicName, metadata: Mapping[str, str]) -> ConsumerSpec:
        """The plain values of a CommandSubscribe."""
        policy = None
        if command.HasField("keySharedMeta"):
            meta = command.keySharedMeta
            policy = KeySharedPolicy(
                sticky=meta.keySharedMode == pb.STICKY,
                ranges=tuple((each.start, each.end) for each in meta.hashRanges),
                allow_out_of_order=meta.allowOutOfOrderDelivery,
            )
        return cls(
            consumer_id=command.consumer_id,
            topic_name=topic_name,
            subscription_name=command.subscription,
            sub_type=command.subType,
            consumer_name=command.consumer_name,
            priority_level=command.priority_level,
            durable=command.durable,
            read_compacted=command.read_compacted,
            metadata=dict(metadata),
            key_shared=policy,
            consumer_epoch=signed(command.consumer_epoch) if command.HasField("consumer_epoch") else -1,
            auto_consume=command.HasField("schema") and command.schema.type == pb.Schema.AutoConsume,
            kept_bytes=kept_bytes(command),
        )


class Consumer:
    """A connected consumer. Its subscription decides which messages it gets; `Permits` and `PendingAcks` keep the
    books.
    """

    subscription: ServingSubscription  # set when it was admitted

    def __init__(self, outbox: Outbox, spec: ConsumerSpec) -> None:
        self.outbox = outbox
        self.spec = spec
        self.consumer_id = spec.consumer_id
        self.name = spec.consumer_name
        self.sub_type = spec.sub_type
        self.priority_level = spec.priority_level
        self.epoch = spec.consumer_epoch if spec.sub_type in (EXCLUSIVE, FAILOVER) else -1
        self.permits = Permits()
        self.pending_acks: PendingAcks | None = PendingAcks() if spec.sub_type in (SHARED, KEY_SHARED) else None
        self.topic_name = spec.topic_name
        self.read_compacted = spec.read_compacted
        self.knows_end = False
        self.connected_ms = 0
        self.wants_raw = wants_raw(spec.metadata)
        """Whether the consumer requested stored bytes: the broker then converts no entry for it."""
        self.out = RateMeter()
        self.acks = RateMeter()
        self.redelivered = RateMeter()
        self.chunked = RateMeter()
        self.entries_out = 0
        self.average_messages_per_entry = 0.0
        self._entries_sent = self._messages_sent = 0
        """Figures of the current dispatch, not yet part of the average."""
        self.last_flow_ms = self.first_flow_ms = 0
        self.last_sent_ms = self.first_sent_ms = 0
        self.last_acked_ms = 0
        self.unanswered_acks = 0
        """ACKs with a request id that are not durable yet."""
        self._behind_acks: list[Callable[[], None]] = []
        self._partition = spec.topic_name.partition
        self._queued: list[bytes | Span] = []
        """Frames, or large entries whose frames are not made."""
        self.queued_bytes = 0
        self._waiting_writable = False
        self._knows_no_batches = outbox.peer_version < KNOWS_BATCHES_VERSION
        if outbox.wants_entry_metadata or (self.wants_raw and outbox.knows_entry_metadata):
            self._mode = _KEEP_PREFIX
        else:
            self._mode = _STRIP_PREFIX if outbox.peer_version >= KNOWS_CHECKSUM_VERSION else _STRIP_CHECKSUM

    @classmethod
    def from_command(
        cls, command: pb.CommandSubscribe, outbox: Outbox, topic_name: TopicName, metadata: Mapping[str, str]
    ) -> Consumer:
        """The consumer that a SUBSCRIBE asks for; not yet admitted to its subscription."""
        return cls(outbox, ConsumerSpec.of(command, topic_name, metadata))

    @property
    def sticky_ranges(self) -> Sequence[tuple[int, int]]:
        """The hash ranges that the consumer requested (KeySharedMeta.hashRanges)."""
        return () if self.spec.key_shared is None else self.spec.key_shared.ranges

    @property
    def type_name(self) -> str:
        return TYPE_NAMES[self.sub_type]

    def hide_entry_metadata(self) -> None:
        """Send entries without broker entry metadata, which entries of a non-persistent topic do not have."""
        if self._mode == _KEEP_PREFIX:
            self._mode = _STRIP_PREFIX

    def when_acks_are_answered(self, answer: Callable[[], None]) -> None:
        """Call `answer` behind the answers to all ACKs of the consumer: at once when none is under way.

        An ACK is answered when it is durable. A client that closes its consumer forgets ACKs without an answer.
        """
        if self.unanswered_acks:
            self._behind_acks.append(answer)
        else:
            answer()

    def ack_answered(self) -> None:
        """End an ACK that `unanswered_acks` counts."""
        self.unanswered_acks -= 1
        if not self.unanswered_acks:
            answers, self._behind_acks = self._behind_acks, []
            for answer in answers:
                answer()

    # --- sent messages -------------------------------------------------------------------------------------------

    @property
    def _told_epoch(self) -> int:
        """The epoch in its messages; a consumer of the compacted topic gets no epoch (Apache Pulsar 4.2.4)."""
        return -1 if self.read_compacted else self.epoch

    def is_writable(self) -> bool:
        return self.outbox.is_writable()

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Like `Outbox.when_writable`; no-op while an earlier callback is due."""
        if not self._waiting_writable:
            self._waiting_writable = True

            def writable() -> None:
                self._waiting_writable = False
                callback()

            self.outbox.when_writable(writable)

    def push(self, span: Span, messages: int, counts: Sequence[int] | None = None) -> int:
        """Queue MESSAGE frames of entries that hold `messages` messages; returns their bytes, or those of the records
        of large entries, which become frames in `flush`.
        """
        slab, i, j = span = span.slab.stored_span(span) if self.wants_raw else span
        if self._knows_no_batches and slab.facts().any_flags & EntryFlag.BATCHED:
            self.outbox.close_notice(b"", since_version=KNOWS_BATCHES_VERSION)
        size = span.size_bytes
        if size >= (j - i) * _SENT_FROM_SLAB_BYTES and counts is None and i < j:
            return self._queue(Span(slab, i, j), size, j - i, size, messages)
        if size >= SHARED_FROM_BYTES and counts is None:
            data = self._frames(Span(slab, i, j))
        else:
            data = speed.encode_messages(
                self.consumer_id, slab.data, slab.offsets, i, j, self._partition, self._mode, self._told_epoch, counts
            )
        return self._queue(data, len(data), j - i, size, messages)

    @property
    def takes_picked(self) -> bool:
        """Whether `push_picked` may be used, which sends entries as the dispatcher read them."""
        return not self.wants_raw

    def push_picked(self, slab: Slab, picks: bytes) -> int:
        """Queue MESSAGE frames of some entries of a slab, each of one message that was never delivered before.

        picks: indexes as native int64, ascending. Returns the bytes queued.
        """
        entries = len(picks) // 8
        data, size = speed.encode_picked(
            self.consumer_id, slab.data, slab.offsets, picks, self._partition, self._mode, self._told_epoch
        )
        return self._queue(data, len(data), entries, size, entries)

    def push_partial(self, slab: Slab, i: int, messages: int, ack_set: Sequence[int], count: int) -> int:
        """Queue one entry of which a part was acknowledged before (CommandMessage.ack_set)."""
        if self.wants_raw:
            slab, i, _ = slab.stored_span(Span(slab, i, i + 1))
        position = slab.position(i)
        data = replies.message(
            self.consumer_id,
            position.ledger_id,
            position.entry_id,
            self._partition,
            speed.as_sent(slab.body(i), self._mode),
            redelivery_count=count,
            ack_set=ack_set,
            consumer_epoch=self._told_epoch,
        )
        return self._queue(data, len(data), 1, Span(slab, i, i + 1).size_bytes, messages)

    def _queue(self, data: bytes | Span, size: int, entries: int, record_bytes: int, messages: int) -> int:
        self._queued.append(data)
        self.queued_bytes += size
        self.out.add(messages, record_bytes - RECORD_HEADER_BYTES * entries)
        self.entries_out += entries
        self._entries_sent += entries
        self._messages_sent += messages
        return size

    def _frames(self, span: Span) -> bytes:
        slab, i, j = span
        return _encodings.frames(self.consumer_id, slab, i, j, self._partition, self._mode, self._told_epoch)

    def _send(self, span: Span) -> bytes:
        """Send the MESSAGE frames of a span as far as the socket takes them now; return the rest."""
        fd = self.outbox.output.free_descriptor()
        if fd < 0:
            return self._frames(span)
        slab, i, j = span
        return speed.send_messages(
            fd, self.consumer_id, slab.data, slab.offsets, i, j, self._partition, self._mode, self._told_epoch
        )

    def learn_average(self) -> None:
        """Update the average of messages per entry after a dispatch, which counts a tenth (Apache Pulsar 4.2.4)."""
        if self._entries_sent:
            ratio = self._messages_sent / self._entries_sent
            average = self.average_messages_per_entry
            self.average_messages_per_entry = ratio if average < 1 else 0.9 * average + 0.1 * ratio
            self._entries_sent = self._messages_sent = 0

    @property
    def messages_per_entry(self) -> int:
        """The average, rounded to whole messages."""
        return int(self.average_messages_per_entry + 0.5)

    def flush(self, now_ms: int) -> None:
        """Write the frames queued in this turn."""
        if not self._queued:
            return
        if self._entries_sent:
            self.learn_average()
        queued, size = self._queued, self.queued_bytes
        self._queued, self.queued_bytes = [], 0
        self.first_sent_ms = self.first_sent_ms or now_ms
        self.last_sent_ms = now_ms
        if self.outbox.closed:
            return
        if size >= len(queued) * _WRITTEN_SINGLY_BYTES:
            for each in queued:
                frames = each if isinstance(each, bytes) else self._send(each)
                if frames:
                    self.outbox.write(frames)
        else:
            joined = [each if isinstance(each, bytes) else self._frames(each) for each in queued]
            self.outbox.write(joined[0] if len(joined) == 1 else b"".join(joined))

    def tell_active(self, *, is_active: bool) -> None:
        """ACTIVE_CONSUMER_CHANGE, to peers that know it."""
        if self.outbox.peer_version >= KNOWS_ACTIVE_CHANGE_VERSION and not self.outbox.closed:
            self.outbox.write(replies.active_consumer_change(self.consumer_id, is_active=is_active))

    def tell_end_of_topic(self) -> None:
        """REACHED_END_OF_TOPIC."""
        self.knows_end = True
        if self.outbox.peer_version >= KNOWS_END_OF_TOPIC_VERSION and not self.outbox.closed:
            self.outbox.write(replies.reached_end_of_topic(self.consumer_id))

    def close_from_broker(self) -> None:
        """Close the consumer on the broker's behalf (unload, SEEK, forced unsubscribe)."""
        self.leave_connection()
        self.tell_closed()

    def leave_connection(self) -> None:
        """Ignore all further commands for the consumer."""
        if self.outbox.consumers.get(self.consumer_id) is self:
            del self.outbox.consumers[self.consumer_id]

    def tell_closed(self) -> None:
        """Send CLOSE_CONSUMER: the client subscribes anew."""
        if not self.outbox.closed:
            self.outbox.close_notice(replies.close_consumer(self.consumer_id), KNOWS_CLOSE_CONSUMER_VERSION)

    @property
    def kept_bytes(self) -> int:
        """Memory of the texts and ranges of its command."""
        return self.spec.kept_bytes

    @property
    def held_entries(self) -> int:
        """Entries that go back to the subscription when the consumer leaves."""
        return 0 if self.pending_acks is None else self.pending_acks.entries

    def connection_lost(self) -> None:
        """Leave the subscription after the connection closed; the held messages go back to the subscription."""
        self.subscription.remove_consumer(self)

    # --- stats ---------------------------------------------------------------------------------------------------

    def roll_rates(self, seconds: float) -> None:
        """End a stats period of `seconds`."""
        for meter in (self.out, self.acks, self.redelivered, self.chunked):
            meter.roll(seconds)

    def stats(self) -> ConsumerStats:
        """The figures of this consumer for the stats JSON and CONSUMER_STATS."""
        from magnetar.broker.consumers.consumer_stats import ConsumerStats  # noqa: PLC0415 - not at the start

        out = self.out.rates()
        return ConsumerStats(
            consumer_name=self.name,
            consumer_id=self.consumer_id,
            msg_rate_out=out.messages_per_second,
            msg_throughput_out=out.bytes_per_second,
            bytes_out_counter=self.out.total_bytes,
            msg_out_counter=self.out.total_messages,
            msg_rate_redeliver=self.redelivered.rates().messages_per_second,
            message_ack_rate=self.acks.rates().messages_per_second,
            chunked_message_rate=self.chunked.rates().messages_per_second,
            available_permits=self.permits.available,
            unacked_messages=self.permits.unacked,
            avg_messages_per_entry=self.messages_per_entry,
            blocked_on_unacked=self.permits.blocked,
            address=self.outbox.address,
            connected_since_ms=self.connected_ms,
            client_version=self.outbox.client_version,
            last_acked_ms=self.last_acked_ms,
            last_consumed_ms=self.last_sent_ms,
            first_messages_sent_ms=self.first_sent_ms,
            last_consumed_flow_ms=self.last_flow_ms,
            first_consumed_flow_ms=self.first_flow_ms,
            type_name=self.type_name,
            metadata=dict(self.spec.metadata),
        )
