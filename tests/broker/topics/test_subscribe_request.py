"""A start behind the last entry leaves the start of a reader to its initial position, as in Apache Pulsar."""

import pytest

from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.storage.position import EARLIEST, LATEST, Position
from tests.broker.topic_for_tests import TopicBench

LAST = Position(7, 4)


@pytest.mark.parametrize("start", [LATEST, Position(LATEST.ledger_id, 3), Position(7, 6), Position(8, 0)])
def test_a_start_behind_the_next_entry_does_not_count(start):
    request = SubscribeRequest("r", durable=False, from_earliest=True, start=start)
    assert request.within(LAST) == SubscribeRequest("r", durable=False, from_earliest=True)
    assert request.start == start


@pytest.mark.parametrize("start", [None, EARLIEST, Position(7, 4), Position(7, 5), Position(3, 99)])
def test_any_other_start_counts(start):
    request = SubscribeRequest("r", durable=False, start=start)
    assert request.within(LAST) is request


@pytest.mark.parametrize(("from_earliest", "read"), [(True, 0), (False, 3)])
async def test_a_reader_with_a_start_behind_all_entries_begins_at_its_initial_position(from_earliest, read):
    bench = TopicBench()
    await bench.open()
    positions = await bench.publish(b"a", b"b", b"c")
    start = Position(positions[-1].ledger_id, 9)
    request = SubscribeRequest("r", durable=False, from_earliest=from_earliest, start=start)
    reader = await bench.topic.subscriptions.create(request)
    assert reader.cursor.read_position == Position(positions[0].ledger_id, read)
    await bench.close()
