import datetime as dt

import pyarrow as pa
import pytest

from magnetar.pipeline.columns import KAFKA, PULSAR, arrow_schema, topic_columns
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.columns import RowReader, parts
from magnetar.pipeline.sink.message import Message, Row
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.values import value_encoder

UTC = dt.UTC
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
AT_MS = 1767323045678


def read(table, **options):
    parsed = SinkOptions.parse({k: str(v) for k, v in options.items()}, streaming=False)
    batch = pa.RecordBatch.from_pylist(table, schema=options.pop("schema", None)) if isinstance(table, list) else table
    return list(RowReader(batch.schema, parsed, value_encoder(batch.schema, parsed)).rows(batch))


def test_every_part_of_a_message():
    row = {
        "value": b"v",
        "__key": "k",
        "__orderingKey": b"o",
        "__topic": "persistent://a/b/c",
        "__partition": 3,
        "__eventTime": AT,
        "__deliverAt": AT_MS + 1,
    }
    batch = pa.RecordBatch.from_pylist([row])
    properties = pa.array([[("a", "1"), ("b", "2")]], pa.map_(pa.string(), pa.string()))
    batch = batch.append_column("__messageProperties", properties)
    message = Message(b"v", b"k", b"o", (("a", "1"), ("b", "2")), AT_MS, AT_MS + 1)
    assert read(batch) == [Row("persistent://a/b/c", 3, message)]


def test_nulls_are_absent_parts():
    schema = arrow_schema(topic_columns())
    batch = pa.RecordBatch.from_pylist([{"value": None}], schema=schema)
    assert read(batch, topic="t") == [Row("persistent://public/default/t", -1, Message(None))]


@pytest.mark.parametrize(("unit", "per_ms"), [("ms", 1), ("us", 1000), ("ns", 1_000_000)])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_times_are_whole_milliseconds_rounded_down(unit, per_ms, zone):
    """As `Instant.toEpochMilli` of Java and Spark's own functions, before 1970 too."""
    values = [-1, -1000, -1001, 1500, -2_208_988_800_000_001, 0, None]
    times = pa.array(values, pa.timestamp(unit, zone))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"] * len(values)), times, times], ["value", "__eventTime", "__deliverAt"]
    )
    expected = [(value or 0) // per_ms for value in values]
    found = [(row.message.event_time_ms, row.message.deliver_at_ms) for row in read(batch, topic="t")]
    assert found == [(each, each) for each in expected]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_key_of_a_map_without_a_value_is_no_property(kind):
    maps = pa.array([[("a", "1"), ("b", None), ("c", "")], [("a", None)]], pa.map_(pa.string(), kind))
    batch = pa.RecordBatch.from_arrays([pa.array([b"v", b"w"]), maps], ["value", "__messageProperties"])
    assert [row.message.properties for row in read(batch, topic="t")] == [(("a", "1"), ("c", "")), ()]


def test_a_table_that_was_read_can_be_written():
    found, values = parts(arrow_schema(topic_columns()).names, SinkOptions.parse({}, streaming=False))
    assert values == ["value"]
    assert set(found.values()) <= {column.name for column in PULSAR}
    found, values = parts([c.name for c in KAFKA], SinkOptions.parse({"columnStyle": "kafka"}, streaming=False))
    assert values == ["value"]
    assert "timestampType" not in found.values()


def test_kafka_names():
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k"]),
            pa.array([b"v"]),
            pa.array(["t"]),
            pa.array([[{"key": "h", "value": b"x"}, {"key": "n", "value": None}]], kind),
        ],
        ["key", "value", "topic", "headers"],
    )
    assert read(batch, columnStyle="kafka") == [Row("t", -1, Message(b"v", b"k", None, (("h", "x"), ("n", "")), 0, 0))]


def test_the_topic_of_the_options_wins():
    assert read([{"value": b"", "__topic": "t"}], topic="u")[0].topic == "persistent://public/default/u"


def test_errors_of_unwritable_columns_name_the_remedy():
    with pytest.raises(OptionError, match="option topic or a column __topic"):
        read([{"value": b""}])
    with pytest.raises(OptionError, match="no value"):
        read([{"__key": b""}], topic="t")
    with pytest.raises(ValueError, match="null in its topic"):
        read(pa.RecordBatch.from_arrays([pa.array([b""]), pa.array([None], pa.string())], ["value", "__topic"]))


