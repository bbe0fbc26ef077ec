"""Metadata of stored entries."""

import pytest

from magnetar.protocol import _pure, speed
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from magnetar.protocol.metadata import counted_messages, facts_of, parse_entry_metadata


def test_entry_metadata_that_a_client_made_up_are_none():
    assert parse_entry_metadata(b"\x0e\x02\x00\x00\x00\x03\xff\xff\xff" + b"rest") is None


@pytest.mark.parametrize("entry_type", [bytes, memoryview])
def test_the_facts_of_an_entry(entry_type):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=5, deliver_at_time=9)
    metadata.num_messages_in_batch = 3
    entry = entry_type(encode_entry(metadata, b"x" * 100))
    facts = facts_of(entry)
    found = (memoryview(each).cast("q")[0] for each in (facts.deliver_at, facts.publish_time))
    assert (*found, counted_messages(entry)) == (9, 5, 3)


@pytest.mark.skipif(not speed.COMPILED, reason="no compiler at install time")
def test_messages_are_counted_without_the_twin(monkeypatch):
    """An entry of 5 MB with 800,000 properties took the twin 0.2 s, for each WebSocket consumer."""
    entry = encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=5), b"x")
    monkeypatch.setattr(_pure, "entry_fact", None)
    assert counted_messages(entry) == 1
