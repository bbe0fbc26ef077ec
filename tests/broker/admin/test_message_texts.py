"""Texts in the bytes of their schema; texts that are no value of the schema are refused."""

import pytest

from magnetar.broker.admin.avro_texts import AvroTextError, AvroTexts
from magnetar.broker.admin.message_texts import PayloadTextError, encoder, parts_of
from magnetar.broker.admin.schema_texts import type_named


@pytest.mark.parametrize(
    ("kind", "text", "data"),
    [
        ("STRING", "ä", "c3a4"),
        ("INT8", "-1", "ff"),
        ("INT16", "+5", "0005"),
        ("INT64", "-5", "fffffffffffffffb"),
        ("BOOLEAN", "TRUE", "01"),
        ("BOOLEAN", "x", "00"),
        ("FLOAT", "1.5", "3fc00000"),
        ("DATE", "Jan 5, 2020", "0000016f73005800"),
        ("INSTANT", "2020-01-01T00:00:00.123456789Z", "000000005e0be100075bcd15"),
        ("LOCAL_DATE_TIME", "1970-01-02T00:00:01", "0000000000000001" + "000000003b9aca00"),
        ("JSON", '{ "a" : [1, "ä"] }', b'{"a":[1,"\xc3\xa4"]}'.hex()),
    ],
)
def test_texts_become_values(kind, text, data):
    assert encoder(type_named(kind), b"")(text).hex() == data


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT8", "300"), ("INT32", " 5"), ("INT32", "1_0"), ("INT64", "x"), ("DOUBLE", "x"), ("DATE", "2020-01-05"), ("INSTANT", "2020-01-01"),
        ("INSTANT", "2020-01-01T00:00:00"), ("LOCAL_TIME", "24:00"), ("LOCAL_DATE", "2020-02-30"), ("JSON", "nonsense"), ("JSON", "[" * 100_000), ("PROTOBUF", "x"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused(kind, text):
    with pytest.raises(PayloadTextError):
        encoder(type_named(kind), b"")(text)


def test_an_avro_schema_that_is_none_is_refused():
    with pytest.raises(PayloadTextError):
        encoder(type_named("AVRO"), b"nonsense")


INNER = {"type": "record", "name": "I", "fields": [{"name": "next", "type": ["null", "I"]}]}


@pytest.mark.parametrize(
    ("schema", "value", "data"),
    [
        ("int", -70, "8b01"),
        ("long", 300, "d804"),
        ("double", 1, "000000000000f03f"),
        ("bytes", "\u00ff", "02ff"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", "6162"),
        ({"type": "enum", "name": "E", "symbols": ["P", "Q"]}, "Q", "02"),
        ({"type": "array", "items": "int"}, [], "00"),
        ({"type": "array", "items": "int"}, [1, 2], "04020400"),
        ({"type": "map", "values": "boolean"}, {"k": True}, "02026b0100"),
        (["null", "string"], {"string": "x"}, "020278"),
        (["null", "string"], None, "00"),
        (INNER, {"next": {"I": {"next": None}}}, "0200"),
    ],
)
def test_avro_json_becomes_binary(schema, value, data):
    assert AvroTexts(schema).encode(value).hex() == data


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", 1 << 31), ("int", True), ("int", "1"), ("string", 1), ("boolean", 0), ("bytes", "€"), (["null", "string"], "x"), (["null", "string"], {"int": 1}),
        (INNER, {}), ({"type": "enum", "name": "E", "symbols": ["P"]}, "Q"), ({"type": "fixed", "name": "F", "size": 2}, "a"), ({"type": "array", "items": "int"}, {}),
        ("float", 1e300),
    ],
)  # fmt: skip
def test_json_that_does_not_fit_is_refused(schema, value):
    with pytest.raises(AvroTextError):
        AvroTexts(schema).encode(value)


def test_parts_of_a_key_value_schema():
    assert parts_of(b"\0\0\0\x01k\0\0\0\x02vv") == (b"k", b"vv")
    with pytest.raises(ValueError, match="cut off"):
        parts_of(b"\0\0\0\x01k")
