"""Requests arrive as they were sent: parsed as a broker cuts them, and as a client would."""

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import requests, speed
from magnetar.protocol.answers import AnswerCutter
from magnetar.protocol.runs import EntryRun
from tests.protocol.frames_for_tests import entry

TOPIC = "persistent://public/default/t"
BUILT = {
    "CONNECT": requests.connect("v", auth_method="token", auth_data=b"abc"),
    "AUTH_RESPONSE": requests.auth_response("v", "token", b"abc"),
    "PONG": requests.pong(),
    "PARTITIONED_METADATA": requests.partitioned_metadata(3, TOPIC),
    "LOOKUP": requests.lookup(3, TOPIC, authoritative=True),
    "PRODUCER": requests.producer(3, 7, TOPIC, "name"),
    "CLOSE_PRODUCER": requests.close_producer(3, 7),
    "SUBSCRIBE": requests.reader(3, 7, TOPIC, "s", {"a": "b"}),
    "FLOW": requests.flow(7, 100),
    "GET_LAST_MESSAGE_ID": requests.get_last_message_id(3, 7),
    "CLOSE_CONSUMER": requests.close_consumer(3, 7),
}


@pytest.mark.parametrize("kind", BUILT)
def test_every_request_is_one_frame_of_its_type(kind):
    frame = BUILT[kind]
    number = pb.BaseCommand.Type.Value(kind)
    end, items, error = speed.cut(frame, 0, len(frame), 1 << 20)
    assert (end, error, [item[0] for item in items]) == (len(frame), None, [number])
    [answer] = AnswerCutter().feed(frame)
    assert (answer.command.type, answer.entry) == (number, b"")
    [value] = [value for field, value in answer.command.ListFields() if field.name != "type"]
    for name, expected in (("request_id", 3), ("producer_id", 7), ("consumer_id", 7), ("topic", TOPIC)):
        if name in value.DESCRIPTOR.fields_by_name:
            assert getattr(value, name) == expected


def test_a_connection_without_credentials():
    [answer] = AnswerCutter().feed(requests.connect("v"))
    assert not answer.command.connect.HasField("auth_method_name")


@pytest.mark.parametrize(("highest", "found"), [(5, 5), (9, 9), (3, 5), (2**63, 5), (2**64 - 1, 5)])
def test_a_send_is_a_run_with_its_ids_and_count(highest, found):
    meta = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=1, num_messages_in_batch=4)
    body = entry(meta, b"payload")
    frame = requests.send(7, 5, highest, 4, body)
    _, [item], error = speed.cut(frame, 0, len(frame), 1 << 20)
    run = EntryRun.from_cut(item)
    assert error is None
    assert (run.producer_id, run.sequence(0), run.high(0), run.total_messages) == (7, 5, found, 4)
    assert bytes(run.entry(0)) == body


def test_a_reader_keeps_nothing_and_begins_at_the_first_entry():
    [answer] = AnswerCutter().feed(BUILT["SUBSCRIBE"])
    subscribe = answer.command.subscribe
    assert not subscribe.durable
    assert subscribe.start_message_id.ledgerId == subscribe.start_message_id.entryId == 2**64 - 1
    assert [(pair.key, pair.value) for pair in subscribe.metadata] == [("a", "b")]
