"""Texts that are not UTF-8 are noticed and replaced wherever in a command they stand."""

import pytest
from google.protobuf import text_format

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.texts import has_sound_texts, with_sound_texts


def swapped(message):
    """The message with each text `swap` replaced by what is no text, as a peer may send it."""
    return type(message).FromString(message.SerializeToString().replace(b"swap", b"\xff\xfe\xfd\xfc"))


COMMANDS = pytest.mark.parametrize(
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


@COMMANDS
def test_a_text_that_is_none_is_noticed(command):
    assert has_sound_texts(command)
    assert not has_sound_texts(swapped(command))


@COMMANDS
def test_a_text_that_is_none_is_read_as_java_reads_it(command):
    data = swapped(command).SerializeToString()
    sound = text_format.MessageToString(command, as_utf8=True).replace("swap", "\ufffd" * 4)
    assert type(command).FromString(with_sound_texts(data, command.DESCRIPTOR)) == text_format.Parse(
        sound, type(command)()
    )


def test_all_else_stays_byte_for_byte():
    schema = pb.Schema(name="swap", schema_data=b"\xff\xfe", type=pb.Schema.String)
    command = pb.CommandProducer(topic="ü", producer_id=2**64 - 1, request_id=1, schema=schema, encrypted=True)
    unknown = b"\xf9\x3f12345678\xfd\x3f1234\xfb\x3f\xfc\x3f\xfa\x3f\x02\xff\xff"  # fixed64, fixed32, a group, bytes
    data = command.SerializeToString() + unknown
    assert with_sound_texts(data, command.DESCRIPTOR) == data


def test_bytes_may_be_any_bytes():
    schema = pb.Schema(name="n", schema_data=b"\xff\xfe", type=pb.Schema.String)
    assert has_sound_texts(pb.CommandProducer(topic="ü", producer_id=1, request_id=1, schema=schema))


def test_a_command_without_texts_costs_nothing_of_note():
    assert has_sound_texts(pb.CommandFlow(consumer_id=1, messagePermits=1))
    assert has_sound_texts(
        pb.CommandAck(consumer_id=1, ack_type=0, message_id=[pb.MessageIdData(ledgerId=1, entryId=1)])
    )
