"""Avro payloads: both ways of reading agree with fastavro, and older versions resolve to the reader's columns."""

import datetime as dt
import decimal
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulsar.schema import AvroSchema, Integer, Record, String

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.avro_values import AvroValues
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from tests.pipeline.values.values_for_tests import avro_schema, batch, encode_avro, rows

FLAT = avro_schema(
    {"name": "id", "type": "long"},
    {"name": "customer", "type": ["null", "string"], "default": None},
    {"name": "count", "type": "int"},
    {"name": "price", "type": "double"},
    {"name": "ratio", "type": ["float", "null"]},
    {"name": "paid", "type": "boolean"},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    {"name": "blob", "type": ["null", "bytes"]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
)
UTC = dt.UTC
RECORD = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "customer": st.none() | st.text(max_size=20),
        "count": st.integers(-(2**31), 2**31 - 1),
        "price": st.floats(allow_nan=False),
        "ratio": st.none() | st.floats(allow_nan=False, width=32),
        "paid": st.booleans(),
        "kind": st.sampled_from("AB"),
        "hash": st.binary(min_size=4, max_size=4),
        "blob": st.none() | st.binary(max_size=20),
        "day": st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=5000)),
        "local": st.datetimes(),
        "clock": st.integers(0, 86_399_999),
        "uid": st.uuids().map(str),
    }
)


def physical_values(record):
    """The values that the test library's writer takes for logical types; columns hold the underlying type."""
    clock = (dt.datetime.min + dt.timedelta(milliseconds=record["clock"])).time()
    return {**record, "clock": clock}


@given(records=st.lists(st.none() | RECORD, max_size=8))
@settings(max_examples=80, deadline=None)
def test_flat_records_are_read_in_lock_step(records):
    payloads = [None if r is None else encode_avro(FLAT, physical_values(r))[0] for r in records]
    decoder = AvroValues(FLAT, lambda _: None)
    expected = [dict.fromkeys(RECORD_NAMES) if r is None else r for r in records]
    assert decoder._in_lock_step(batch(payloads).payload, decoder._own) is not None
    assert rows(decoder, batch(payloads)) == (expected, {})
    decoder._in_lock_step = lambda *_: None
    assert rows(decoder, batch(payloads)) == (expected, {})


RECORD_NAMES = [field["name"] for field in FLAT.definition["fields"]]


@given(data=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_record_or_a_failure_of_their_row(data):
    decoder = AvroValues(FLAT, lambda _: None)
    fast, slow = rows(decoder, batch(data)), None
    decoder._in_lock_step = lambda *_: None
    slow = rows(decoder, batch(data))
    assert repr(fast) == repr(slow)


def test_a_cut_payload_fails_alone():
    schema = avro_schema({"name": "a", "type": "string"}, {"name": "b", "type": "double"})
    good = encode_avro(schema, {"a": "x", "b": 1.5})[0]
    found, failures = rows(value_decoder(schema), batch([good, good[:-1], None, b"\xff" * 12]))
    assert found[0] == {"a": "x", "b": 1.5}
    assert found[2] == {"a": None, "b": None}
    assert set(failures) == {1, 3}


def test_nested_records_and_decimals():
    line = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
    }
    schema = avro_schema(
        {"name": "lines", "type": {"type": "array", "items": line}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    )
    value = {
        "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": None}],
        "tags": {"x": 5},
        "first": {"sku": "c", "n": 2},
        "price": decimal.Decimal("12.50"),
    }
    decoder = value_decoder(schema)
    assert [c.ddl for c in decoder.columns] == [
        "ARRAY<STRUCT<`sku`: STRING, `n`: INT>>",
        "MAP<STRING, BIGINT>",
        "STRUCT<`sku`: STRING, `n`: INT>",
        "DECIMAL(9, 2)",
    ]
    found, failures = rows(decoder, batch(encode_avro(schema, value)))
    assert (found, failures) == ([{**value, "tags": [("x", 5)]}], {})


def test_mixed_unions_become_text():
    schema = avro_schema({"name": "u", "type": ["null", "string", "int", {"type": "array", "items": "int"}]})
    payloads = encode_avro(schema, {"u": "a"}, {"u": 5}, {"u": [1, 2]}, {"u": None})
    found, _ = rows(value_decoder(schema), batch(payloads))
    assert [row["u"] for row in found] == ["a", "5", "[1, 2]", None]


def test_unions_of_numbers_become_the_wider_one():
    schema = avro_schema({"name": "a", "type": ["int", "long"]}, {"name": "b", "type": ["null", "float", "double"]})
    decoder = value_decoder(schema)
    assert [c.ddl for c in decoder.columns] == ["BIGINT", "DOUBLE"]
    assert rows(decoder, batch(encode_avro(schema, {"a": 2**40, "b": None})))[0] == [{"a": 2**40, "b": None}]


