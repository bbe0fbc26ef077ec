"""Rows of an older version have the defaults of the reader's schema, as Avro in Java resolves them."""

import datetime as dt
import decimal

import pytest

from magnetar.pipeline.values.avro_values import AvroValues
from tests.pipeline.values.values_for_tests import avro_schema, batch, encode_avro, rows

INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "b", "type": "int", "default": 5}, {"name": "c", "type": "string", "default": "x"}],
}
CASES = {
    "bytes": ("bytes", "a\u00ff", b"a\xff"),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, "\u0000\u00fe", b"\x00\xfe"),
    "milliseconds": (
        {"type": "long", "logicalType": "timestamp-millis"},
        1000,
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
    ),
    "date": ({"type": "int", "logicalType": "date"}, 1, dt.date(1970, 1, 2)),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "\u0004\u00d2",
        decimal.Decimal("12.34"),
    ),
    "record with defaults of its own": (INNER, {"c": "y"}, {"b": 5, "c": "y"}),
    "list of records": ({"type": "array", "items": INNER}, [{}], [{"b": 5, "c": "x"}]),
    "map": ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
    "enum": ({"type": "enum", "name": "E", "symbols": ["P", "Q"]}, "Q", "Q"),
    "first of a union": (["bytes", "null"], "\u00ff", b"\xff"),
    "null": (["null", INNER], None, None),
    "float": ("float", 1, 1.0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_new_field_has_its_default_in_rows_of_an_older_version(case):
    kind, default, expected = CASES[case]
    old = avro_schema({"name": "id", "type": "int"})
    new = avro_schema({"name": "id", "type": "int"}, {"name": "added", "type": kind, "default": default})
    found, failures = rows(AvroValues(new, {0: old}.get), batch(encode_avro(old, {"id": 1}), versions=[0]))
    assert (found, failures) == ([{"id": 1, "added": expected}], {})


def test_a_type_that_is_named_has_its_defaults_too():
    old = avro_schema({"name": "first", "type": INNER})
    new = avro_schema({"name": "first", "type": INNER}, {"name": "second", "type": "Inner", "default": {}})
    given = batch(encode_avro(old, {"first": {"b": 1, "c": "z"}}), versions=[0])
    found, failures = rows(AvroValues(new, {0: old}.get), given)
    assert (found, failures) == ([{"first": {"b": 1, "c": "z"}, "second": {"b": 5, "c": "x"}}], {})