@pytest.mark.parametrize("name", ["__keys", "__Properties", "__deliverAtTime", "__eventtimes"])
def test_a_column_that_is_nearly_a_part_is_refused(name):
    with pytest.raises(
        OptionError, match=f"column {name} is no part of a message; rename it, for example to __[a-zA-Z]+$"
    ):
        read([{"value": b"", name: "x"}], topic="t")


def test_other_columns_with_underscores_are_fields_of_the_payload():
    for name in ("__date", "__id", "__version"):
        assert parts(["value", name], SinkOptions.parse({"topic": "t"}, streaming=False))[1] == ["value", name]


def test_rows_in_the_style_of_kafka_need_a_value_and_have_no_place_for_records():
    """Such rows became Avro records of all the other columns, `value` included."""
    with pytest.raises(OptionError, match="needs a column value"):
        read([{"id": 1, "name": "a"}], topic="t", columnStyle="kafka")
    with pytest.raises(OptionError, match="no place for id, name: drop"):
        read([{"value": b"v", "id": 1, "name": "a"}], topic="t", columnStyle="kafka")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("__key", pa.array([1])),
        ("__orderingKey", pa.array([1.5])),
        ("__topic", pa.array([b"t"])),
        ("__partition", pa.array(["1"])),
        ("__eventTime", pa.array(["2026-01-01"])),
        ("__deliverAt", pa.array([1.5])),
        ("__messageProperties", pa.array(["x"])),
        ("__messageProperties", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))),
        ("__messageProperties", pa.array([[{"key": "a"}]])),
    ],
)
def test_a_column_of_another_type_is_refused_with_the_expected_type(column, values):
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), values], ["value", column])
    with pytest.raises(OptionError, match=rf"column {column} is .*; .* expected"):
        read(batch, **({} if column == "__topic" else {"topic": "t"}))


def test_columns_without_any_value_have_every_type():
    names = ["__key", "__orderingKey", "__partition", "__eventTime", "__deliverAt", "__messageProperties"]
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), *[pa.nulls(1)] * len(names)], ["value", *names])
    assert read(batch, topic="t") == [Row("persistent://public/default/t", -1, Message(b"v"))]


@pytest.mark.parametrize(
    ("names", "repeated"),
    [(["value", "__key", "__KEY"], "__key"), (["a", "b", "a"], "a"), (["value", "value"], "value")],
)
def test_several_columns_of_one_name_are_named(names, repeated):
    batch = pa.RecordBatch.from_arrays([pa.array(["x"])] * len(names), names)
    with pytest.raises(OptionError, match=f"several columns are called {repeated}: rename"):
        read(batch, topic="t")
    found, values = parts(["a", "A", "__messageId", "__messageId"], SinkOptions.parse({"topic": "t"}, streaming=False))
    assert (found, values) == ({}, ["a", "A"])


@pytest.mark.parametrize("mode", ["auto", "json", "avro"])
def test_columns_of_large_types_are_those_of_small_types(mode):
    """A session with spark.sql.execution.arrow.useLargeVarTypes sends them."""
    text, raw = pa.large_string(), pa.large_binary()
    kinds = {"__key": raw, "__orderingKey": text, "__topic": text, "__messageProperties": pa.map_(text, text)}
    row = {"__key": b"k", "__orderingKey": "o", "__topic": "t", "__messageProperties": [("a", "1")]}
    if mode == "auto":
        large = pa.schema([*kinds.items(), ("value", text)])
        assert read(pa.RecordBatch.from_pylist([row | {"value": "v"}], large)) == read(
            pa.RecordBatch.from_pylist([row | {"value": "v"}], small(large))
        )
        return
    nested = {"s": text, "b": raw, "l": pa.list_(text), "m": pa.map_(text, raw), "st": pa.struct([("x", text)])}
    row |= {"s": "s", "b": b"b", "l": ["l"], "m": [("m", b"m")], "st": {"x": "x"}}
    large = pa.schema([*kinds.items(), *nested.items()])
    assert read(pa.RecordBatch.from_pylist([row], large), valueMode=mode) == read(
        pa.RecordBatch.from_pylist([row], small(large)), valueMode=mode
    )


def small(schema):
    """The schema with small types."""
    text = {"large_string": "string", "large_binary": "binary"}

    def kind(given):
        if pa.types.is_map(given):
            return pa.map_(kind(given.key_type), kind(given.item_type))
        if pa.types.is_list(given):
            return pa.list_(kind(given.value_type))
        if pa.types.is_struct(given):
            return pa.struct([(field.name, kind(field.type)) for field in given])
        return pa.type_for_alias(text[str(given)]) if str(given) in text else given

    return pa.schema([(field.name, kind(field.type)) for field in schema])
