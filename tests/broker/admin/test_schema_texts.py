"""Schemas in REST: names of types, definitions of KEY_VALUE schemas."""

import struct

import pytest

from magnetar.broker.admin.schema_texts import name_of, shown_definition, stored_definition, type_named
from magnetar.protocol import pulsar_api_pb2 as pb

KEY_VALUE = pb.Schema.KeyValue


@pytest.mark.parametrize("schema_type", pb.Schema.Type.values())
def test_every_type_has_one_name(schema_type):
    assert type_named(name_of(schema_type)) == schema_type


def test_a_bool_is_a_boolean():
    assert name_of(pb.Schema.Bool) == "BOOLEAN"
    assert type_named("BOOL") is None


AVRO = {"key.schema.type": "AVRO", "value.schema.type": "AVRO"}
RECORD = b'{"type":"record","name":"R","fields":[]}'


@pytest.mark.parametrize("key", [b"", RECORD])
@pytest.mark.parametrize("value", [b"", RECORD])
def test_a_key_value_definition_is_json_there_and_two_sized_parts_here(key, value):
    stored = struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    text = shown_definition(KEY_VALUE, stored, AVRO)
    assert text == f'{{"key":{key.decode() or chr(34) * 2},"value":{value.decode() or chr(34) * 2}}}'
    assert stored_definition(KEY_VALUE, text) == stored


def test_a_part_of_a_type_without_definition_is_not_shown():
    stored = struct.pack(">i", len(RECORD)) + RECORD
    assert shown_definition(KEY_VALUE, stored + stored, {"key.schema.type": "STRING"}) == '{"key":"","value":""}'


def test_parts_of_size_minus_one_are_empty():
    assert shown_definition(KEY_VALUE, struct.pack(">ii", -1, -1), AVRO) == '{"key":"","value":""}'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key":""}', "nonsense"])
def test_invalid_key_value_definitions_are_refused(text):
    with pytest.raises(ValueError, match="KEY_VALUE"):
        stored_definition(KEY_VALUE, text)


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x00\x00\x00\x09short", b'\x00\x00\x00\x09{"a\xff":1}\0\0\0\0'])
def test_a_damaged_key_value_definition_is_shown_all_the_same(stored):
    assert '"key":' in shown_definition(KEY_VALUE, stored, AVRO)


def test_other_definitions_are_their_text():
    assert stored_definition(pb.Schema.Avro, "{}") == b"{}"
    assert shown_definition(pb.Schema.Avro, b"{}", {}) == "{}"
