import pyarrow as pa
import pytest

from magnetar.pipeline.lake.errors import SchemaDriftError
from magnetar.pipeline.lake.schema import conform, merge


def schema(**fields):
    return pa.schema(list(fields.items()))


INNER = pa.struct([("a", pa.int32())])
GROWN = pa.struct([("a", pa.int32()), ("b", pa.string())])


def test_columns_keep_their_order_and_new_ones_come_last():
    merged = merge(schema(b=pa.string(), a=pa.int32()), schema(c=pa.int64(), a=pa.int32()), widen=False)
    assert merged == schema(b=pa.string(), a=pa.int32(), c=pa.int64())
    assert merge(schema(a=pa.field("a", pa.int32(), nullable=False).type), schema(), widen=False).field("a").nullable


@pytest.mark.parametrize(
    ("table", "topic", "expected"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (INNER, GROWN, GROWN),
        (GROWN, INNER, GROWN),
        (pa.list_(INNER), pa.list_(GROWN), pa.list_(GROWN)),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (pa.string(), pa.large_string(), pa.string()),
        (pa.binary(), pa.large_binary(), pa.binary()),
    ],
)
def test_types_that_go_together(table, topic, expected):
    assert merge(schema(x=table), schema(x=topic), widen=True).field("x").type == expected


@pytest.mark.parametrize(
    ("table", "topic", "widen"),
    [
        (pa.int32(), pa.int64(), False),
        (pa.int32(), pa.string(), True),
        (pa.binary(), pa.string(), True),
        (pa.int64(), pa.float64(), True),
        (INNER, pa.struct([("a", pa.string())]), True),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.binary(), pa.int32()), True),
    ],
)
def test_types_that_do_not(table, topic, widen):
    with pytest.raises(SchemaDriftError):
        merge(schema(x=table), schema(x=topic), widen=widen)


def test_batches_are_conformed():
    batch = pa.RecordBatch.from_pydict(
        {"s": [{"a": 1}, None], "n": pa.array([1, 2], pa.int32())}, schema(s=INNER, n=pa.int32())
    )
    wanted = schema(n=pa.int64(), new=pa.string(), s=GROWN)
    conformed = conform(batch, wanted)
    assert conformed.schema == wanted
    assert conformed.to_pylist() == [
        {"n": 1, "new": None, "s": {"a": 1, "b": None}},
        {"n": 2, "new": None, "s": None},
    ]
    assert conform(batch, batch.schema) is batch


def test_a_slice_is_conformed_as_well():
    batch = pa.RecordBatch.from_pydict({"s": [{"a": 1}, None, {"a": 3}]}, schema(s=INNER)).slice(1, 2)
    assert conform(batch, schema(s=GROWN)).to_pylist() == [{"s": None}, {"s": {"a": 3, "b": None}}]


def test_columns_that_cannot_be_conformed():
    batch = pa.RecordBatch.from_pydict({"x": ["a"]}, schema(x=pa.string()))
    with pytest.raises(SchemaDriftError, match="x"):
        conform(batch, schema(x=pa.int32()))
    with pytest.raises(SchemaDriftError, match="absent"):
        conform(batch, schema(y=pa.string()))
