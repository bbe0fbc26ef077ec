import datetime as dt
import decimal
import io
import json

import fastavro
import pyarrow as pa
import pytest

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.record_schema import record_schema
from magnetar.pipeline.sink.values import value_encoder
from magnetar.protocol import pulsar_api_pb2 as pb


def encoder(batch, **options):
    return value_encoder(batch.schema, SinkOptions.parse({"topic": "t"} | options, streaming=False))


@pytest.mark.parametrize(
    ("kind", "value", "payload", "schema"),
    [
        (pa.binary(), b"\xff", b"\xff", None),
        (pa.string(), "ü", "ü".encode(), None),
        (pa.bool_(), True, b"\x01", pb.Schema.Bool),
        (pa.int8(), -1, b"\xff", pb.Schema.Int8),
        (pa.int16(), 1, b"\x00\x01", pb.Schema.Int16),
        (pa.int32(), 1, b"\x00\x00\x00\x01", pb.Schema.Int32),
        (pa.int64(), -2, b"\xff" * 7 + b"\xfe", pb.Schema.Int64),
        (pa.float32(), 1.0, b"\x3f\x80\x00\x00", pb.Schema.Float),
        (pa.float64(), 1.0, b"\x3f\xf0" + bytes(6), pb.Schema.Double),
    ],
)
def test_a_value_alone(kind, value, payload, schema):
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], kind)], ["value"])
    made = encoder(batch)
    assert made.encode(batch) == [payload, None]
    assert made.schema == (
        None if schema is None else pb.Schema(name=pb.Schema.Type.Name(schema), schema_data=b"", type=schema)
    )
    assert encoder(batch, registerSchema="false").schema is None


RECORD = {
    "id": 7,
    "name": "x",
    "price": decimal.Decimal("12.50"),
    "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 2),
    "tags": ["a", None],
    "inner": {"ok": True},
    "raw": b"\x01",
    "none": None,
}
FIELDS = [
    ("id", pa.int64()),
    ("name", pa.string()),
    ("price", pa.decimal128(10, 2)),
    ("at", pa.timestamp("us", tz="UTC")),
    ("day", pa.date32()),
    ("tags", pa.list_(pa.string())),
    ("inner", pa.struct([("ok", pa.bool_())])),
    ("raw", pa.binary()),
    ("none", pa.float64()),
]


def test_records_in_avro():
    batch = pa.RecordBatch.from_pylist([RECORD], schema=pa.schema(FIELDS))
    made = encoder(batch, recordName="Order")
    (payload,) = made.encode(batch)
    definition = json.loads(made.schema.schema_data)
    assert (made.schema.type, definition["name"]) == (pb.Schema.Avro, "Order")
    assert fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(definition), None) == RECORD


def test_records_in_json():
    batch = pa.RecordBatch.from_pylist([RECORD], schema=pa.schema(FIELDS))
    made = encoder(batch, valueMode="json")
    (payload,) = made.encode(batch)
    assert made.schema.type == pb.Schema.Json
    assert json.loads(payload) == {
        **RECORD,
        "price": "12.50",
        "at": "2026-01-02T00:00:00Z",
        "day": "2026-01-02",
        "raw": "AQ==",
    }


def test_a_struct_called_value_is_the_record():
    kind = pa.struct([("a", pa.int32()), ("m", pa.map_(pa.string(), pa.int64()))])
    batch = pa.RecordBatch.from_arrays([pa.array([{"a": 1, "m": [("k", 2)]}, None], kind)], ["value"])
    made = encoder(batch)
    first, second = made.encode(batch)
    parsed = fastavro.parse_schema(json.loads(made.schema.schema_data))
    assert fastavro.schemaless_reader(io.BytesIO(first), parsed, None) == {"a": 1, "m": {"k": 2}}
    assert second is None


def test_fields_are_nullable_so_that_tables_may_grow():
    assert record_schema("R", [pa.field("a", pa.int32(), nullable=False)]) == {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": ["null", "int"], "default": None}],
    }


@pytest.mark.parametrize("mode", ["avro", "json"])
def test_records_whose_paths_look_alike_have_names_of_their_own(mode):
    """The field `b` of `a`, and the field `a_b`."""
    row = {"a": {"b": {"x": 1}}, "a_b": {"y": 2}, "a_b_2": {"z": 3}}
    batch = pa.RecordBatch.from_pylist([row])
    made = encoder(batch, valueMode=mode)
    (payload,) = made.encode(batch)
    definition = fastavro.parse_schema(json.loads(made.schema.schema_data))
    if mode == "avro":
        assert fastavro.schemaless_reader(io.BytesIO(payload), definition, None) == row
    names = [field["type"][1]["name"] for field in json.loads(made.schema.schema_data)["fields"]]
    assert names == ["Record_a", "Record_a_b_2", "Record_a_b_2_2"]


def test_numbers_that_json_lacks_are_text_as_javas_encoder_writes_them():
    row = {
        "d": float("nan"),
        "l": [float("inf"), None, 1.5],
        "s": {"f": float("-inf")},
        "m": {"k": float("nan")},
        "n": None,
        "i": 1,
    }
    kinds = [
        ("d", pa.float64()),
        ("l", pa.list_(pa.float32())),
        ("s", pa.struct([("f", pa.float64())])),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("n", pa.float64()),
        ("i", pa.int32()),
    ]
    plain = row | {"d": 2.0, "l": None, "s": None, "m": {}}
    batch = pa.RecordBatch.from_pylist([plain, row], schema=pa.schema(kinds))
    made = encoder(batch, valueMode="json")
    first, second = (json.loads(payload) for payload in made.encode(batch))
    assert first == plain
    assert second == row | {"d": "NaN", "l": ["Infinity", None, 1.5], "s": {"f": "-Infinity"}, "m": {"k": "NaN"}}
    struct_batch = pa.RecordBatch.from_arrays(
        [pa.StructArray.from_arrays(batch.columns, batch.schema.names)], ["value"]
    )
    assert encoder(struct_batch, valueMode="json").encode(struct_batch) == made.encode(batch)


@pytest.mark.parametrize(
    ("table", "options", "text"),
    [
        ({"a": [b""], "b": [b""]}, {"valueMode": "bytes"}, "one column called value"),
        ({"value": [1.5]}, {"valueMode": "bytes"}, "valueMode json or avro"),
        ({"a b": [1]}, {}, "no name in Avro"),
        ({"a": [1]}, {"recordName": "1"}, "recordName"),
        ({"a": [dt.timedelta(1)]}, {}, "cast Record_a"),
    ],
)
def test_values_that_cannot_be_a_payload(table, options, text):
    batch = pa.RecordBatch.from_pydict(table)
    with pytest.raises(OptionError, match=text):
        encoder(batch, **options)


@pytest.mark.parametrize("mode", ["auto", "json", "avro"])
@pytest.mark.parametrize("name", ["value", "v"])
def test_a_variant_is_refused_with_a_remedy(mode, name):
    """A record of the two binaries of a variant is of no use to readers."""
    mark = pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"})
    kind = pa.struct([pa.field("value", pa.binary(), nullable=False), mark])
    batch = pa.RecordBatch.from_arrays([pa.array([{"value": b"", "metadata": b""}], kind)], [name])
    with pytest.raises(OptionError, match="variant cannot be written as Avro or JSON: write to_json"):
        encoder(batch, valueMode=mode)
