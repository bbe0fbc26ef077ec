"""Acknowledgements as clients send them, on a real topic."""

from __future__ import annotations

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
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