# --- evolution --------------------------------------------------------------------------------------------------------

V0 = avro_schema({"name": "id", "type": "int"}, {"name": "old", "type": "string"})
V1 = avro_schema({"name": "id", "type": "int"}, {"name": "added", "type": ["null", "string"], "default": None})
V2 = avro_schema(
    {"name": "added", "type": ["null", "string"], "default": None},
    {"name": "id", "type": "long"},
    {"name": "place", "type": "string", "default": "shop"},
)
STORED = {0: V0, 1: V1, 2: V2}


@pytest.mark.parametrize("flat", [True, False])
def test_older_versions_resolve_to_the_readers_columns(flat):
    payloads = encode_avro(V0, {"id": 1, "old": "x"}) + encode_avro(V1, {"id": 2, "added": "a"})
    payloads += encode_avro(V2, {"id": 3, "added": "b", "place": "home"})
    decoder = AvroValues(V2, STORED.get)
    if not flat:
        decoder._in_lock_step = lambda *_: None
    found, failures = rows(decoder, batch(payloads, versions=[0, 1, 2]))
    assert failures == {}
    assert found == [
        {"added": None, "id": 1, "place": "shop"},
        {"added": "a", "id": 2, "place": "shop"},
        {"added": "b", "id": 3, "place": "home"},
    ]


def test_columns_that_come_and_go_keep_the_lock_step():
    decoder = AvroValues(V1, STORED.get)
    payloads = encode_avro(V0, {"id": 1, "old": "x"}, {"id": 2, "old": "y"})
    given_batch = batch(payloads, versions=[0, 0])
    assert decoder._in_lock_step(given_batch.payload, decoder._writer(V0)) is not None
    assert rows(decoder, given_batch) == ([{"id": 1, "added": None}, {"id": 2, "added": None}], {})


def test_drift_that_does_not_resolve_is_a_failure_of_its_rows():
    reader = avro_schema({"name": "id", "type": "string"}, {"name": "needed", "type": "int"})
    payloads = encode_avro(V0, {"id": 1, "old": "x"}) + encode_avro(reader, {"id": "a", "needed": 1})
    found, failures = rows(AvroValues(reader, STORED.get), batch(payloads, versions=[0, None]))
    assert found[1] == {"id": "a", "needed": 1}
    assert list(failures) == [0]
    assert "does not resolve" in failures[0]


def test_records_are_compared_by_their_fields_not_their_names():
    reader = avro_schema({"name": "id", "type": "long"}, name="Renamed")
    found, failures = rows(AvroValues(reader, STORED.get), batch(encode_avro(V0, {"id": 1, "old": "x"}), versions=[0]))
    assert (found, failures) == ([{"id": 1}], {})


@pytest.mark.parametrize("kind", ["JSON", "STRING", "INT32", "KEY_VALUE"])
def test_a_version_of_another_type_is_a_failure_of_its_rows(kind):
    """`{` is a number in Avro, so a JSON object can look like a record."""
    reader = avro_schema({"name": "a", "type": "int"})
    payloads = [b'{"a":1}', *encode_avro(reader, {"a": 5})]
    decoder = value_decoder(reader, {0: TopicSchema(kind, reader.data), 1: reader}.get)
    found, failures = rows(decoder, batch(payloads, versions=[0, 1]))
    assert failures == {0: f"schema version 0: its payloads are {kind}, not AVRO; read with valueMode=bytes"}
    assert found == [{"a": None}, {"a": 5}]


def test_an_unknown_version_is_a_failure_of_its_rows():
    payloads = encode_avro(V1, {"id": 1, "added": None}, {"id": 2, "added": None})
    asked = []
    decoder = AvroValues(V1, asked.append)
    found, failures = rows(decoder, batch(payloads, versions=[7, None]))
    assert failures == {0: "schema version 7 is not known"}
    assert found[1]["id"] == 2
    rows(decoder, batch(payloads, versions=[7, 7]))
    assert asked == [7]


def test_an_encrypted_payload_has_no_value():
    payloads = encode_avro(V1, {"id": 1, "added": None}, {"id": 2, "added": None})
    found, failures = rows(value_decoder(V1), batch(payloads, encrypted=[0]))
    assert list(failures) == [0]
    assert found[1]["id"] == 2


# --- schemas that have no columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        (b"{", "no JSON"),
        (b'{"type": "unheard-of"}', "does not define"),
        (b'{"type": "record", "name": "R", "fields": []}', "no fields"),
        (b'{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}', "contains itself"),
        (
            b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}',
            "differ by case",
        ),
        (b'{"type": "bytes", "logicalType": "decimal", "precision": 50}', "at most 38"),
        (b"[" * 200 + b'"int"' + b"]" * 200, "nested too deeply"),
    ],
)
def test_a_schema_without_columns_is_named(definition, why):
    with pytest.raises(SchemaError, match=why):
        value_decoder(TopicSchema("AVRO", definition))


