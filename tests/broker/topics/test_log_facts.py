"""Facts that the entries of a log give."""

import pytest

from magnetar.broker.compaction import compacted_ledger
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from magnetar.storage.position import EARLIEST
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import append


def entry(**fields):
    return encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1000, **fields), b"x" * 40)


async def loaded_with(*bodies):
    """A topic that was loaded after these entries, and their positions."""
    bench = TopicBench()
    topic = await bench.open()
    positions = await append(topic.ledger, bodies)
    return bench, await bench.reopen(), positions


async def test_markers_before_the_load_are_no_last_message():
    """Seen with Apache Pulsar 4.2.4: a reader that waits for a marker would wait for ever."""
    many = [entry(marker_type=10)] * 250
    _, topic, ids = await loaded_with(entry(), entry(num_messages_in_batch=2), *many)
    for _ in range(2):
        assert await topic.last_message_id() == (ids[1], 1)


async def test_a_log_of_markers_has_no_last_message_after_the_load():
    _, topic, _ = await loaded_with(entry(marker_type=20), entry(marker_type=22))
    for _ in range(2):
        assert await topic.last_message_id() == (EARLIEST, -1)


async def test_markers_behind_the_load_count_until_the_next():
    bench, topic, ids = await loaded_with(entry(), entry(marker_type=10))
    assert await topic.last_message_id() == (ids[0], -1)
    (marker,) = await append(topic.ledger, [entry(marker_type=10)])
    assert await topic.last_message_id() == (marker, -1)
    topic = await bench.reopen()
    assert await topic.last_message_id() == (ids[0], -1)
    assert await topic.last.entry_id() == (marker, -1)


async def test_a_trimmed_log_of_markers_has_no_last_message():
    bench, topic, _ = await loaded_with(entry(), entry(marker_type=10))
    await topic.ledger.truncate()
    assert await topic.last_message_id() == (EARLIEST, -1)


@pytest.mark.parametrize(
    ("batch", "last"), [({"num_messages_in_batch": 5}, 4), ({"num_messages_in_batch": 1}, -1), ({}, -1)]
)
async def test_the_last_message_of_a_compacted_topic_needs_no_parser_for_megabytes_of_metadata(
    monkeypatch, batch, last
):
    """Each GET_LAST_MESSAGE_ID took 0.15 s of the event loop for an entry with 5 MB of metadata."""
    _, topic, _ = await loaded_with(entry(replicate_to=[""] * (1 << 21), **batch))
    parsed = []
    monkeypatch.setattr(compacted_ledger, "parse_metadata", parsed.append)
    large = await topic.ledger.read_entry(topic.ledger.first_position)
    assert compacted_ledger.last_batch_index(large) == last
    assert not parsed
