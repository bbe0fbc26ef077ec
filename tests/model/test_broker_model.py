"""A whole broker against `broker_model`, under random clients, restarts and crashes.

MAGNETAR_CRASH_LONG=1 makes thousands of histories of it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import hypothesis.strategies as st
import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.message_id import bits_to_words, words_to_bits
from tests.model.broker_model import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Entry,
    ModelConsumer,
    ModelSubscription,
)
from tests.model.simulated_broker import Command, Frame, Peer, Simulation

TOPIC = "persistent://public/default/model"
NONE = (1 << 64) - 1  # -1 as the wire has it: the receipt of a duplicate
LATEST = (1 << 63) - 1
LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
pytestmark = pytest.mark.timeout(7200 if LONG else 300)


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.logs = structlog.testing.capture_logs()
        self.events = self.logs.__enter__()
        self.log: list[Entry] = []
        self.subscriptions: dict[str, ModelSubscription] = {}
        self.consumers: dict[int, tuple[ModelSubscription, ModelConsumer]] = {}
        self.answers: dict[int, pb.BaseCommand] = {}
        self.sent: list[Entry] = []  # without an answer yet
        self.last_sequence_id = -1
        self.sim: Simulation | None = None

    @initialize(
        deduplication=st.booleans(),
        per_ledger=st.sampled_from([3, 10, 50_000]),
        batch_index_acks=st.booleans(),
        cursor_entries=st.sampled_from([3, 50_000]),
    )
    def begin(self, *, deduplication: bool, per_ledger: int, batch_index_acks: bool, cursor_entries: int) -> None:
        self.deduplication, self.batch_index_acks = deduplication, batch_index_acks
        self.sim = Simulation(
            {
                "broker_deduplication_enabled": deduplication,
                "broker_deduplication_entries_interval": 7,
                "acknowledgment_at_batch_index_level_enabled": batch_index_acks,
                "managed_ledger_max_entries_per_ledger": per_ledger,
                "managed_ledger_min_ledger_rollover_time_minutes": 0,
                "managed_ledger_cursor_max_entries_per_ledger": cursor_entries,
                "default_retention_time_in_minutes": -1,
                "default_retention_size_in_mb": -1,
                "active_consumer_failover_delay_time_millis": 0,
                "max_unacked_messages_per_broker": 1 << 40,  # counted, never reached
            }
        )
        self.sim.start()
        self.connect_producer()

    def teardown(self) -> None:
        try:
            if self.sim is not None:
                self.read_all()
                self.sim.close()
        finally:
            self.logs.__exit__(None, None, None)

    # --- clients --------------------------------------------------------------------------------------------------

    def do(self, function: Any, *arguments: Any, seconds: float = 0.3) -> Any:
        """Call a function on the loop, let the broker act on it, and check everything it sent."""

        async def work() -> Any:
            return function(*arguments)

        result = self.sim.run(work(), seconds)
        for frame in self.sim.network.take():
            self.on_frame(frame)
        return result

    def request(self, peer: Peer, kind: int, field: str, command: Any) -> pb.BaseCommand:
        """Send a request and return its answer."""
        command.request_id = self.sim.next_id()
        self.do(peer.send, Command(type=kind, **{field: command}))
        return self.answers.pop(command.request_id)

    def peer(self) -> Peer:
        return self.do(lambda: Peer(self.sim.broker, self.sim.network))

    def connect_producer(self) -> None:
        self.producer = self.peer()
        command = pb.CommandProducer(
            topic=TOPIC, producer_id=1, producer_name="model", user_provided_producer_name=True
        )
        answer = self.request(self.producer, Command.PRODUCER, "producer", command)
        assert answer.type == Command.PRODUCER_SUCCESS, answer
        assert answer.producer_success.last_sequence_id == (self.last_stored() if self.deduplication else -1)

    def on_frame(self, frame: Frame) -> None:
        command = frame.command
        if command.type == Command.SEND_RECEIPT:
            self.on_receipt(command.send_receipt)
        elif command.type == Command.MESSAGE:
            self.on_message(command.message, frame.payload)
        elif command.type == Command.ACTIVE_CONSUMER_CHANGE:
            change = command.active_consumer_change
            if change.consumer_id in self.consumers and change.is_active:
                subscription, consumer = self.consumers[change.consumer_id]
                subscription.activate(consumer)
        elif command.type == Command.CLOSE_CONSUMER:
            self.forget(command.close_consumer.consumer_id)
        else:
            field = next(value for field, value in command.ListFields() if field.name != "type")
            assert command.type in _ANSWERS, f"unexpected {command}"
            if hasattr(field, "request_id"):
                self.answers[field.request_id] = command

    def on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        entry = self.sent.pop(0)
        assert receipt.sequence_id == entry.sequence_id, "receipts in the order of the SENDs"
        assert receipt.highest_sequence_id == (entry.highest_sequence_id if entry.count > 1 else 0)
        ident = receipt.message_id
        if self.deduplication and entry.highest_sequence_id <= self.last_stored():
            assert (ident.ledgerId, ident.entryId) == (NONE, NONE), "stored twice"
            return
        entry.position = (ident.ledgerId, ident.entryId)
        self.store(entry)

    def last_stored(self) -> int:
        return max((e.highest_sequence_id for e in self.log), default=-1)

    def store(self, entry: Entry) -> None:
        assert not self.log or entry.position > self.log[-1].position, "positions ascend"
        self.log.append(entry)
        for subscription in self.subscriptions.values():
            subscription.appended(len(self.log) - 1)

    def on_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        position = (message.message_id.ledgerId, message.message_id.entryId)
        index = next((i for i, e in enumerate(self.log) if e.position == position), None)
        if index is None:  # delivered before its receipt was written
            entry = self.sent[0]
            raise AssertionError(f"{position} is not known; next to come is {entry}")
        entry = self.log[index]
        assert payload == entry.body, "another message at this position"
        subscription, consumer = self.consumers[message.consumer_id]
        words = list(message.ack_set)
        messages = set(range(entry.count))
        if words:
            bits = words_to_bits(words)
            messages = {i for i in messages if bits >> i & 1}
        subscription.delivered(consumer, index, messages)

    def forget(self, consumer_id: int) -> None:
        if consumer_id in self.consumers:
            subscription, consumer = self.consumers.pop(consumer_id)
            subscription.left_by(consumer)

    # --- publishing -----------------------------------------------------------------------------------------------

    def made(self, counts: list[int], keys: list[str]) -> list[Entry]:
        entries = []
        for count, key in zip(counts, keys, strict=True):
            first, now_ms = self.last_sequence_id + 1, self.sim.clock.now_ms()
            self.last_sequence_id += count
            metadata = pb.MessageMetadata(
                producer_name="model", sequence_id=first, publish_time=now_ms, partition_key=key
            )
            payload = b"message %d" % first
            if count > 1:
                metadata.num_messages_in_batch = count
                metadata.highest_sequence_id = self.last_sequence_id
                payload = encode_batch([(pb.SingleMessageMetadata(partition_key=key), payload)] * count)
            entries.append(Entry(first, encode_entry(metadata, payload), count, key, now_ms))
        return entries

    def send(self, entries: list[Entry]) -> None:
        for entry in entries:
            send = pb.CommandSend(producer_id=1, sequence_id=entry.sequence_id, num_messages=entry.count)
            if entry.count > 1:
                send.highest_sequence_id = entry.highest_sequence_id
            self.producer.send(Command(type=Command.SEND, send=send), entry.body)
        self.sent += entries

    @rule(messages=st.lists(st.tuples(st.sampled_from([1, 1, 3, 5]), st.sampled_from("abc")), min_size=1, max_size=5))
    def publish(self, messages: list[tuple[int, str]]) -> None:
        self.do(self.send, self.made([m[0] for m in messages], [m[1] for m in messages]))
        assert not self.sent, "no receipt"

    @precondition(lambda self: self.log)
    @rule(back=st.integers(1, 4))
    def send_again(self, back: int) -> None:
        """As a client does that is not sure of its receipts."""
        again = [Entry(e.sequence_id, e.body, e.count, e.key, e.publish_ms) for e in self.log[-back:]]
        self.do(self.send, again)
        assert not self.sent, "no receipt"

    @rule()
    def reconnect_producer(self) -> None:
        self.do(self.producer.close)
        self.connect_producer()

    # --- consuming ------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(["s1", "s2"]),
        sub_type=st.sampled_from([EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED]),
        earliest=st.booleans(),
        permits=st.integers(0, 30),
    )
    def subscribe(self, name: str, sub_type: int, earliest: bool, permits: int) -> None:
        known = self.subscriptions.get(name)
        consumer = ModelConsumer(self.sim.next_id(), self.peer())
        command = pb.CommandSubscribe(
            topic=TOPIC,
            subscription=name,
            subType=sub_type,
            consumer_id=consumer.consumer_id,
            consumer_name=f"consumer-{consumer.consumer_id}",
            initialPosition=pb.CommandSubscribe.Earliest if earliest else pb.CommandSubscribe.Latest,
        )
        subscription = known or ModelSubscription(name, sub_type, self.log, 0 if earliest else len(self.log))
        free = not subscription.consumers
        welcome = free or (subscription.type == sub_type and sub_type != EXCLUSIVE)
        if welcome:
            self.subscriptions[name] = subscription
            subscription.type = sub_type
            subscription.joined(consumer)
            self.consumers[consumer.consumer_id] = subscription, consumer
        answer = self.request(consumer.peer, Command.SUBSCRIBE, "subscribe", command)
        assert answer.type == (Command.SUCCESS if welcome else Command.ERROR), answer
        if not welcome:
            assert answer.error.error == pb.ConsumerBusy
            self.do(consumer.peer.close)
        elif permits:
            self.flow(consumer, permits)

    def flow(self, consumer: ModelConsumer, permits: int) -> None:
        ModelSubscription.flow(consumer, permits)
        flow = pb.CommandFlow(consumer_id=consumer.consumer_id, messagePermits=permits)
        self.do(consumer.peer.send, Command(type=Command.FLOW, flow=flow))

    def some_consumer(self, data: st.DataObject) -> tuple[ModelSubscription, ModelConsumer]:
        return self.consumers[data.draw(st.sampled_from(sorted(self.consumers)), label="consumer")]

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 30))
    def more_permits(self, data: st.DataObject, permits: int) -> None:
        self.flow(self.some_consumer(data)[1], permits)

    @precondition(lambda self: any(c.holds for _, c in self.consumers.values()))
    @rule(data=st.data(), answered=st.booleans(), cumulative=st.booleans())
    def acknowledge(self, data: st.DataObject, answered: bool, cumulative: bool) -> None:
        holding = sorted(i for i, (_, c) in self.consumers.items() if c.holds)
        subscription, consumer = self.consumers[data.draw(st.sampled_from(holding), label="consumer")]
        cumulative &= subscription.single
        chosen = data.draw(st.sets(st.sampled_from(sorted(consumer.holds)), min_size=1, max_size=6), label="entries")
        chosen = {max(chosen)} if cumulative else chosen
        ack = pb.CommandAck(consumer_id=consumer.consumer_id)
        ack.ack_type = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        for index in sorted(chosen):
            entry, messages = self.log[index], set(range(self.log[index].count))
            ident = ack.message_id.add(ledgerId=entry.position[0], entryId=entry.position[1])
            if entry.count > 1 and self.batch_index_acks and data.draw(st.booleans(), label="part of the batch"):
                kept = data.draw(st.sets(st.sampled_from(sorted(messages)), min_size=1), label="kept")
                kept = set(range(min(kept), entry.count)) if cumulative else kept
                messages -= kept
                ident.ack_set.extend(bits_to_words(sum(1 << i for i in kept)))
            (subscription.acked_up_to if cumulative else subscription.acked)(index, messages)
        if answered:
            answer = self.request(consumer.peer, Command.ACK, "ack", ack)
            assert answer.type == Command.ACK_RESPONSE and not answer.ackResponse.HasField("error"), answer
            subscription.saved()
        else:
            self.do(consumer.peer.send, Command(type=Command.ACK, ack=ack))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), everything=st.booleans())
    def redeliver(self, data: st.DataObject, everything: bool) -> None:
        subscription, consumer = self.some_consumer(data)
        command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer.consumer_id)
        entries = None
        if not everything and consumer.holds:
            entries = data.draw(st.sets(st.sampled_from(sorted(consumer.holds)), min_size=1), label="entries")
            for index in sorted(entries):
                ledger_id, entry_id = self.log[index].position
                command.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
        subscription.give_back(consumer, entries)
        base = Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)
        self.do(consumer.peer.send, base)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), politely=st.booleans())
    def leave(self, data: st.DataObject, politely: bool) -> None:
        _, consumer = self.some_consumer(data)
        self.forget(consumer.consumer_id)
        if politely:
            command = pb.CommandCloseConsumer(consumer_id=consumer.consumer_id)
            answer = self.request(consumer.peer, Command.CLOSE_CONSUMER, "close_consumer", command)
            assert answer.type == Command.SUCCESS, answer
        self.do(consumer.peer.close)

    @precondition(lambda self: self.consumers and self.log)
    @rule(data=st.data(), by_time=st.booleans())
    def seek(self, data: st.DataObject, by_time: bool) -> None:
        subscription, consumer = self.some_consumer(data)
        index = data.draw(st.integers(-1, len(self.log)), label="to")
        command = pb.CommandSeek(consumer_id=consumer.consumer_id)
        if by_time:
            time_ms = self.log[min(max(index, 0), len(self.log) - 1)].publish_ms
            command.message_publish_time = time_ms
            index = next(i for i, e in enumerate(self.log) if e.publish_ms >= time_ms)
        elif index == len(self.log):
            command.message_id.ledgerId, command.message_id.entryId = LATEST, LATEST
        else:
            position = (NONE, NONE) if index < 0 else self.log[index].position
            command.message_id.ledgerId, command.message_id.entryId = position
        closed = {subscription.active} if subscription.type == FAILOVER else set(subscription.consumers)
        subscription.moved_to(max(index, 0))
        answer = self.request(consumer.peer, Command.SEEK, "seek", command)
        assert answer.type == Command.SUCCESS, answer
        assert not closed & set(subscription.consumers), "a seek closes consumers"

    @precondition(lambda self: any(len(s.consumers) == 1 for s in self.subscriptions.values()))
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        alone = sorted(n for n, s in self.subscriptions.items() if len(s.consumers) == 1)
        name = data.draw(st.sampled_from(alone), label="subscription")
        subscription = self.subscriptions[name]
        consumer = subscription.consumers[0]
        stands_by = subscription.single and subscription.active is not consumer  # behind a SEEK
        if not stands_by:
            del self.subscriptions[name], self.consumers[consumer.consumer_id]
        command = pb.CommandUnsubscribe(consumer_id=consumer.consumer_id)
        answer = self.request(consumer.peer, Command.UNSUBSCRIBE, "unsubscribe", command)
        assert answer.error.error == pb.MetadataError if stands_by else answer.type == Command.SUCCESS, answer

    # --- time and the process -------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([5, 100]))
    def wait(self, seconds: float) -> None:
        self.do(lambda: None, seconds=seconds)
        for subscription in self.subscriptions.values():
            subscription.saved()  # at the latest a second after

    @rule()
    def restart(self) -> None:
        self.sim.restart()
        self.wake_up(crashed=False)

    @rule(
        under_way=st.lists(st.sampled_from([1, 3]), max_size=4),
        acks=st.booleans(),
        turns=st.integers(0, 25),
        mode=st.sampled_from(["nothing", "everything", "some"]),
        seed=st.integers(0, 1000),
    )
    def crash(self, under_way: list[int], acks: bool, turns: int, mode: str, seed: int) -> None:
        """Crash amid publishes and acknowledgements. Afterwards all messages with a receipt exist, perhaps the first of
        the others, in order; some of the last acknowledgements may be lost.
        """

        async def some_turns() -> None:
            self.send(self.made(under_way, ["a"] * len(under_way)))
            for subscription, consumer in self.consumers.values():
                if acks and consumer.holds:
                    self.acknowledge_first(subscription, consumer)
            for _ in range(turns):
                await asyncio.sleep(0)

        self.sim.loop.run_until_complete(some_turns())
        for frame in self.sim.network.take():
            self.on_frame(frame)
        self.sim.crash(mode, seed)
        self.wake_up(crashed=True)

    def acknowledge_first(self, subscription: ModelSubscription, consumer: ModelConsumer) -> None:
        index = min(consumer.holds)
        ack = pb.CommandAck(consumer_id=consumer.consumer_id, ack_type=pb.CommandAck.Individual)
        ack.message_id.add(ledgerId=self.log[index].position[0], entryId=self.log[index].position[1])
        subscription.acked(index, set(range(self.log[index].count)))
        consumer.peer.send(Command(type=Command.ACK, ack=ack))

    def wake_up(self, *, crashed: bool) -> None:
        self.consumers.clear()
        for subscription in self.subscriptions.values():
            subscription.restarted(crashed=crashed)
        self.read_all()
        self.connect_producer()

    def read_all(self) -> None:
        """A reader gets the log, and perhaps the first of the messages that were under way."""
        peer, consumer_id = self.peer(), self.sim.next_id()
        command = pb.CommandSubscribe(
            topic=TOPIC,
            subscription=f"reader-{consumer_id}",
            subType=EXCLUSIVE,
            consumer_id=consumer_id,
            durable=False,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        command.start_message_id.ledgerId = command.start_message_id.entryId = NONE
        answer = self.request(peer, Command.SUBSCRIBE, "subscribe", command)
        assert answer.type == Command.SUCCESS, answer
        flow = pb.CommandFlow(consumer_id=consumer_id, messagePermits=100_000)

        async def read() -> None:
            peer.send(Command(type=Command.FLOW, flow=flow))

        self.sim.run(read())
        seen = [f for f in self.sim.network.take() if f.command.type == Command.MESSAGE]
        sent, self.sent = self.sent, []
        for i, frame in enumerate(seen):
            ident = frame.command.message.message_id
            if i == len(self.log):
                entry = sent.pop(0)
                entry.position = (ident.ledgerId, ident.entryId)
                self.store(entry)
            assert (ident.ledgerId, ident.entryId) == self.log[i].position
            assert frame.payload == self.log[i].body
        assert len(seen) >= len(self.log), f"{len(self.log) - len(seen)} messages with a receipt are lost"
        self.do(peer.close)

    # --- invariants -----------------------------------------------------------------------------------------------

    @invariant()
    def unacked_messages_are_counted_once(self) -> None:
        """The broker's count against maxUnackedMessagesPerBroker is the number of messages that consumers hold."""
        if self.sim is None:
            return
        context = self.sim.broker.topics.context
        held = sum(
            consumer.permits.unacked
            for topic in self.sim.broker.topics.loaded.values()
            for subscription in topic.subscriptions.by_name.values()
            for consumer in subscription.consumers
            if consumer.pending_acks is not None
        )
        assert context.unacked_total is not None
        assert context.unacked_total.total == held

    @invariant()
    def agrees(self) -> None:
        if self.sim is None:
            return
        bad = [e for e in self.events if e["log_level"] in ("error", "critical", "warning")]
        assert not bad, bad
        topic = self.sim.broker.topics.loaded[TOPIC]
        assert sorted(n for n in topic.subscriptions.by_name if not n.startswith("reader-")) == sorted(
            self.subscriptions
        )
        for name, model in self.subscriptions.items():
            model.quiet()
            ours = topic.subscriptions.by_name[name]
            assert len(ours.consumers) == len(model.consumers)
            if not model.unsure:
                assert ours.cursor.backlog_entries == len(model.left), name
            for consumer in ours.consumers:
                expected = self.consumers[consumer.consumer_id][1]
                assert consumer.permits.available == expected.permits, name
                if not model.single:
                    unacked = sum(len(model.left[i]) for i in expected.holds)
                    assert consumer.permits.unacked == unacked, name


_ANSWERS = {
    Command.CONNECTED,
    Command.SUCCESS,
    Command.ERROR,
    Command.PRODUCER_SUCCESS,
    Command.ACK_RESPONSE,
    Command.CLOSE_PRODUCER,
}


BrokerMachine.TestCase.settings = settings(
    max_examples=3000 if LONG else 30,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestBroker = BrokerMachine.TestCase