def test_a_schema_that_is_no_record_has_the_column_value():
    decoder = value_decoder(TopicSchema("AVRO", b'{"type": "array", "items": "int"}'))
    assert [(c.name, c.ddl) for c in decoder.columns] == [("value", "ARRAY<INT>")]
    assert rows(decoder, batch([b"\x04\x02\x04\x00"]))[0] == [{"value": [1, 2]}]


def test_values_of_the_official_client():
    class Example(Record):
        a = Integer()
        b = String()

    schema = AvroSchema(Example)
    decoder = value_decoder(TopicSchema("AVRO", json.dumps(Example.schema()).encode()))
    payloads = [schema.encode(Example(a=i, b=None if i % 2 else str(i))) for i in range(10)]
    random.Random(1).shuffle(payloads)
    found, failures = rows(decoder, batch(payloads))
    assert failures == {}
    assert sorted(row["a"] for row in found) == list(range(10))


NESTED = avro_schema(
    {
        "name": "lines",
        "type": {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Line",
                "fields": [
                    {"name": "sku", "type": "string"},
                    {"name": "n", "type": ["null", "int"]},
                    {"name": "dims", "type": {"type": "array", "items": "double"}},
                ],
            },
        },
    },
    {"name": "tags", "type": ["null", {"type": "map", "values": ["null", "long"]}]},
    {"name": "first", "type": ["null", "Line"]},
    {"name": "nested", "type": {"type": "array", "items": {"type": "map", "values": "Line"}}},
    {"name": "last", "type": "boolean"},
)
LINE = st.fixed_dictionaries(
    {
        "sku": st.text(max_size=5),
        "n": st.none() | st.integers(-5, 5),
        "dims": st.lists(st.floats(allow_nan=False), max_size=2),
    }
)
NESTED_RECORD = st.fixed_dictionaries(
    {
        "lines": st.lists(LINE, max_size=3),
        "tags": st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.integers(0, 2**40), max_size=3),
        "first": st.none() | LINE,
        "nested": st.lists(st.dictionaries(st.text(max_size=2), LINE, max_size=2), max_size=2),
        "last": st.booleans(),
    }
)


@given(records=st.lists(st.none() | NESTED_RECORD, min_size=1, max_size=6), version=st.sampled_from((None, 0)))
@settings(max_examples=80, deadline=None)
def test_nested_records_are_read_in_lock_step_too(records, version):
    payloads = [None if r is None else encode_avro(NESTED, r)[0] for r in records]
    decoder = AvroValues(NESTED, {0: NESTED}.get)
    given_batch = batch(payloads, versions=[version] * len(payloads))
    fast = decoder._in_lock_step(given_batch.payload, decoder._own)
    assert fast is not None
    found = rows(decoder, given_batch)
    decoder._in_lock_step = lambda *_: None
    assert found == rows(decoder, given_batch)
    assert found[1] == {}


def test_long_lists_are_read_one_by_one():
    schema = avro_schema({"name": "a", "type": {"type": "array", "items": "int"}})
    decoder = AvroValues(schema, lambda _: None)
    given_batch = batch(encode_avro(schema, {"a": list(range(500))}, {"a": []}))
    assert decoder._in_lock_step(given_batch.payload, decoder._own) is None
    assert rows(decoder, given_batch)[0] == [{"a": list(range(500))}, {"a": []}]


def test_blocks_with_their_size():
    decoder = value_decoder(TopicSchema("AVRO", b'{"type": "array", "items": "int"}'))
    assert rows(decoder, batch([b"\x03\x04\x02\x04\x02\x06\x00", b"\x00"])) == (
        [{"value": [1, 2, 3]}, {"value": []}],
        {},
    )


def test_a_union_of_null_and_a_record_has_the_records_columns():
    definition = b'["null", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}]'
    decoder = value_decoder(TopicSchema("AVRO", definition), {1: TopicSchema("AVRO", definition)}.get)
    assert rows(decoder, batch([b"\x02\x04", b"\x00"], versions=[1, None])) == ([{"a": 2}, {"a": None}], {})


def test_a_named_type_keeps_the_namespace_of_its_definition():
    enum = {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "f", "type": "E"}]}
    other = {"type": "record", "name": "Other", "namespace": "b", "fields": [{"name": "z", "type": "shop.Inner"}]}
    schema = avro_schema(enum, {"name": "x", "type": inner}, {"name": "y", "type": other})
    value = {"e": "A", "x": {"f": "A"}, "y": {"z": {"f": "A"}}}
    assert rows(value_decoder(schema), batch(encode_avro(schema, value))) == ([value], {})
