"""Indexes of entries from brokers that tell them, that do not, and that have none."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.reading.index_tracker import IndexTracker, with_index
from magnetar.pipeline.reading.pushed import PushedEntry
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.metadata import parse_entry_metadata, split_entry


def sent(messages, payload=b"x"):
    """An entry as a client sent it."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=messages)
    raw = metadata.SerializeToString()
    return struct.pack(">I", len(raw)) + raw + payload


@st.composite
def logs(draw):
    """(ledger, entry, messages, index of the last one) of a log; some entries are not delivered."""
    index, found = draw(st.integers(0, 100)) - 1, []
    for ledger in range(draw(st.integers(1, 4))):
        for entry in range(draw(st.integers(1, 12))):
            messages = draw(st.integers(1, 5))
            index += messages
            found.append((ledger, entry, messages, index))
    return found


@given(log=logs(), missing=st.sets(st.integers(0, 40)), told=st.booleans(), restarts=st.sets(st.integers(0, 40)))
def test_every_entry_has_its_index_whatever_is_not_delivered(log, missing, told, restarts):
    index_of = {(ledger, entry): (last - n + 1, last) for ledger, entry, n, last in log}
    tracker = IndexTracker(lambda entry: index_of[entry.ledger_id, entry.entry_id])
    for k, (ledger, entry, messages, last) in enumerate(log):
        if k in missing:
            continue
        if k in restarts:
            tracker.restart()
        body = with_index(sent(messages), last) if told else sent(messages)
        found = tracker.track(PushedEntry(ledger, entry, body))
        assert (found.last_index, found.messages) == (last, messages)
        assert parse_entry_metadata(found.body).index == last
        assert bytes(split_entry(found.body)[1]) == b"x"
    assert not told or not tracker.asked


def test_a_log_without_indexes_is_passed_on_as_it_is():
    tracker = IndexTracker(lambda _: None)
    found = tracker.track(PushedEntry(1, 0, sent(3)))
    assert (found.last_index, found.messages, found.body) == (None, 3, sent(3))


def test_what_else_the_broker_stores_before_an_entry_is_kept():
    stored = pb.BrokerEntryMetadata(broker_timestamp=7)
    raw = stored.SerializeToString()
    body = b"\x0e\x02" + struct.pack(">I", len(raw)) + raw + sent(1)
    found = IndexTracker(lambda _: (5, 5)).track(PushedEntry(1, 0, body))
    assert parse_entry_metadata(found.body) == pb.BrokerEntryMetadata(broker_timestamp=7, index=5)
