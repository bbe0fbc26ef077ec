"""Keys and values as pulsar-client encodes them: the same bytes as its version 4.0.6."""

import pytest

from magnetar.cli.errors import CommandLineError
from magnetar.cli.pulsar_client.key_values import KeyValueSchema
from magnetar.protocol import pulsar_api_pb2 as pb

STRINGS = {
    "key.schema.name": "String",
    "key.schema.properties": "{}",
    "key.schema.type": "STRING",
    "value.schema.name": "String",
    "value.schema.properties": "{}",
    "value.schema.type": "STRING",
}


def test_inline_strings_as_pulsar_client_sends_them():
    schema = KeyValueSchema("string", "string", "inline")
    assert schema.schema.type == pb.Schema.KeyValue
    assert schema.schema.schema_data == bytes(8)
    assert {p.key: p.value for p in schema.schema.properties} == STRINGS | {"kv.encoding.type": "INLINE"}
    assert schema.outgoing(b"kkk", b"hello", {}).payload == b"\x00\x00\x00\x03kkk\x00\x00\x00\x05hello"
    assert schema.outgoing(None, b"nokey", {}).payload == b"\xff\xff\xff\xff\x00\x00\x00\x05nokey"
    assert schema.outgoing(b"kkk", b"hello", {}).key is None


def test_a_separate_key_stands_in_the_metadata():
    outgoing = KeyValueSchema("bytes", "string", "separated").outgoing(b"k2", b"v2", {"a": "b"})
    assert (outgoing.payload, outgoing.key, outgoing.properties) == (b"v2", b"k2", {"a": "b"})


def test_definitions_of_both_sides_are_the_schema_data():
    schema = KeyValueSchema('json:{"a": 1}', 'json:{"b": 22}', "inline")
    assert schema.schema.schema_data == b'\x00\x00\x00\x08{"a": 1}\x00\x00\x00\x09{"b": 22}'
    with pytest.raises(CommandLineError, match="is no JSON"):
        schema.outgoing(b"?", b"{}", {})
