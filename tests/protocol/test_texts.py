"""Texts that are not UTF-8 are noticed wherever in a command they stand."""

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.texts import has_sound_texts


def swapped(message, text: bytes = b"swap"):
    """The message with `swap` replaced by what is no text, as a peer may send it."""
    return type(message).FromString(message.SerializeToString().replace(text, b"\xff\xfe\xfd\xfc"))


@pytest.mark.parametrize(
    "command",
    [
        pb.CommandLookupTopic(topic="swap", request_id=1),
        pb.CommandSubscribe(topic="t", subscription="swap", subType=0, consumer_id=1, request_id=1),
        pb.CommandSubscribe(
            topic="t",
            subscription="s",
            subType=0,
            consumer_id=1,
            request_id=1,
            metadata=[pb.KeyValue(key="k", value="swap")],
        ),
        pb.CommandProducer(
            topic="t",
            producer_id=1,
            request_id=1,
            schema=pb.Schema(name="swap", schema_data=b"", type=pb.Schema.String),
        ),
        pb.CommandAck(consumer_id=1, ack_type=0, properties=[pb.KeyLongValue(key="swap", value=1)]),
    ],
    ids=lambda c: type(c).__name__,
)
def test_a_text_that_is_none_is_noticed(command):
    assert has_sound_texts(command)
    assert not has_sound_texts(swapped(command))


def test_bytes_may_be_any_bytes():
    schema = pb.Schema(name="n", schema_data=b"\xff\xfe", type=pb.Schema.String)
    assert has_sound_texts(pb.CommandProducer(topic="ü", producer_id=1, request_id=1, schema=schema))


def test_a_command_without_texts_costs_nothing_of_note():
    assert has_sound_texts(pb.CommandFlow(consumer_id=1, messagePermits=1))
    assert has_sound_texts(
        pb.CommandAck(consumer_id=1, ack_type=0, message_id=[pb.MessageIdData(ledgerId=1, entryId=1)])
    )
