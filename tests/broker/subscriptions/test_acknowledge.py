"""Acknowledgements as clients send them, on a real topic."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.errors import NotAllowedError
from magnetar.broker.handlers import consume
from magnetar.broker.handlers.request_turns import RequestTurns
from magnetar.broker.limits import MAX_ACK_SET_WORDS
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.broker.dispatch_fakes import EXCLUSIVE, SHARED, Bench, entry, got
from tests.broker.topic_for_tests import TopicBench

NOTHING_BEFORE = 2**64 - 1
"""The entry id -1 on the wire."""


class Exclusive:
    """As much of a consumer as an acknowledgement needs."""

    sub_type = pb.CommandSubscribe.Exclusive
    name = "c"
    last_acked_ms = 0

    class acks:  # noqa: N801 - an attribute of a consumer
        @staticmethod
        def add(messages, size):
            pass


def cumulative(ledger_id, entry_id):
    command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative)
    command.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    return command


@pytest.mark.parametrize("first", [True, False])
async def test_the_entry_before_the_first_of_a_ledger_takes_nothing_of_it(first):
    """The C++ client acknowledges a message within a batch by the entry before it: entry -1 for a ledger's first entry.

    Read as a huge entry id it would acknowledge the whole ledger, unread.
    """
    bench = TopicBench()
    topic = await bench.open()
    subscription = await bench.subscribe()
    before = [] if first else await bench.publish(b"0", b"1")
    await bench.roll()
    after = await bench.publish(b"2", b"3")
    await bench.roll()
    await bench.publish(b"4")
    assert subscription.cursor.backlog_entries == len(before) + 3
    subscription.on_ack(Exclusive(), cumulative(after[0].ledger_id, NOTHING_BEFORE))
    assert subscription.cursor.backlog_entries == 3
    assert subscription.cursor.read(10, 1 << 20)[0].first_position == after[0]
    subscription.on_ack(Exclusive(), cumulative(NOTHING_BEFORE, NOTHING_BEFORE))
    subscription.on_ack(Exclusive(), cumulative(NOTHING_BEFORE, 5))
    subscription.on_ack(Exclusive(), cumulative(2**63, 5))
    assert subscription.cursor.backlog_entries == 3
    assert topic.is_open


async def blocked_at(bench, messages):
    """A consumer of a Shared subscription with permits that holds as many messages as it may, and their positions."""
    consumer = await bench.join(SHARED, permits=messages + 1)
    consumer.outbox.loop = asyncio.get_running_loop()
    consumer.outbox.services = SimpleNamespace(request_turns=RequestTurns())
    positions = bench.publish(*[entry() for _ in range(messages + 1)])
    bench.clock.advance(1)
    assert len(got(consumer)) == messages
    assert consumer.permits.blocked
    return consumer, positions


async def test_an_early_slice_of_a_large_answered_ack_makes_messages_possible(monkeypatch):
    """The limit releases the consumer in the second of four slices, and nothing else wakes the dispatcher."""
    monkeypatch.setattr(consume, "ACKS_IN_ONE_TURN", 2)
    bench = Bench(max_unacked_per_consumer=8)
    consumer, positions = await blocked_at(bench, 8)
    command = pb.CommandAck(consumer_id=consumer.consumer_id, ack_type=pb.CommandAck.Individual, request_id=3)
    for ledger_id, entry_id in positions[:8]:
        command.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    await consume.on_ack(consumer.outbox, command)
    bench.clock.run()
    assert consumer.outbox.names().count("ACK_RESPONSE") == 1
    assert bench.cursor.flushes == 1
    assert got(consumer) == [8]


async def test_a_refused_ack_set_keeps_no_dispatcher_asleep():
    bench = Bench(max_unacked_per_consumer=2)
    consumer, positions = await blocked_at(bench, 2)
    command = pb.CommandAck(consumer_id=consumer.consumer_id, ack_type=pb.CommandAck.Individual, request_id=3)
    for ledger_id, entry_id in positions[:2]:
        command.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    command.message_id.add(ledgerId=7, entryId=2, ack_set=[1] * (MAX_ACK_SET_WORDS + 1))
    with pytest.raises(NotAllowedError):
        bench.subscription.on_ack(consumer, command)
    bench.clock.run()
    assert got(consumer) == [2]


async def test_a_cumulative_ack_of_many_ids_has_no_effect_in_slices_either(monkeypatch):
    monkeypatch.setattr(consume, "ACKS_IN_ONE_TURN", 2)
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(entry(), entry(), entry())
    command = pb.CommandAck(consumer_id=consumer.consumer_id, ack_type=pb.CommandAck.Cumulative)
    for ledger_id, entry_id in positions:
        command.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    assert consume.on_ack(consumer.outbox, command) is None
    assert bench.cursor.backlog_entries == 3


@pytest.mark.parametrize("refused", [0, 5, 9])
async def test_a_refused_ack_set_keeps_no_other_id_of_a_large_ack_from_its_effect(monkeypatch, refused):
    monkeypatch.setattr(consume, "ACKS_IN_ONE_TURN", 2)
    bench = Bench(max_unacked_per_consumer=9)
    consumer, positions = await blocked_at(bench, 9)
    command = pb.CommandAck(consumer_id=consumer.consumer_id, ack_type=pb.CommandAck.Individual, request_id=3)
    for number in range(10):
        if number == refused:
            command.message_id.add(ledgerId=7, entryId=2, ack_set=[1] * (MAX_ACK_SET_WORDS + 1))
        if number < 9:
            ledger_id, entry_id = positions[number]
            command.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    with pytest.raises(NotAllowedError):
        await consume.on_ack(consumer.outbox, command)
    bench.clock.run()
    assert bench.cursor.backlog_entries == 1
    assert got(consumer) == [9]
    assert not consumer.outbox.held
