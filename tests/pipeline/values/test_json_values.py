import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulsar.schema import Integer, JsonSchema, Record, String

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from tests.pipeline.values.values_for_tests import batch, rows

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "price", "type": "double"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "inner", "type": ["null", {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}]},
    {"name": "place", "type": "string", "default": "shop"},
]


def schema(fields=FIELDS):
    return TopicSchema("JSON", json.dumps({"type": "record", "name": "R", "fields": fields}).encode())


def decoded(*payloads, fields=FIELDS, **given):
    return rows(
        value_decoder(schema(fields)),
        batch([p if isinstance(p, bytes | None) else json.dumps(p).encode() for p in payloads], **given),
    )


def test_objects_become_columns():
    value = {"id": 1, "name": "a", "price": 2, "tags": ["x"], "inner": {"n": 3}, "place": "home"}
    assert decoded(value, None) == ([{**value, "price": 2.0}, dict.fromkeys(value)], {})


def test_missing_fields_have_their_default_and_unknown_fields_are_left_out():
    found, failures = decoded({"id": 1, "new": 5, "inner": {"n": 1, "m": 2}})
    assert failures == {}
    assert found == [{"id": 1, "name": None, "price": None, "tags": [], "inner": {"n": 1}, "place": "shop"}]


def test_missing_fields_of_inner_records_have_their_default_too():
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int", "default": 4}]}
    fields = [
        {"name": "i", "type": ["null", inner], "default": None},
        {"name": "l", "type": {"type": "array", "items": "I"}},
    ]
    found, failures = decoded({"i": {}, "l": [{}, {"n": 1}]}, {"l": []}, None, fields=fields)
    assert failures == {}
    assert found == [
        {"i": {"n": 4}, "l": [{"n": 4}, {"n": 1}]},
        {"i": None, "l": []},
        {"i": None, "l": None},
    ]


def test_a_mixed_union_takes_no_defaults_away():
    fields = [{"name": "u", "type": ["int", "string"], "default": 7}, {"name": "n", "type": "int", "default": 4}]
    assert decoded({}, {"u": "x", "n": 1}, fields=fields)[0] == [{"u": "7", "n": 4}, {"u": "x", "n": 1}]


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'{"id": "x"}',
        b'{"id": 9223372036854775808}',
        b'{"inner": {"n": 2147483648}}',
        b'{"id": 1}{}',
        b"\xff",
    ],
)
def test_a_wrong_value_fails_alone(wrong):
    found, failures = decoded(wrong, {"id": 7})
    assert list(failures) == [0]
    assert found[1]["id"] == 7


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('"NaN"', "nan"),
        ('"Infinity"', "inf"),
        ('"-Infinity"', "-inf"),
        ('"INF"', "inf"),
        ('"-INF"', "-inf"),
        ("NaN", "nan"),
        ("Infinity", "inf"),
        ("-Infinity", "-inf"),
    ],
)
def test_numbers_that_json_lacks_as_the_clients_for_java_and_python_write_them(text, number):
    fields = [
        {"name": "d", "type": ["null", "double"], "default": None},
        {"name": "l", "type": {"type": "array", "items": "float"}, "default": []},
        {"name": "m", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "b", "type": "bytes"},
        {"name": "place", "type": "string", "default": "shop"},
    ]
    payload = '{"d": %s, "l": [%s, 1], "m": {"k": %s}, "b": "AQI=", "new": %s}' % ((text,) * 4)
    found, failures = decoded(payload.encode(), {"d": 1.5}, fields=fields)
    assert failures == {}
    assert repr(found[0]["d"]) == number
    assert repr(found[0]["l"]) == f"[{number}, 1.0]"
    assert repr(found[0]["m"]) == f"[('k', {number})]"
    assert (found[0]["b"], found[0]["place"]) == (b"\x01\x02", "shop")
    assert found[1]["d"] == 1.5


@pytest.mark.parametrize("wrong", ['{"d": "nan"}', '{"d": "1.5"}', '{"i": "NaN"}', '{"i": NaN}', '{"d": NaN', "NaN"])
def test_other_text_is_no_number(wrong):
    fields = [{"name": "d", "type": "double"}, {"name": "i", "type": "int"}]
    assert list(decoded(wrong.encode(), {"d": 1, "i": 1}, fields=fields)[1]) == [0]


def test_mixed_unions_become_text():
    fields = [{"name": "u", "type": ["string", "int"]}]
    found, _ = decoded({"u": "a"}, {"u": 5}, {"u": None}, {}, fields=fields)
    assert [row["u"] for row in found] == ["a", "5", None, None]


def test_maps_and_bytes():
    fields = [{"name": "m", "type": {"type": "map", "values": "int"}}, {"name": "b", "type": "bytes"}]
    assert decoded({"m": {"x": 1}, "b": "AQI="}, fields=fields)[0] == [{"m": [("x", 1)], "b": b"\x01\x02"}]


def test_dates_stay_numbers():
    fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    assert decoded({"at": 5}, fields=fields)[0] == [{"at": 5}]


def test_an_encrypted_payload_has_no_value():
    assert list(decoded(b"cipher", {"id": 1}, encrypted=[0])[1]) == [0]


@given(data=st.lists(st.binary(max_size=30), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_a_record_or_a_failure(data):
    found, failures = decoded(*data)
    assert len(found) == len(data)
    assert set(failures) <= set(range(len(data)))


def test_values_of_the_official_client():
    class Example(Record):
        a = Integer()
        b = String()

    payloads = [JsonSchema(Example).encode(Example(a=i, b=str(i))) for i in range(3)]
    decoder = value_decoder(TopicSchema("JSON", json.dumps(Example.schema()).encode()))
    assert rows(decoder, batch(payloads))[0] == [{"a": i, "b": str(i)} for i in range(3)]


def test_another_kind_of_definition_is_named():
    with pytest.raises(SchemaError, match="does not define"):
        value_decoder(TopicSchema("JSON", b'{"type": "object", "properties": {}}'))


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ({"type": "map", "values": "int"}, []),
        ({"type": "array", "items": "int"}, 5),
        ("bytes", "\u1234"),
        ({"type": "record", "name": "In", "fields": [{"name": "x", "type": "int", "default": 1}]}, "text"),
    ],
    ids=str,
)
def test_a_default_that_does_not_fit_its_type_fails_the_rows_that_need_it(kind, default):
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]}
    decoder = value_decoder(TopicSchema("JSON", json.dumps(definition).encode()))
    found, failures = rows(decoder, batch([b"{}", b'{"a":null}']))
    assert found == [{"a": None}] * 2
    assert list(failures) == [0]
