"""The assertions of the original proposal's three test converters."""

import pytest

from magnetar.converters.entry import Entry, build_entry
from magnetar.converters.errors import ConverterSettingsError
from magnetar.converters.examples import BytesConverter, EchoConverter, RejectAllConverter
from magnetar.converters.interface import DEFAULT_LIMITS, ConverterSettings, MessageConverter
from magnetar.converters.outcome import FailureReason
from magnetar.converters.registry import load_chain
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

ALL = [RejectAllConverter, EchoConverter, BytesConverter]


def entry(payload, fmt="bytes", **fields):
    made = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)
    made.properties.add(key="mine", value="kept")
    if fmt:
        made.properties.add(key="entry.format", value=fmt)
    return build_entry(made.SerializeToString(), payload)


@pytest.mark.parametrize("converter", ALL)
def test_they_fit_the_interface_and_have_no_settings(converter):
    made = converter()
    assert isinstance(made, MessageConverter)
    made.init(ConverterSettings({}, DEFAULT_LIMITS))
    with pytest.raises(ConverterSettingsError, match="no settings"):
        made.init(ConverterSettings({"x": "1"}, DEFAULT_LIMITS))
    made.close()


def test_reject_all_takes_nothing_costs_nothing_and_never_converts():
    chain = load_chain(["reject-all"]).chain
    assert chain.by_format_only
    assert chain.select(entry(b"x")) is None
    assert chain.select(entry(b"x", None)) is None
    assert not RejectAllConverter().accepts(MessageMetadata(), memoryview(b""))
    with pytest.raises(AssertionError):
        RejectAllConverter().convert(MessageMetadata(), memoryview(b""))


def test_echo_gives_the_same_bytes_and_hides_those_behind_it():
    chain = load_chain(["echo", "bytes"]).chain
    data = entry(b"payload")
    chosen = chain.select(data)
    assert chosen.name == "echo"
    result = chain.convert(data, chosen)
    assert result.entry is data


@pytest.mark.parametrize("payload", [b"user bytes", b""])
def test_bytes_without_a_batch_count_becomes_a_plain_message(payload):
    chain = load_chain(["bytes"]).chain
    data = entry(payload, partition_key="k")
    result = chain.convert(data, chain.select(data))
    got = Entry(result.entry)
    got.verify_checksum()
    assert got.payload == payload
    assert not got.metadata.HasField("num_messages_in_batch")
    assert got.metadata.partition_key == "k"
    assert [(p.key, p.value) for p in got.metadata.properties] == [("mine", "kept"), ("entry.format.origin", "bytes")]
    assert result.messages == 1


@pytest.mark.parametrize("payload", [b"user bytes", b""])
def test_bytes_with_a_count_of_one_becomes_a_batch_of_one(payload):
    chain = load_chain(["bytes"]).chain
    data = entry(payload, num_messages_in_batch=1)
    got = Entry(chain.convert(data, chain.select(data)).entry)
    single = SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
    assert got.payload == len(single).to_bytes(4, "big") + single + payload
    assert got.metadata.num_messages_in_batch == 1
    again = chain.convert(data, chain.select(data)).entry
    assert again == got.data, "a redelivery converts to equal bytes"


@pytest.mark.parametrize("count", [2, 0, -1])
def test_bytes_cannot_be_cut_into_several_messages(count):
    chain = load_chain(["bytes"]).chain
    data = entry(b"raw", num_messages_in_batch=count)
    result = chain.convert(data, chain.select(data))
    assert result.reason is FailureReason.EXCEPTION
    assert str(count) in result.message
    assert not result.defect


def test_bytes_leaves_other_formats_alone():
    chain = load_chain(["bytes"]).chain
    assert chain.select(entry(b"x", "kafka")) is None
    assert chain.select(entry(b"x", None)) is None
    assert chain.select(entry(b"x", "BYTES")).name == "bytes"
