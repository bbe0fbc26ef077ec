"""Simulated producers and consumers. They speak the protocol as official clients do: they reconnect after an end, send
entries without receipt again in order, answer PING, and grant permits for taken messages.
"""

from __future__ import annotations

import struct
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.frames import encode_command
from magnetar.protocol.metadata import parse_entry_metadata
from magnetar.protocol.speed import after_prefix
from magnetar.storage.position import Position
from tests.simulation.history import Sent, SubscriptionHistory, TopicHistory, ViolationError
from tests.storage.records_for_tests import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.network import Link
    from tests.simulation.world import World

Command = pb.BaseCommand
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = 0, 1, 2, 3
TICK_MS = 1000
"""A delayed message may come a tick before it is due."""
WALL_EPOCH_MS = 1_700_000_000_000
_NONE = (1 << 64) - 1
_PENDING = 40
"""Entries of a producer without a receipt, at most."""


class Client:
    """A client with one connection at a time; it reconnects after every end of the connection."""

    def __init__(self, world: World, name: str, topic: TopicHistory) -> None:
        self.world, self.name, self.topic = world, name, topic
        self.chance: Random = world.chance_for(name)
        self.link: Link | None = None
        self.ready = False
        self.stopped = False
        self._buffer = bytearray()
        self._life = 0
        self._heard_s = 0.0
        self._consumed = 0
        self.written_s = 0.0
        """When the broker wrote the frame that the client is handling."""
        self._connecting = False

    def note(self, what: str) -> None:
        self.world.note(f"{what} {self.name}")

    def start(self) -> None:
        self.later(self.chance.uniform(0, 0.5), self.connect)

    def later(self, seconds: float, call: Any) -> None:
        """Run ``call`` after so many seconds, unless the present connection has ended by then."""
        life = self._life
        self.world.timers.after(seconds, lambda: call() if life == self._life else None)

    def connect(self) -> None:
        if self.stopped or self.link is not None:
            return
        self._life += 1
        life = self._life
        link = self.world.open_link(
            lambda data: self._on_bytes(data) if life == self._life else None,
            lambda: self._on_end() if life == self._life else None,
        )
        if link is None:
            self.later(0.2 + self.chance.random(), self.connect)
            return
        self.link = link
        self._buffer.clear()
        self._consumed = 0
        self._heard_s = self.world.now_s
        self.send(requests.connect("simulated", entry_metadata=True))
        self.later(6, self._watch)

    def _watch(self) -> None:
        """Close a silent connection, as keep-alive does, and a connection whose first request gets no answer."""
        if self.world.now_s - self._heard_s > 12:
            self.note("gives-up")
            self.drop()
            return
        if not self.ready and self.world.now_s - self._heard_s > 6:
            self.drop()
            return
        self.ping()
        self.later(6, self._watch)

    def ping(self) -> None:
        self.send(encode_command(Command(type=Command.PING, ping=pb.CommandPing())))

    def drop(self) -> None:
        """Close the connection without a command and reconnect."""
        if self.link is not None:
            link = self.link
            link.hang_up()
            self._over()

    def _on_end(self) -> None:
        if self.link is not None:
            self._over()

    def _over(self) -> None:
        self.link, self.ready = None, False
        self._life += 1
        self.ended()
        if not self.stopped:
            self.later(0.05 + self.chance.random(), self.connect)

    def stop(self) -> None:
        self.stopped = True
        self.drop()

    def send(self, data: bytes) -> None:
        if self.link is not None:
            self.link.send(data)

    def command(self, kind: int, **fields: Any) -> None:
        self.send(encode_command(Command(type=kind, **fields)))

    def _on_bytes(self, data: bytes) -> None:
        if self.link is None:
            return
        self._heard_s = self.world.now_s
        self._buffer += data
        life = self._life
        while life == self._life and len(self._buffer) >= 8:
            total, size = struct.unpack_from(">II", self._buffer)
            if len(self._buffer) < total + 4:
                return
            self._consumed += total + 4
            if self.link is not None:
                self.written_s = self.link.written_at_s(self._consumed)
            command = Command.FromString(bytes(self._buffer[8 : 8 + size]))
            payload = bytes(self._buffer[8 + size : 4 + total])
            del self._buffer[: 4 + total]
            self._on_command(command, payload)

    def _on_command(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PING:
            self.send(requests.pong())
        elif command.type == Command.CONNECTED:
            self.connected()
        elif command.type == Command.PONG:
            self.ponged()
        else:
            self.on(command, payload)

    # --- for kinds of clients

    def connected(self) -> None:
        raise NotImplementedError

    def ended(self) -> None:
        """Called when the connection has ended."""

    def ponged(self) -> None:
        """The broker answered the first PING without an answer."""

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        raise NotImplementedError


class SimProducer(Client):
    """Sends entries in order; ``pending`` have no receipt yet. counts: messages that the SEND of an entry may name."""

    counts = (1, 1, 1, 3, 5, 0)

    def __init__(self, world: World, name: str, topic: TopicHistory) -> None:
        super().__init__(world, name, topic)
        self.pending: deque[Sent] = deque()
        self._next = 0
        self._publishing = True
        self._unsent = 0
        self.in_flight = _PENDING
        """Entries without a receipt that the producer sends at most."""

    def finish(self) -> None:
        """Publish no new messages; pending messages still get their receipts."""
        self._publishing = False

    def connected(self) -> None:
        self.send(requests.producer(1, 1, self.topic.name, self.name))

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.PRODUCER_SUCCESS:
            self.ready = True
            for entry in islice(self.pending, self.in_flight):
                self._send(entry)
            self.later(self.chance.random() * 0.2, self._publish)
        elif command.type == Command.SEND_RECEIPT:
            self._on_receipt(command.send_receipt)
        elif command.type == Command.ERROR:
            self.ready = False
            self.world.refused(self, command.error.error)
            self.drop()
        elif command.type in (Command.CLOSE_PRODUCER, Command.SEND_ERROR):
            self.drop()

    def _on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        if not self.pending:
            raise ViolationError(f"{self.name}: a receipt of nothing, sequence id {receipt.sequence_id}")
        entry = self.pending[0]
        if receipt.sequence_id != entry.sequence_id:
            raise ViolationError(f"{self.name}: receipt of {receipt.sequence_id}, the next is {entry.sequence_id}")
        self.pending.popleft()
        if len(self.pending) >= self.in_flight:
            self._send(self.pending[self.in_flight - 1])
        ident = receipt.message_id
        if ident.ledgerId == _NONE:
            if entry.copies == 1 or not self.may_be_duplicate(entry):
                raise ViolationError(
                    f"{self.name}: {entry.sequence_id} is taken for a duplicate and was sent {entry.copies} times"
                )
            return
        self.note(f"receipt {ident.ledgerId}:{ident.entryId}")
        self.topic.receipted(entry, Position(ident.ledgerId, ident.entryId), self.written_s)

    def may_be_duplicate(self, entry: Sent) -> bool:
        """Whether the broker may answer a repeated SEND of the entry without a position."""
        return self.topic.deduplicates

    def _publish(self) -> None:
        if not self._publishing or not self.ready:
            return
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            if len(self.pending) < _PENDING:
                entry = self._new()
                self.pending.append(entry)
                self._send(entry)
        self.later(self.chance.expovariate(4), self._publish)

    def _new(self) -> Sent:
        count = self.chance.choice(self.counts)
        sequence_id = self._next
        self._next += max(count, 1)
        key = self.chance.choice("abcd")
        metadata = pb.MessageMetadata(
            producer_name=self.name, sequence_id=sequence_id, publish_time=self.world.now_ms, partition_key=key
        )
        if self.chance.random() < self.world.plan.delayed_share:
            metadata.deliver_at_time = self.world.now_ms + self.chance.choice([500, 3000, 9000])
        self.metadata(metadata)
        payload = b"%s-%d" % (self.name.encode(), sequence_id)
        if self.chance.random() < 0.1:
            payload = payload.ljust(self.chance.choice([700, 3000]), b".")
        if self.world.plan.forges:
            payload += self._forged_records()
        newest = payload
        if count > 1:
            metadata.num_messages_in_batch = count
            metadata.highest_sequence_id = self._next - 1
            payload = encode_batch([(pb.SingleMessageMetadata(partition_key=key), payload)] * count)
        body = encode_entry(metadata, payload)
        entry = Sent(self.name, sequence_id, count, body, self.world.now_s, metadata.deliver_at_time)
        entry.key, entry.newest = key, newest
        self.topic.sends(entry)
        return entry

    def metadata(self, metadata: pb.MessageMetadata) -> None:
        """Add fields to the metadata of a new entry."""

    def _forged_records(self) -> bytes:
        """Records of the next entries of the ledger that the last receipt named, and of the entry itself."""
        ledger_id, entry_id = max(self.topic.receipts, default=(0, -1))
        metadata = pb.MessageMetadata(producer_name="forged", sequence_id=0, publish_time=1)
        body = encode_entry(metadata, b"forged")
        return b"".join(record(ledger_id, entry_id + k, body, entry_id) for k in range(1, 12))

    def _send(self, entry: Sent) -> None:
        entry.copies += 1
        highest = entry.sequence_id + max(entry.count, 1) - 1
        self.send(requests.send(1, entry.sequence_id, highest, entry.count, entry.body))


class SimConsumer(Client):
    """Takes messages, acknowledges most of them, sometimes asks for redelivery or does nothing."""

    def __init__(
        self, world: World, name: str, topic: TopicHistory, subscription: SubscriptionHistory, sub_type: int
    ) -> None:
        super().__init__(world, name, topic)
        self.subscription, self.sub_type = subscription, sub_type
        self.acknowledges = 0.9
        self.gives_back = True
        self.permits = self.chance.choice([1, 5, 50])
        self.taken: dict[tuple[int, int], bytes] = {}
        """All entries that the consumer has received; the final check compares them with the owed entries."""
        self._last = (-1, -1)
        self._owed = 0
        self._requests = 0
        self._waiting: dict[int, Any] = {}

    def connected(self) -> None:
        self.note("subscribes")
        begins, epoch = self.topic.keeps_all and self.subscription.absent, self.subscription.epoch
        self.subscription.requested += 1
        command = pb.CommandSubscribe(
            topic=self.topic.name,
            subscription=self.subscription.name,
            subType=self.sub_type,
            consumer_id=1,
            consumer_name=self.name,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        self.subscribes(command)
        self._ask(Command.SUBSCRIBE, "subscribe", command, lambda: self._subscribed(begins, epoch))

    def subscribes(self, command: pb.CommandSubscribe) -> None:
        """Add fields to a SUBSCRIBE."""

    def _ask(self, kind: int, field: str, command: Any, then: Any) -> None:
        self._requests += 1
        command.request_id = self._requests
        self._waiting[self._requests] = then
        self.command(kind, **{field: command})

    def _subscribed(self, begins: bool, epoch: int) -> None:
        subscription = self.subscription
        self.ready = True
        self._last, self._owed = (-1, -1), 0
        stays = self.topic.until_s < float("inf")  # no deletion of the topic is under way
        if not subscription.exists and subscription.epoch == epoch and stays:
            subscription.since_s = self.world.now_s
            subscription.begins_at_start = begins
        self._flow(self.permits)

    def _flow(self, permits: int) -> None:
        self.command(Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=permits))

    def ended(self) -> None:
        self._waiting.clear()

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.MESSAGE:
            self._on_message(command.message, payload)
        elif command.type == Command.SUCCESS:
            self._waiting.pop(command.success.request_id, lambda: None)()
        elif command.type == Command.ACK_RESPONSE:
            then = self._waiting.pop(command.ackResponse.request_id, lambda: None)
            if not command.ackResponse.HasField("error"):
                then()
        elif command.type == Command.ERROR:
            self._waiting.pop(command.error.request_id, None)
            if not self.ready:
                self.drop()
        elif command.type == Command.CLOSE_CONSUMER:
            self.drop()
        elif command.type == Command.ACTIVE_CONSUMER_CHANGE:
            self._last = (-1, -1)  # the new active consumer begins with unacknowledged entries

    def _on_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        position = Position(message.message_id.ledgerId, message.message_id.entryId)
        self.note(f"message {position[0]}:{position[1]}")
        prefix = after_prefix(payload)
        found = parse_entry_metadata(payload) if prefix else None
        entry = self.topic.got(position, payload[prefix:], None if found is None else found.index)
        if (found is None) != (entry.count == 0):
            raise ViolationError(f"{self.topic.name} {position}: {entry.count} messages and entry metadata {found}")
        if self.sub_type in (EXCLUSIVE, FAILOVER) and position <= self._last:
            raise ViolationError(f"{self.name}: {position} behind {self._last}")
        early_ms = entry.deliver_at_ms - TICK_MS - (WALL_EPOCH_MS + self.written_s * 1000)
        early_ms -= self.world.clock.most_ahead_s * 1000
        if self.sub_type in (SHARED, KEY_SHARED) and early_ms > 1:  # times of the wire are whole milliseconds
            raise ViolationError(f"{self.name}: {position} comes {early_ms:.0f} ms before it is due")
        if self.subscription.was_surely_acked(position, self.written_s) and not self.world.damage.may_set_back(
            self.topic, self.subscription
        ):
            raise ViolationError(f"{self.name}: {position} comes again after its acknowledgement was answered")
        self._last = position
        self.taken[position] = payload[prefix:]
        self._owed += max(entry.count, 1)
        if self._owed * 2 >= self.permits:
            self._flow(self._owed)
            self._owed = 0
        self.later(self.chance.expovariate(8), lambda: self._decide(position))

    def _decide(self, position: tuple[int, int]) -> None:
        if not self.ready or self.chance.random() > self.acknowledges:
            if self.ready and self.gives_back and self.sub_type in (SHARED, KEY_SHARED):
                self.note(f"gives-back {position[0]}:{position[1]}")
                command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
                command.message_ids.add(ledgerId=position[0], entryId=position[1])
                kind = Command.REDELIVER_UNACKNOWLEDGED_MESSAGES
                self.command(kind, redeliverUnacknowledgedMessages=command)
            return
        cumulative = self.sub_type in (EXCLUSIVE, FAILOVER) and self.chance.random() < 0.3
        self._ack(position, cumulative=cumulative)

    def _ack(self, position: tuple[int, int], *, cumulative: bool) -> None:
        command = pb.CommandAck(consumer_id=1)
        command.ack_type = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        command.message_id.add(ledgerId=position[0], entryId=position[1])
        self.note(f"{'ack-up-to' if cumulative else 'ack'} {position[0]}:{position[1]}")
        subscription, state = self.subscription, self.subscription.state
        if cumulative:
            subscription.acked_up_to = max(subscription.acked_up_to, position)
        else:
            subscription.acked.add(position)

        def sure() -> None:
            self.note(f"acked {position[0]}:{position[1]}")
            if subscription.state != state or subscription.moved:
                return
            if not cumulative:
                subscription.sure.setdefault(position, self.world.now_s)
            elif not subscription.sure_up_to or position > subscription.sure_up_to[-1][0]:
                subscription.sure_up_to.append((position, self.world.now_s))

        self._acknowledge(command, sure, unanswered=0.5)

    def _acknowledge(self, command: pb.CommandAck, sure: Callable[[], None], *, unanswered: float) -> None:
        """Send an ACK, with this probability without a request id; ``sure``: the ACK is durable."""
        if self.chance.random() < unanswered:
            self.command(Command.ACK, ack=command)
        else:
            self._ask(Command.ACK, "ack", command, sure)


class WanderingReader(Client):
    """A reader of a non-durable subscription, which perhaps has the name of a durable subscription: it reads a little,
    seeks, and reconnects after a while.
    """

    def connected(self) -> None:
        self.note("reads")
        self.send(requests.reader(1, 1, self.topic.name, self.name.rpartition("/")[2], {}))

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.SUCCESS and not self.ready:
            self.ready = True
            permits = self.chance.choice([1, 3, 100])
            self.command(Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=permits))
            self.later(self.chance.expovariate(1), self._wander)
        elif command.type == Command.MESSAGE:
            position = Position(command.message.message_id.ledgerId, command.message.message_id.entryId)
            prefix = after_prefix(payload)
            metadata = parse_entry_metadata(payload) if prefix else None
            self.topic.got(position, payload[prefix:], None if metadata is None else metadata.index)
        elif command.type in (Command.ERROR, Command.CLOSE_CONSUMER):
            self.drop()

    def _wander(self) -> None:
        if self.topic.receipts and self.chance.random() < 0.6:
            place = self.chance.choice(sorted(self.topic.receipts))
            self.note(f"seeks {place[0]}:{place[1]}")
            seek = pb.CommandSeek(consumer_id=1, request_id=2)
            seek.message_id.ledgerId, seek.message_id.entryId = place
            self.command(Command.SEEK, seek=seek)
        else:
            self.drop()

    def _over(self) -> None:
        super()._over()
        self._life += 1  # a later reconnection replaces the planned reconnection
        if not self.stopped:
            self.later(self.chance.choice([0.1, 0.5, 4.0]), self.connect)


class SimReader(Client):
    """Reads the whole topic once, from the first entry; ``found`` is in the order of arrival."""

    def __init__(self, world: World, name: str, topic: TopicHistory) -> None:
        super().__init__(world, name, topic)
        self.found: list[tuple[tuple[int, int], Sent, int | None]] = []

    def connected(self) -> None:
        self.found.clear()
        self.send(requests.reader(1, 1, self.topic.name, self.name, {}))

    def on(self, command: pb.BaseCommand, payload: bytes) -> None:
        if command.type == Command.SUCCESS:
            self.ready = True
            self.command(Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1_000_000))
        elif command.type == Command.MESSAGE:
            position = Position(command.message.message_id.ledgerId, command.message.message_id.entryId)
            prefix = after_prefix(payload)
            metadata = parse_entry_metadata(payload) if prefix else None
            index = None if metadata is None else metadata.index
            self.found.append((position, self.topic.got(position, payload[prefix:], index), index))
        elif command.type in (Command.ERROR, Command.CLOSE_CONSUMER):
            self.drop()
