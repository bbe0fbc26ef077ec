"""Texts that are not UTF-8 are noticed and replaced wherever in a command they stand."""

import pytest
from google.protobuf import text_format

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import TooManyPartsError
from magnetar.protocol.texts import MOST_PARTS, repair_texts
from tests.calls import PYTHON, calls_of


def swapped(message):
    """The message with each text `swap` replaced by bytes that are no text, as a peer may send them."""
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
def test_a_text_that_is_none_is_read_as_java_reads_it(command):
    assert not repair_texts(command)
    found = swapped(command)
    assert repair_texts(found)
    sound = text_format.MessageToString(command, as_utf8=True).replace("swap", "\ufffd" * 4)
    assert found == text_format.Parse(sound, type(command)())


def test_a_text_of_a_list():
    update = swapped(pb.CommandWatchTopicUpdate(watcher_id=1, new_topics=["a", "swap"], topics_hash="h"))
    assert repair_texts(update)
    assert list(update.new_topics) == ["a", "\ufffd" * 4]


def test_all_else_stays_byte_for_byte():
    schema = pb.Schema(name="s", schema_data=b"\xff\xfe", type=pb.Schema.String)
    command = pb.CommandProducer(topic="ü", producer_id=2**64 - 1, request_id=1, schema=schema, encrypted=True)
    unknown = b"\xf9\x3f12345678\xfd\x3f1234\xfb\x3f\xfc\x3f\xfa\x3f\x02\xff\xff"  # fixed64, fixed32, a group, bytes
    data = command.SerializeToString() + unknown
    found = pb.CommandProducer.FromString(data)
    assert not repair_texts(found)
    assert found.SerializeToString() == data


def test_unknown_fields_cost_nothing():
    """A CONNECT of 3.4 MB of them kept the event loop busy for 4 s."""
    data = swapped(pb.CommandConnect(client_version="swap")).SerializeToString()
    found = pb.CommandConnect.FromString(data + b"\xf8\x3f\x01" * 1_000_000)
    assert calls_of(lambda: repair_texts(found), PYTHON) < 50


def test_the_texts_of_a_message_have_a_bound():
    """A SUBSCRIBE of 1 MiB with 170,000 pairs held the event loop for 170 ms."""
    pairs = [pb.KeyValue(key="", value="")] * (MOST_PARTS // 2)
    command = pb.CommandSubscribe(topic="t", subscription="s", subType=0, consumer_id=1, request_id=1)
    command.metadata.extend(pairs)
    command.subscription_properties.extend(pairs)
    assert not repair_texts(command)
    command.schema.properties.extend(pairs[:1])
    with pytest.raises(TooManyPartsError):
        repair_texts(command)
