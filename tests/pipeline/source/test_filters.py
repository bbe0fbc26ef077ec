"""Filters in the source: exactly the rows that SQL keeps, and the ranges that cannot have any left out."""

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from magnetar.pipeline.log_range import LogRange
from magnetar.pipeline.offsets import Offsets, Position
from magnetar.pipeline.source.filters import RowFilter

T = "persistent://public/default/t"
UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("__index", pa.int64()),
        ("__key", pa.binary()),
        ("__topic", pa.string()),
        ("__publishTime", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("amount", pa.float64()),
        ("__partition", pa.int32()),
        ("address", pa.struct([("city", pa.string())])),
    ]
)
ROWS = [
    {"__index": 0, "__key": b"a", "__topic": "red", "__publishTime": dt.datetime(2026, 1, 1, tzinfo=UTC)},
    {"__index": 1, "__key": None, "__topic": None, "__publishTime": None},
    {"__index": 2, "__key": b"b", "__topic": "blue", "__publishTime": dt.datetime(2026, 1, 2, tzinfo=UTC)},
    {"__index": 3, "__key": b"\xff", "__topic": "bred", "__publishTime": dt.datetime(2026, 1, 3, tzinfo=UTC)},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
KEY, TOPIC, TIME = ("__key",), ("__topic",), ("__publishTime",)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (EqualTo(KEY, b"a"), [0]),
        (Not(EqualTo(KEY, b"a")), [2, 3]),
        (EqualNullSafe(KEY, b"a"), [0]),
        (Not(EqualNullSafe(KEY, b"a")), [1, 2, 3]),
        (EqualNullSafe(KEY, None), [1]),
        (In(KEY, (b"a", b"\xff")), [0, 3]),
        (In(KEY, (b"a",)), [0]),
        (Not(In(KEY, (b"a", b"\xff"))), [2]),
        (GreaterThan(KEY, b"b"), [3]),
        (IsNull(KEY), [1]),
        (IsNotNull(KEY), [0, 2, 3]),
        (Not(IsNull(KEY)), [0, 2, 3]),
        (StringStartsWith(TOPIC, "b"), [2, 3]),
        (StringEndsWith(TOPIC, "red"), [0, 3]),
        (StringContains(TOPIC, "re"), [0, 3]),
        (Not(StringContains(TOPIC, "re")), [2]),
        (GreaterThanOrEqual(TIME, dt.datetime(2026, 1, 2, tzinfo=UTC)), [2, 3]),
        (LessThan(TIME, dt.datetime(2026, 1, 2, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))), [0]),
        (LessThanOrEqual(("__index",), 1), [0, 1]),
    ],
)
def test_the_rows_that_sql_keeps(given, kept):
    rows, left = RowFilter.of([given], SCHEMA)
    assert left == []
    assert rows.apply(BATCH).column("__index").to_pylist() == kept


@pytest.mark.parametrize(
    "given",
    [
        GreaterThan(("amount",), 5.0),  # NaN is above everything in Spark
        EqualTo(("address", "city"), "Rome"),
        EqualTo(("address",), {"city": "Rome"}),
        In(KEY, (b"a", None)),
        EqualTo(KEY, None),
        EqualTo(("nothing",), 1),
        EqualTo(("__index",), 1 << 70),
        EqualTo(("local",), dt.datetime(2026, 1, 2, tzinfo=UTC)),
        Not(GreaterThan(("amount",), 5.0)),
    ],
)
def test_filters_with_possible_differences_are_left_to_spark(given):
    rows, left = RowFilter.of([given], SCHEMA)
    assert left == [given]
    assert rows.apply(BATCH).num_rows == len(ROWS)


def log(topic):
    return LogRange(topic, 0, 100, 100, 1000, Position(1, 99))


def test_topics_and_partitions_that_cannot_match_are_not_read():
    logs = {name: log(name) for name in (f"{T}-partition-0", f"{T}-partition-1", "persistent://public/default/u")}

    def kept(*given):
        return sorted(name.rpartition("/")[2] for name in RowFilter.of(given, SCHEMA)[0].topics(logs))

    assert kept(EqualTo(("__partition",), 1)) == ["t-partition-1"]
    assert kept(In(("__partition",), (0, -1))) == ["t-partition-0", "u"]
    assert kept(EqualTo(TOPIC, "persistent://public/default/u")) == ["u"]
    assert kept(Not(EqualTo(("__partition",), 1))) == ["t-partition-0", "t-partition-1", "u"]


def test_indexes_that_cannot_match_are_not_read():
    whole = Offsets({T: 10}), Offsets({T: 90})

    def bounds(*given):
        start, end = RowFilter.of(given, SCHEMA)[0].bounds(*whole)
        return start.by_topic[T], end.by_topic[T]

    index = ("__index",)
    assert bounds(GreaterThan(index, 20), LessThan(index, 30)) == (21, 30)
    assert bounds(GreaterThanOrEqual(index, 20), LessThanOrEqual(index, 30)) == (20, 31)
    assert bounds(In(index, (40, 50))) == (40, 51)
    assert bounds(Not(EqualTo(index, 40))) == (10, 90)
