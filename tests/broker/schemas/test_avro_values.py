"""Avro's binary form: a library reads the encoded values, and bytes of a peer have a bounded cost."""

from __future__ import annotations

import contextlib
import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.schemas.avro_values import MOST_VALUES, AvroValueError, AvroValues

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}
SCHEMA = {
    "type": "record",
    "name": "All",
    "namespace": "a.b",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "real", "type": "double"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "items", "type": {"type": "array", "items": INNER}},
        {"name": "again", "type": ["null", "Inner"]},
        {"name": "map", "type": {"type": "map", "values": "long"}},
    ],
}
VALUES = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "large": st.integers(-(2**63), 2**63 - 1),
        "real": st.floats(allow_nan=False),
        "text": st.none() | st.text(),
        "raw": st.binary(),
        "kind": st.sampled_from(["A", "B"]),
        "items": st.lists(st.fixed_dictionaries({"n": st.integers(-5, 5)}), max_size=3),
        "again": st.none() | st.fixed_dictionaries({"n": st.integers(-5, 5)}),
        "map": st.dictionaries(st.text(), st.integers(-5, 5), max_size=3),
    }
)
OURS, THEIRS = AvroValues(SCHEMA), fastavro.parse_schema(SCHEMA)


@given(VALUES)
def test_the_library_reads_encoded_values_and_the_reverse(value):
    encoded = OURS.encode(value)
    assert fastavro.schemaless_reader(io.BytesIO(encoded), THEIRS) == value
    out = io.BytesIO()
    fastavro.schemaless_writer(out, THEIRS, value)
    assert OURS.decode(out.getvalue()) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_typed_error(data):
    with contextlib.suppress(AvroValueError):
        OURS.decode(data)


def test_items_of_no_size_have_a_bound():
    nothing = AvroValues({"type": "array", "items": "null"})
    assert nothing.decode(b"\x06\x00") == [None] * 3
    with pytest.raises(AvroValueError, match=str(MOST_VALUES)):
        nothing.decode(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00")


def test_a_schema_that_contains_itself_ends():
    chain = AvroValues({"type": "record", "name": "C", "fields": [{"name": "next", "type": ["null", "C"]}]})
    assert chain.decode(b"\x02\x02\x00") == {"next": {"next": {"next": None}}}
    with pytest.raises(AvroValueError):
        chain.decode(b"\x02" * 50_000)


@pytest.mark.parametrize(
    ("schema", "value"),
    [("int", "x"), ("long", 2**63), ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"), (["string"], None)],
)
def test_a_value_of_another_type_is_refused(schema, value):
    with pytest.raises(AvroValueError):
        AvroValues(schema).encode(value)
